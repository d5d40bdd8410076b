#include "quant/importance_maker.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/to_size.h"
#include "base/try.h"
#include "format/gguf.h"
#include "quant/canvas_experts.h"
#include "quant/canvas_runner.h"

namespace dllm {
namespace {

class SumMaker {
 public:
  SumMaker(const Model& model, int threads)
      : graph_(model.build({1, 1})),
        weights_(model.weights()),
        pool_(threads),
        runner_(graph_, weights_, model.desc().causal_block, pool_),
        last_uses_(last_uses(graph_)) {
    runner_.watch_experts(
        [this](const op::Experts& o, std::int64_t e, std::span<const float> inputs, std::span<const float> inner) {
          for (const WeightId id : {o.gate, o.up}) add_rows(sums_.at(id), e, inputs);
          add_rows(sums_.at(o.down), e, inner);
        });
  }
  SumMaker(const SumMaker&) = delete;
  SumMaker& operator=(const SumMaker&) = delete;

  const Graph& graph() const { return graph_; }

  void run(std::span<const CalibrationCanvas> canvases) {
    CanvasChunk chunk(canvases);
    const auto count = static_cast<std::int64_t>(graph_.ops.size());
    for (std::int64_t i = 0; i < count; ++i) {
      std::visit([&](const auto& o) { add(chunk, o); }, graph_.ops[to_size(i)]);
      runner_.run(chunk, i, i + 1);
      for (const ValueId id : last_uses_[to_size(i)]) chunk.values.erase(id);
    }
  }

  /// In the order of the graph.
  std::vector<std::pair<std::string, ColumnSums>> take() {
    std::vector<std::pair<std::string, ColumnSums>> all;
    for (const WeightId id : order_) all.emplace_back(graph_.weight(id).name, std::move(sums_.at(id)));
    return all;
  }

 private:
  /// By operator: the values that no later one reads. Those of all layers would not fit in memory.
  static std::vector<std::vector<ValueId>> last_uses(const Graph& graph) {
    std::map<ValueId, std::size_t> last;
    std::map<std::int32_t, std::pair<ValueId, ValueId>> stored;
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const Op& any = graph.ops[i];
      for (const ValueId id : inputs(any)) last[id] = i;
      if (const auto* kv = std::get_if<op::StoreKv>(&any)) stored[kv->layer] = {kv->k, kv->v};
      if (const auto* attention = std::get_if<op::Attention>(&any))
        if (const auto at = stored.find(attention->layer); at != stored.end())
          last[at->second.first] = last[at->second.second] = i;
    }
    std::vector<std::vector<ValueId>> by_operator(graph.ops.size());
    for (const auto& [id, i] : last) by_operator[i].push_back(id);
    return by_operator;
  }

  ColumnSums& of(WeightId id, std::int64_t columns, std::int64_t experts) {
    const auto [at, fresh] = sums_.try_emplace(id);
    if (!fresh) return at->second;
    order_.push_back(id);
    at->second = {columns, std::vector<double>(to_size(columns * experts)), std::vector<double>(to_size(experts))};
    return at->second;
  }

  static void add_rows(ColumnSums& sums, std::int64_t expert, std::span<const float> rows) {
    const auto columns = to_size(sums.columns);
    double* const to = sums.squares.data() + to_size(expert) * columns;
    for (std::size_t first = 0; first < rows.size(); first += columns)
      for (std::size_t c = 0; c < columns; ++c) {
        const double x = rows[first + c];
        to[c] += x * x;
      }
    sums.counts[to_size(expert)] += static_cast<double>(rows.size() / columns);
  }

  template <class Other>
  void add(const CanvasChunk&, const Other&) {}

  void add(const CanvasChunk& chunk, const op::Linear& o) {
    const ActivationRows& x = chunk.values.at(o.x);
    add_rows(of(o.weight, x.width, 1), 0, x.values);
  }

  /// Their order among the sums, and those of experts that no row uses; the rest is told by the runner.
  void add(const CanvasChunk& chunk, const op::Experts& o) {
    const WeightView& gate = weights_[to_size(o.gate)];
    for (const WeightId id : {o.gate, o.up}) of(id, chunk.values.at(o.x).width, gate.shape[2]);
    of(o.down, gate.shape[1], gate.shape[2]);
  }

