#include "cpu/packed_weights.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "base/parallel.h"
#include "format/mapped_file.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

PackedWeight describe(const WeightView& view, bool super) {
  PackedWeight weight;
  weight.format = packed_format(view.type);
  weight.k = view.shape[0];
  weight.n = view.shape.size() > 1 ? view.shape[1] : 1;
  weight.experts = view.shape.size() > 2 ? view.shape[2] : 1;
  weight.layout = packed_layout(*weight.format, weight.k);
  if (super && runs_super(view.type)) weight.super = super_layout(view.type, weight.k);
  return weight;
}

void pack_into(PackedWeight& weight, const WeightView& view, std::uint8_t* to, ThreadPool& pool) {
  weight.panels = to;
  const std::int64_t row_bytes = codec(view.type).row_bytes(weight.k);
  const auto* rows = reinterpret_cast<const std::uint8_t*>(view.data.data());
  std::atomic<bool> regular{true};
  const std::int64_t per_expert = weight.panels_per_expert();
  parallel_items(pool, weight.panel_count(), weight.k * kPanel, [&](std::int64_t panel, int) {
    const std::int64_t within = panel % per_expert * kPanel, count = std::min(kPanel, weight.n - within);
    const std::int64_t first = panel / per_expert * weight.n + within;
    std::uint8_t* const at = to + panel * weight.panel_bytes();
    if (weight.super)
      pack_super_panel(view.type, rows + first * row_bytes, row_bytes, static_cast<int>(count), weight.k, at);
    else if (!pack_panel(*weight.format, rows + first * row_bytes, row_bytes, static_cast<int>(count), weight.k, at))
      regular.store(false, std::memory_order_relaxed);
  });
  weight.regular = regular;
}

}  // namespace

bool PackedWeights::map(const WeightCacheOptions& cache, const std::vector<std::size_t>& order,
                        std::span<const CachedTensor> tensors, ThreadPool& pool) {
  auto loaded = load_panels(cache, tensors, pool);
  if (!loaded) {
    std::error_code ignored;
    // The first load of a model finds no cache: nothing to report.
    if (std::filesystem::exists(cache.path, ignored)) cache.log.warning("{}", loaded.error().message());
    return false;
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    PackedWeight& weight = by_id_[order[i]];
    weight.panels = reinterpret_cast<const std::uint8_t*>(loaded->payload.data()) + tensors[i].offset;
    weight.regular = loaded->regular[i];
  }
  file_ = std::move(loaded->file);
  return true;
}

PackedWeights PackedWeights::pack(const Graph& graph, const Weights& weights, ThreadPool& pool,
                                  const WeightCacheOptions& cache, const std::function<bool(double)>& progress,
                                  bool super) {
  PackedWeights packed;
  packed.by_id_.resize(weights.size());
  std::vector<std::size_t> order;
  std::vector<CachedTensor> tensors;
  std::uint64_t bytes = 0;
  const auto want = [&](WeightId id, bool expert = false) {
    const auto i = static_cast<std::size_t>(id);
    const WeightView& view = weights[i];
    if (!view.present() || packed.by_id_[i].format != nullptr || packed_format(view.type) == nullptr) return;
    PackedWeight& weight = packed.by_id_[i] = describe(view, super && !expert);
    order.push_back(i);
    const auto size = static_cast<std::uint64_t>(weight.panel_count() * weight.panel_bytes());
    tensors.push_back({graph.weights[i].name, view.type, weight.k, weight.n * weight.experts, bytes, size, view.data,
                       weight.super ? PackedFor::kSuper : PackedFor::kExact});
    constexpr std::uint64_t kPage = 4096;
    bytes += (size + kPage - 1) / kPage * kPage;
  };
  for (const Op& op : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op)) want(linear->weight);
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) want(head->weight);
    if (const auto* experts = std::get_if<op::Experts>(&op))
      for (const WeightId id : {experts->gate, experts->up, experts->down}) want(id, true);
  }
  const bool cached = !cache.path.empty() && !tensors.empty();
  const auto drop = [&](std::size_t i) {
    if (weights[i].mapped) MappedFile::drop_pages(weights[i].data);
  };
  if (cached && packed.map(cache, order, tensors, pool)) {
    // The fingerprint has touched a few pages, and the system maps their neighbours too.
    for (const std::size_t i : order) drop(i);
    return packed;
  }
  packed.memory_ = PageMemory(bytes);
  std::vector<bool> regular;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (progress && !progress(static_cast<double>(tensors[i].offset) / static_cast<double>(bytes)))
      throw PackingStopped();
    PackedWeight& weight = packed.by_id_[order[i]];
    pack_into(weight, weights[order[i]], reinterpret_cast<std::uint8_t*>(packed.memory_.data()) + tensors[i].offset,
              pool);
    regular.push_back(weight.regular);
    drop(order[i]);
  }
  if (cached) {
    if (const auto stored = store_panels(cache, tensors, regular, {packed.memory_.data(), bytes}, pool); !stored)
      cache.log.warning("{}; going on without", stored.error().message());
    for (const std::size_t i : order) drop(i);
  }
  return packed;
}

std::string PackedWeights::arithmetic() const {
  std::vector<std::string> exact;
  bool super = false;
  for (const PackedWeight& weight : by_id_) {
    if (weight.format == nullptr) continue;
    super = super || weight.super;
    std::string name(codec(weight.format->type).name);
    if (weight.experts > 1) name += " experts";
    if (!weight.super && std::find(exact.begin(), exact.end(), name) == exact.end()) exact.push_back(name);
  }
  if (!super) return "exact";
  std::string text = "super";
  for (const std::string& name : exact) text += (&name == exact.data() ? ", exact for " : ", ") + name;
  return text;
}

PackedMatrix::PackedMatrix(const WeightView& view, ThreadPool& pool, bool super) : weight_(describe(view, super)) {
  memory_ = PageMemory(static_cast<std::size_t>(weight_.panel_count() * weight_.panel_bytes()));
  pack_into(weight_, view, reinterpret_cast<std::uint8_t*>(memory_.data()), pool);
}

}  // namespace dllm::cpu
