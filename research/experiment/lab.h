#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "app/bench/answers.h"
#include "app/bench/bench.h"
#include "eval/evaluate.h"
#include "npu_compiler/answers/answer_clock.h"
#include "npu_compiler/answers/step_timer.h"

namespace dllm::app {

/// How an answer is decoded and on what it runs: one line of the end-to-end experiment.
struct AnswerMode {
  std::string name;
  std::string decoding;  ///< of Lab::passes()
  npu::TimerOptions timing;
};
/// llada.cpp's modes in their order: host, NPU, + memory runtime, + speculative, + staged states, + logits skipping, +
/// sparse refresh.
const std::vector<AnswerMode>& answer_modes();

inline constexpr const char* kPhones[] = {"mobile-sm8650", "mobile-sm8750", "mobile-sm8850"};

/// What a decoder did: a pass, or one of what concerns passes of the second path.
struct PassEvent {
  enum class Kind : std::uint8_t { kPass, kLaunch, kWait, kDrop };
  npu::StepTotals work{};
  Kind kind = Kind::kPass;
  std::size_t refresh = 0;  ///< which launch is waited for or dropped
};

/// Names and paths as given.
struct LabInputs {
  std::string shape = "llada-8b";                              ///< whose steps are timed
  std::string model = "models/harder-llada-f16.gguf";          ///< whose passes these are
  std::string items = "tests/golden/harder/validation.jsonl";  ///< its prompts
  /// Items that no choice has used: of `model`, and of the embedded one.
  std::string unseen = "research/lab/items/harder-publish.jsonl",
              unseen_embedded = "research/lab/items/tiny-publish.jsonl";
  /// Items that quantization is calibrated with.
  std::string calibration = "research/lab/items/harder-choose.jsonl";
  std::string calibration_embedded = "research/lab/items/tiny-choose.jsonl";
  std::int32_t limit = 300;  ///< of the unseen ones, the first
};

/// What the experiments share: passes of a trained model, and timers of a shape on devices.
class Lab {
 public:
  /// Called with the part of the running experiment that is done, in [0, 1].
  using Progress = std::function<void(double done)>;
  /// Inputs are read when first needed.
  Lab(LabInputs inputs, Progress progress, std::stop_token stop)
      : inputs_(std::move(inputs)), progress_(std::move(progress)), stop_(stop) {}

  /// Empty: that of the inputs.
  Expected<const ShapeModel*> shape(const std::string& name = "");
  const LabInputs& inputs() const { return inputs_; }
  const std::stop_token& stop() const { return stop_; }
  /// Part `index` of `count` begins. Errors: kCancelled.
  Expected<void> begin_part(std::size_t index, std::size_t count) const;
  /// Passes of the answers to the first prompts, `tokens` each. Cached. `decoding`: "prefix", "speculative" (one
  /// threshold), "states" (two, without later reviews), "refresh" (reviews on the second path), "folded" (in the dense
  /// passes); all but the first also with the masks of their lookahead: "refresh 8". To compare with: "dual" (one
  /// threshold, no lookahead), "hasty" (speculative from 0.7), "masked" (folded; what is reviewed shows the mask and
  /// may be opened again).
  using Passes = std::vector<PassEvent>;
  static double count(const Passes& passes);  ///< without the second path's
  Expected<const std::vector<Passes>*> passes(const std::string& decoding, std::int32_t tokens);
  /// A trained model's answers to items, none longer than `tokens`; empty path: the embedded model. `decoding` also
  /// "threshold 0.7" (a prefix cache, no lookahead). `generations`: where they are added, if not null. Errors: those of
  /// the model and of the items' judge; kCancelled.
  Expected<EvalReport> answers(const std::string& model, const EvalSet& items, const std::string& decoding,
                               std::int32_t tokens, std::vector<Generation>* generations = nullptr);
  /// Passes of an autoregressive model of the same shape and prompts.
  Expected<std::vector<Passes>> autoregression(std::int32_t tokens);

  /// Mean over answers; `shape`: of a model, empty: that of the inputs. Errors: those of the timer, so also that a
  /// mapping failed.
  Expected<npu::StepTime> time(const npu::Device& device, const std::vector<Passes>& answers,
                               const npu::TimerOptions& timing, const std::string& shape = "");
  Expected<npu::StepTimer> timer(const npu::Device& device, const npu::StepTotals& most,
                                 const npu::TimerOptions& timing, const std::string& shape = "");

 private:
  Expected<void> open();
  Expected<const LatencyTable*> stairs();

  LabInputs inputs_;
  Progress progress_;
  std::stop_token stop_;
  std::map<std::string, ShapeModel> shapes_;
  std::unique_ptr<BenchModel> model_;
  std::vector<std::vector<TokenId>> prompts_;
  std::unique_ptr<LatencyTable> stairs_;
  std::map<std::string, std::vector<Passes>> passes_;
};

}  // namespace dllm::app