  Graph graph_;
  std::span<const WeightView> weights_;
  ThreadPool pool_;
  CanvasRunner runner_;
  std::vector<std::vector<ValueId>> last_uses_;
  std::map<WeightId, ColumnSums> sums_;
  std::vector<WeightId> order_;
};

Expected<void> check_graph(const Graph& graph) {
  auto sound = CanvasRunner::check(graph);
  if (sound) return {};
  Error error = std::move(sound).error();
  error.where = "--model";
  error.hint = "quantize it without an importance matrix";
  return error;
}

/// The sums of matrices that the file has as one, under their name there, by which quantizers look.
void add_fused(const Model& model, std::vector<std::pair<std::string, ColumnSums>>& sums) {
  for (const SourceTensor& tensor : model.tensors())
    for (const auto& [fused, part] : {std::pair<std::string_view, std::string_view>{".attn_qkv.", ".attn_q."},
                                      {".ffn_gate_up_exps.", ".ffn_gate_exps."}}) {
      const std::size_t at = tensor.name.find(fused);
      if (at == std::string::npos) continue;
      std::string first = tensor.name;
      first.replace(at, fused.size(), part);
      const auto found = std::ranges::find(sums, first, &std::pair<std::string, ColumnSums>::first);
      if (found == sums.end()) continue;  // a vector
      ColumnSums same = found->second;
      sums.emplace_back(tensor.name, std::move(same));
    }
}

}  // namespace

Expected<std::vector<std::pair<std::string, ColumnSums>>> column_sums(const Model& model,
                                                                      const std::vector<CalibrationCanvas>& canvases,
                                                                      const ImportanceOptions& options) {
  SumMaker maker(model, options.threads);
  DLLM_CHECK_OK(check_graph(maker.graph()));
  const auto all = static_cast<std::int64_t>(canvases.size());
  std::int64_t done = 0;
  for (const std::span<const CalibrationCanvas> group : canvas_groups(canvases)) {
    if (options.cancelled && options.cancelled()) return Error{ErrorCode::kCancelled, "stopped", "", ""};
    if (options.progress) options.progress(done, all);
    maker.run(group);
    done += static_cast<std::int64_t>(group.size());
  }
  auto sums = maker.take();
  add_fused(model, sums);
  return sums;
}

Expected<ImportanceReport> write_importance(const Model& model, const std::vector<CalibrationCanvas>& canvases,
                                            const ImportanceOptions& options, const std::string& path, bool replace) {
  DLLM_TRY(const auto sums, column_sums(model, canvases, options));
  ImportanceReport report{.matrices = static_cast<std::int64_t>(sums.size()),
                          .canvases = static_cast<std::int64_t>(canvases.size())};
  std::size_t longest = 0;
  for (const CalibrationCanvas& canvas : canvases) {
    longest = std::max(longest, canvas.tokens.size());
    report.rows += static_cast<std::int64_t>(canvas.tokens.size());
  }
  Metadata metadata;
  metadata.set("general.type", MetaValue::string("imatrix"));
  metadata.set("imatrix.datasets", MetaValue::strings({options.dataset}));
  metadata.set("imatrix.chunk_count", MetaValue::u32(static_cast<std::uint32_t>(canvases.size())));
  metadata.set("imatrix.chunk_size", MetaValue::u32(static_cast<std::uint32_t>(longest)));
  GgufWriter writer(std::move(metadata));
  std::vector<std::vector<float>> kept;
  kept.reserve(2 * sums.size());
  const auto add = [&](std::string name, Shape shape, const std::vector<double>& values) {
    const std::vector<float>& floats = kept.emplace_back(values.begin(), values.end());
    return writer.add(std::move(name), TensorType::kF32, std::move(shape),
                      [&floats]() -> Expected<std::span<const std::byte>> { return std::as_bytes(std::span(floats)); });
  };
  for (const auto& [name, one] : sums) {
    const auto experts = static_cast<std::int64_t>(one.counts.size());
    DLLM_CHECK_OK(add(name + ".in_sum2", {one.columns, experts}, one.squares));
    DLLM_CHECK_OK(add(name + ".counts", {1, experts}, one.counts));
    // An expert's three matrices have the same rows; this is the one that no file stores fused.
    if (name.find(".ffn_down_exps") != std::string::npos) report.unused_experts += std::ranges::count(one.counts, 0.0);
  }
  DLLM_CHECK_OK(writer.write(path, {.replace = replace}));
  return report;
}

}  // namespace dllm
