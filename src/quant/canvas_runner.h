#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "model/weights.h"
#include "quant/canvas_math.h"
#include "quant/canvases.h"

namespace dllm {

/// Rows of an activation in float32.
struct ActivationRows {
  std::int64_t width = 0;
  std::vector<float> values;  ///< [rows][width]
  std::int64_t rows() const { return width > 0 ? static_cast<std::int64_t>(values.size()) / width : 0; }
  const float* row(std::int64_t r) const { return values.data() + r * width; }
  float* row(std::int64_t r) { return values.data() + r * width; }
};

/// Canvases that are run together, and the values that operators still need.
struct CanvasChunk {
  std::span<const CalibrationCanvas> canvases;
  std::vector<std::int64_t> first_rows;  ///< by canvas, and the number of all
  std::map<ValueId, ActivationRows> values;
  std::map<std::int32_t, std::pair<ValueId, ValueId>> stored;  ///< K and V by layer

  explicit CanvasChunk(std::span<const CalibrationCanvas> all);
};

/// Canvases in groups that fill a chunk of some rows: a matrix is decoded once per chunk.
std::vector<std::span<const CalibrationCanvas>> canvas_groups(std::span<const CalibrationCanvas> all);

/// Told of each expert that some rows use: its inputs, and those of its last product, by rows.
using ExpertObserver = std::function<void(const op::Experts& o, std::int64_t expert, std::span<const float> inputs,
                                          std::span<const float> inner)>;

/// Runs a part of a graph's operators over whole canvases, in float32 and without caches: what calibration needs from a
/// model. Each element is computed by one thread, in one order.
class CanvasRunner {
 public:
  /// `weights` by WeightId; they may be replaced between calls. `causal_block` as StepPlan's.
  CanvasRunner(const Graph& graph, std::span<const WeightView> weights, std::int32_t causal_block, ThreadPool& pool)
      : graph_(graph), weights_(weights), causal_block_(causal_block), pool_(pool) {}

  /// Error: kUnsupported, for a graph with regions or windows.
  static Expected<void> check(const Graph& graph);

  void watch_experts(ExpertObserver observer) { on_expert_ = std::move(observer); }

  /// Operators [first, end) of the graph; the values that they read are in `chunk`.
  void run(CanvasChunk& chunk, std::int64_t first, std::int64_t end) const;

 private:
  const WeightView& weight(WeightId id) const { return weights_[static_cast<std::size_t>(id)]; }
  /// A vector of the model; empty if it has none.
  std::vector<float> vector(WeightId id) const;
  ActivationRows& add(CanvasChunk& chunk, ValueId id, std::int64_t rows) const;

  void run(CanvasChunk& chunk, const op::Embed& o) const;
  void run(CanvasChunk& chunk, const op::RmsNorm& o) const;
  void run(CanvasChunk& chunk, const op::Linear& o) const;
  void run(CanvasChunk& chunk, const op::Rope& o) const;
  void run(CanvasChunk& chunk, const op::Hadamard& o) const;
  void run(CanvasChunk& chunk, const op::StoreKv& o) const;
  void run(CanvasChunk& chunk, const op::Attention& o) const;
  void run(CanvasChunk& chunk, const op::Glu& o) const;
  void run(CanvasChunk& chunk, const op::Add& o) const;
  void run(CanvasChunk& chunk, const op::Scale& o) const;
  void run(CanvasChunk& chunk, const op::Route& o) const;
  void run(CanvasChunk& chunk, const op::Experts& o) const;
  void run(CanvasChunk& chunk, const op::GatherScored& o) const;
  template <class Other>
  void run(CanvasChunk&, const Other&) const {}  ///< the head, and what check() refuses

  const Graph& graph_;
  std::span<const WeightView> weights_;
  std::int32_t causal_block_;
  ThreadPool& pool_;
  ExpertObserver on_expert_;
};

}  // namespace dllm
