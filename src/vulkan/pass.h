#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dllm/error.h"
#include "graph/plan.h"
#include "vulkan/commands.h"
#include "vulkan/kv_cache.h"
#include "vulkan/operators.h"
#include "vulkan/pass_arguments.h"
#include "vulkan/timestamps.h"
#include "vulkan/weights.h"

namespace dllm::vulkan {

/// A model as the device has it.
struct DeviceModel {
  Operators* operators = nullptr;
  const DeviceWeights* weights = nullptr;
  const CacheLayout* cache = nullptr;
  const Weights* tables = nullptr;  ///< the file's, for look-ups
  const Unrolling* unrolling = nullptr;
};

/// The head of a model, in parts of the vocabulary whose logits exist one or two at a time.
struct HeadParts {
  std::int64_t vocab = 0;
  std::int64_t chunks = 0;  ///< of cpu::kHeadChunk tokens
  std::int64_t tokens = 0;  ///< of a part
};

/// Memory that experts need between their products.
struct ExpertScratch {
  RouteScratch route;
  VkDeviceAddress gate = 0, up = 0;  ///< [rows][used][width of an expert]
  VkDeviceAddress down = 0;          ///< [rows][used][width of the model]
  DeviceCodes codes;                 ///< of `gate`
  DeviceCodes halves;                ///< of `gate`, for products in F16
};

/// What a device runs in one pass: it bounds the workgroups of a dispatch. Experts have one for each of a row's.
struct MostRows {
  std::int64_t rows = 0;
  std::int64_t stored = 0;
};
MostRows most_rows(const Graph& graph, const DeviceFacts& facts);

/// A step's operators, recorded once as commands with all their memory. They run over as many rows as the arguments
/// say, up to what the recording has room for, on caches of any capacity.
class Pass {
 public:
  /// Records `graph`, which was built for the rows of `room`. `timed`: the device notes when shaders end, for
  /// shader_times(). Errors: kUnsupported, kResource. Throws std::bad_alloc.
  static Expected<std::unique_ptr<Pass>> record(const DeviceModel& model, Graph graph, const PassSize& room,
                                                bool timed = false);

  const PassSize& room() const { return room_; }
  std::int64_t launches() const { return static_cast<std::int64_t>(launches_.size()); }
  /// In a row, by the room for their results.
  std::int32_t most_passes() const { return most_passes_; }
  /// Memory of activations, arguments and logits.
  std::int64_t bytes() const;

  /// Runs a batch that fits, and perhaps passes that follow. Throws std::bad_alloc. Errors: kResource.
  Expected<void> run(std::span<const SequenceStep> batch, const ScoredRows& scored, const BranchRows& shared,
                     const UnrollBatch& unrolled = {});
  /// Passes of the last run.
  std::int32_t passes_run() const { return kept_.bytes() == 0 ? 1 : arguments_.passes_run(); }
  /// What the device committed after a pass of the last run, but not after its last one: for each scored row a token,
  /// or -1.
  std::span<const std::int32_t> committed(std::int32_t pass) const;
  /// Of the last pass: [kept][vocabulary], before a cap.
  const float* logits() const { return logits_.as<const float>(); }
  /// Memory of these: 0 unless a batch needed some.
  std::int64_t logit_bytes() const { return logits_.bytes(); }
  /// Whether the graph has hidden states as a result; and those of the last pass, for the sequences that ask for them.
  bool hands_out() const { return hidden_.bytes() > 0; }
  void hand_out(std::span<const SequenceStep> batch, std::vector<Scores>& scores) const;
  /// Of a pass of the last run, as cpu::DeviceHead has them.
  std::span<const cpu::ReducedChunk> chunks(std::int32_t pass = 0) const;
  std::span<const float> answers(std::int32_t pass = 0) const;
  /// Of the last pass, if it is timed: seconds of each shader between two barriers, by the first one's name where
  /// several run beside each other. Errors: kResource.
  Expected<std::vector<std::pair<std::string_view, double>>> shader_times() const;

 private:
  class Recorder;
  enum class Over : std::uint8_t { kRows, kScored, kKept, kStored };
  struct Counted {
    Launch launch;
    Over over = Over::kRows;
    std::int64_t pairs = 1;  ///< for each of these: experts of a row
  };

  Pass() = default;
  Expected<void> make_scratch(const std::shared_ptr<Device>& device, bool halves);
  Expected<void> make_head(const std::shared_ptr<Device>& device, std::int32_t passes);
  /// What this processor reads of a pass.
  const std::byte* reduced(std::int32_t pass) const;
  std::int64_t reduced_bytes() const;

  PassSize room_;
  ExecutionPlan plan_;
  const Weights* tables_ = nullptr;
  PassArguments arguments_;
  Buffer arena_, codes_, experts_;
  Buffer halves_;  ///< rows for products in F16, then their scales; empty in other arithmetics
  HeadParts head_;
  Buffer parts_;    ///< logits of two parts, [2][scored][tokens]
  Buffer reduced_;  ///< [scored][chunks], then [scored][cpu::kMostAsked] answers
  Buffer logits_;   ///< [kept][vocabulary]
  Buffer hidden_;   ///< [rows][hidden_width()]
  /// Where others may follow a pass: `reduced_` is the device's own, and for each pass these are what is in it and the
  /// committed tokens, [scored].
  Buffer candidates_, kept_;
  std::int32_t most_passes_ = 1;
  ExpertScratch scratch_;
  std::vector<Counted> launches_;
  std::unique_ptr<Commands> commands_;
  std::optional<Timestamps> times_;
  std::vector<std::string_view> stamped_;  ///< what runs between a time and the next
};

}  // namespace dllm::vulkan
