#include "cpu/packed_weights.h"

#include <atomic>
#include <variant>

#include "cpu/linear.h"
#include "format/mapped_file.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

PackedWeight describe(const WeightView& view) {
  PackedWeight weight;
  weight.format = packed_format(view.type);
  weight.k = view.shape[0];
  weight.n = view.shape.size() > 1 ? view.shape[1] : 1;
  weight.layout = packed_layout(*weight.format, weight.k);
  return weight;
}

std::int64_t panel_count(const PackedWeight& weight) { return (weight.n + kPanel - 1) / kPanel; }

void pack_into(PackedWeight& weight, const WeightView& view, std::uint8_t* to, ThreadPool& pool) {
  weight.panels = to;
  const std::int64_t row_bytes = codec(view.type).row_bytes(weight.k);
  const auto* rows = reinterpret_cast<const std::uint8_t*>(view.data.data());
  std::atomic<bool> regular{true};
  parallel_items(pool, panel_count(weight), weight.k * kPanel, [&](std::int64_t panel, int) {
    const std::int64_t first = panel * kPanel, count = std::min(kPanel, weight.n - first);
    if (!pack_panel(*weight.format, rows + first * row_bytes, row_bytes, static_cast<int>(count), weight.k,
                    to + panel * weight.layout.bytes))
      regular.store(false, std::memory_order_relaxed);
  });
  weight.regular = regular;
}

}  // namespace

PackedWeights PackedWeights::pack(const Graph& graph, const Weights& weights, ThreadPool& pool) {
  PackedWeights packed;
  packed.by_id_.resize(weights.size());
  std::vector<std::size_t> order;
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
  const auto want = [&](WeightId id) {
    const auto i = static_cast<std::size_t>(id);
    if (!weights[i].present() || packed.by_id_[i].format != nullptr || packed_format(weights[i].type) == nullptr)
      return;
    packed.by_id_[i] = describe(weights[i]);
    order.push_back(i);
    offsets.push_back(bytes);
    constexpr std::int64_t kPage = 4096;
    bytes += (panel_count(packed.by_id_[i]) * packed.by_id_[i].layout.bytes + kPage - 1) / kPage * kPage;
  };
  for (const Op& op : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op)) want(linear->weight);
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) want(head->weight);
  }
  packed.memory_ = PageMemory(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const WeightView& view = weights[order[i]];
    pack_into(packed.by_id_[order[i]], view, reinterpret_cast<std::uint8_t*>(packed.memory_.data()) + offsets[i], pool);
    if (view.mapped) MappedFile::drop_pages(view.data);
  }
  return packed;
}

PackedMatrix::PackedMatrix(const WeightView& view, ThreadPool& pool) : weight_(describe(view)) {
  memory_ = PageMemory(static_cast<std::size_t>(panel_count(weight_) * weight_.layout.bytes));
  pack_into(weight_, view, reinterpret_cast<std::uint8_t*>(memory_.data()), pool);
}

}  // namespace dllm::cpu
