#pragma once

#include <map>
#include <vector>

#include "model/weights.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/step.h"
#include "npu_compiler/testing/reference/window_sum.h"

namespace dllm::npu::reference {

/// K and V of a sequence's cache: [layer][position], lanes in the KV format.
struct Cache {
  std::map<std::pair<std::int32_t, std::int64_t>, QuantizedRow> k, v;
};

/// Lanes of one value: [row][slabs * VLEN].
using Rows = std::vector<std::vector<Bf16>>;

struct StepResult {
  std::vector<Rows> values;  ///< by ValueId
  Rows logits;               ///< [scored][vocabulary]
};

/// The most probable token of a row of logits and its probability, as HeadMode::kReduced defines them: one pass over
/// slabs of `vlen` logits, running maximum and sum in BF16, each slab's sum in an FP32 tree added to the running one.
struct Prediction {
  std::uint32_t token = 0;
  Bf16 confidence = 0;
};
Prediction reduce_logits(const std::vector<Bf16>& logits, std::size_t vlen);

/// The meaning of a graph in the NPU's number formats, operator by operator: BF16 vectors, FP32 sums in trees, MX
/// operands, the array's integer windows. It knows lane maps and the sizes that affect the numerics (MLEN, HLEN, VLEN,
/// keys per chunk), but no programs, addresses or buffers. Compiled programs must give the same bits.
class Executor {
 public:
  Executor(const ModelLayout& layout, const Weights& weights)
      : layout_(layout), m_(layout.machine), weights_(weights) {}

  /// `tokens`: of all rows. `caches`: one per sequence; the step's rows are written to them. `hidden`: what
  /// op::HiddenIn and embeddings of mixtures read, [row][columns]. What op::HiddenOut hands out are the values.
  StepResult run(const Graph& graph, const StepSpec& spec, const std::vector<TokenId>& tokens,
                 const std::vector<Cache*>& caches, const std::vector<float>& hidden = {});

 private:
  struct Row {
    std::size_t sequence, index;
    Position position;
    TokenId token;
  };
  Rows& value(ValueId id) { return result_.values[static_cast<std::size_t>(id)]; }
  const LaneMap& map(ValueId id) const { return layout_.values[static_cast<std::size_t>(id)]; }
  std::size_t lanes(const LaneMap& map) const { return static_cast<std::size_t>(layout_.slabs(map) * m_.vlen); }
  std::vector<float> weight_row(WeightId id, std::int64_t row) const;
  const std::vector<QuantizedRow>& matrix(WeightId id, const LaneMap& in);
  Bf16 sum_tree(const std::vector<Bf16>& lanes, std::size_t first, std::size_t count, float& running) const;
  /// Outputs of x W^T (+ bias) in column order; of a stack, those of one expert.
  std::vector<Bf16> product(const std::vector<Bf16>& x, WeightId weight, WeightId bias, const LaneMap& in,
                            std::size_t expert = 0);

  /// op::Hadamard of one slice.
  static void turn(std::vector<Bf16>& lanes, std::int64_t first, std::int32_t order);
  static Bf16 activated(Activation activation, Bf16 x);
  void run(const op::Embed& o);
  void run(const op::RmsNorm& o);
  void run(const op::LayerNorm& o);
  void run(const op::HiddenIn& o);
  void run(const op::Linear& o);
  void run(const op::Rope& o);
  void run(const op::Hadamard& o);
  void run(const op::StoreKv& o);
  void run(const op::Attention& o);
  void run(const op::Glu& o);
  void run_activation(const op::Glu& o);
  void run(const op::Add& o);
  void run(const op::Route& o);
  void run(const op::Experts& o);
  std::vector<bool> allowed_groups(const op::Route& o, const std::vector<Bf16>& keys) const;
  std::vector<bool> allowed_in_block(const op::Route& o, const Rows& keys, std::size_t row) const;
  void run(const op::Scale& o);
  void run(const op::Select& o);
  void run(const op::HiddenOut&) {}  ///< a value as it is
  void run(const op::BlockConv&) {}  ///< no layout accepts these
  void run(const op::Gather&) {}
  void run(const op::GatherScored& o);
  void run(const op::ScoreHead& o);

  const ModelLayout& layout_;
  const MachineConfig& m_;
  const Weights& weights_;
  std::map<WeightId, std::vector<QuantizedRow>> matrices_;
  const Graph* graph_ = nullptr;
  const StepSpec* spec_ = nullptr;
  const std::vector<Cache*>* caches_ = nullptr;
  std::vector<Row> rows_;
  std::vector<float> hidden_;
  std::map<ValueId, std::vector<std::vector<std::size_t>>> chosen_;  ///< by Route::out and row: experts, ascending
  StepResult result_;
};

}  // namespace dllm::npu::reference
