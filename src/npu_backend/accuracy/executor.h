#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/branch_rows.h"
#include "base/thread_pool.h"
#include "npu_backend/accuracy/kv_cache.h"
#include "npu_backend/accuracy/numerics_profile.h"

namespace dllm::npu::accuracy {

struct QuerySegment;  // attention.cpp

/// Runs graphs in the number formats of a profile, operator by operator: the semantics of reference::Executor, in loops
/// over lanes and panels, and also with formats and precisions that the machine does not have. For the machine's own
/// formats the bits are the machine's; they do not depend on the number of threads.
class Executor {
 public:
  /// Thrown by the constructor when `progress` cancels.
  struct Stopped {};

  /// `weights` are views, read here except for embedding tables and vectors. `progress`: AccuracyBackend::Progress.
  Executor(const Graph& graph, const ModelLayout& layout, const Weights& weights, const NumericsProfile& profile,
           int threads, const std::function<bool(double)>& progress = {});

  std::map<std::int32_t, HeadShape> head_shapes() const { return heads_; }
  int threads() const { return pool_.size(); }

  /// Logits of the scored rows of all sequences, [scored][vocabulary]. The step's rows are stored in the caches, whose
  /// records have them already.
  std::vector<float> forward(const Graph& graph, std::span<const SequenceStep> batch);
  /// What the last step's op::HiddenOut handed out, [row or scored row][columns].
  const std::vector<float>& hidden() const { return hidden_; }

 private:
  struct Row {
    std::size_t sequence;
    Position position;
    TokenId token;
    bool shadow;  ///< stores no K/V
  };
  struct RopeRow {  ///< of one position: [pair], rounded to the vector's precision
    std::vector<float> cos, sin;
  };

  const LaneMap& map(ValueId id) const { return layout_.values[static_cast<std::size_t>(id)]; }
  LaneRows& value(ValueId id) { return values_[static_cast<std::size_t>(id)]; }
  const WeightView& weight(WeightId id) const { return weights_[static_cast<std::size_t>(id)]; }
  bool present(WeightId id) const { return id != kNoId && weight(id).present(); }
  /// A vector of the model, rounded to the vector's precision; empty if the model has none.
  const std::vector<float>& vector(WeightId id);
  float round(float x) const { return round_to(profile_.vector, x); }
  float round(double x) const { return round_to(profile_.vector, x); }
  bool on_canvas(std::int64_t row) const {
    return batch_[rows_[static_cast<std::size_t>(row)].sequence].plan.region == dllm::Region::kCanvas;
  }

  void pack(const Graph& graph, const std::function<bool(double)>& progress);
  void begin(const Graph& graph, std::span<const SequenceStep> batch);
  /// `id` as the left side of a product.
  const OperandRows& operand(ValueId id, const Contraction& contraction);
  /// row(r)[lane of the column] = the rounded product, plus bias. `row`: a float* for each row of x.
  template <class RowOf>
  void multiply(const OperandRows& x, const Matrix& matrix, const std::vector<float>& bias, const LaneMap& to,
                const RowOf& row);

  void run(const op::Embed& o);
  void run(const op::RmsNorm& o);
  void run(const op::LayerNorm& o);
  void run(const op::HiddenIn& o);
  void run(const op::HiddenOut& o);
  void run(const op::Linear& o);
  void run(const op::Rope& o);
  void run(const op::Hadamard& o);
  void run(const op::StoreKv& o);
  void run(const op::Attention& o);
  void run(const op::Glu& o);
  void run(const op::Add& o);
  void run(const op::Route& o);
  void run(const op::Experts& o);
  void run(const op::Scale& o);
  void run(const op::Select& o);
  void run(const op::BlockConv&) {}  ///< no layout accepts these
  void run(const op::Gather&) {}
  void run(const op::GatherScored& o);
  void run(const op::ScoreHead& o);
  /// The rows that the host makes of several tokens' embeddings, with the scale (mixed_rows()).
  void run_mixture(const op::Embed& o);
  /// z <- cap tanh(z / cap)
  void cap(float softcap);

  /// C_HADAMARD_TRANSFORM, and the transforms that the machine does not have.
  void hadamard_lanes(std::int32_t order, std::span<float> lanes) const;
  /// Any activation but SiLU's gated unit; `up` may be null.
  void activation_row(Activation activation, const float* gate, const float* up, std::int64_t n, float* out) const;
  void glu_row(const float* gate, const float* up, std::int64_t n, float* out) const;
  std::vector<QuerySegment> query_segments(const op::Attention& o, std::size_t sequence, std::int64_t head);
  const RopeRow& rope_row(const op::Rope& o, Position position);
  void store_rows(const op::StoreKv& o, std::size_t sequence);
  std::vector<bool> allowed_groups(const op::Route& o, std::span<const float> keys) const;
  std::vector<bool> allowed_in_block(const op::Route& o, const LaneRows& keys, std::int64_t row) const;

  const ModelLayout& layout_;
  const Weights& weights_;
  const NumericsProfile& profile_;
  ThreadPool pool_;
  ProductFormats product_;
  std::map<WeightId, std::vector<Matrix>> matrices_;  ///< one, or one per expert
  std::map<WeightId, std::vector<float>> vectors_;
  std::map<std::int32_t, HeadShape> heads_;  ///< by layer
  std::map<std::pair<std::size_t, Position>, RopeRow> ropes_;

  // The step that runs now.
  std::span<const SequenceStep> batch_;
  std::vector<Row> rows_;
  std::vector<std::int64_t> first_rows_;  ///< by sequence, and the number of all
  BranchRows shared_;
  std::vector<LaneRows> values_;
  ValueId operand_of_ = kNoId;
  OperandRows operand_;
  std::map<ValueId, std::vector<std::vector<std::int32_t>>> chosen_;  ///< by Route::out and row: experts, ascending
  std::vector<float> logits_;
  std::vector<float> hidden_;
  std::int64_t hidden_columns_ = 0;
};

}  // namespace dllm::npu::accuracy
