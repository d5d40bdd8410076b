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

PackedWeight describe(const WeightView& view, SuperWeights super) {
  PackedWeight weight;
  weight.format = packed_format(view.type);
  weight.k = view.shape[0];
  weight.n = view.shape.size() > 1 ? view.shape[1] : 1;
  weight.experts = view.shape.size() > 2 ? view.shape[2] : 1;
  weight.layout = packed_layout(*weight.format, weight.k);
  if (super != SuperWeights::kNone && runs_super(view.type)) weight.super = super_layout(view.type, weight.k);
  weight.in_steps = super == SuperWeights::kAll && runs_in_steps(view.type, weight.k);
  return weight;
}

void pack_into(PackedWeight& weight, const WeightView& view, std::uint8_t* to, ThreadPool& pool) {
  weight.panels = to;
  const std::int64_t row_bytes = codec(view.type).row_bytes(weight.k);
  const auto* rows = reinterpret_cast<const std::uint8_t*>(view.data.data());
  const std::int64_t matrix_bytes =
      view.matrix_bytes > 0 ? static_cast<std::int64_t>(view.matrix_bytes) : weight.n * row_bytes;
  std::atomic<bool> regular{true};
  const std::int64_t per_expert = weight.panels_per_expert();
  parallel_items(pool, weight.panel_count(), weight.k * kPanel, [&](std::int64_t panel, int) {
    const std::int64_t within = panel % per_expert * kPanel, count = std::min(kPanel, weight.n - within);
    const std::uint8_t* const first = rows + panel / per_expert * matrix_bytes + within * row_bytes;
    std::uint8_t* const at = to + panel * weight.panel_bytes();
    if (weight.super)
      pack_super_panel(view.type, first, row_bytes, static_cast<int>(count), weight.k, at);
    else if (!pack_panel(*weight.format, first, row_bytes, static_cast<int>(count), weight.k, at))
      regular.store(false, std::memory_order_relaxed);
  });
  weight.regular = regular;
}

void drop(const WeightView& view) {
  if (view.mapped) MappedFile::drop_pages(view.data);
}

}  // namespace

void PackedWeights::want(const WeightDecl& decl, const WeightView& view, std::size_t id, SuperWeights super,
                         Stretch& stretch) {
  if (!view.present() || by_id_[id].format != nullptr || packed_format(view.type) == nullptr) return;
  PackedWeight& weight = by_id_[id] = describe(view, super);
  stretch.order.push_back(id);
  const auto size = static_cast<std::uint64_t>(weight.panel_count() * weight.panel_bytes());
  stretch.tensors.push_back({decl.name, view.type, weight.k, weight.n * weight.experts, stretch.bytes, size, view.data,
                             weight.super ? PackedFor::kSuper : PackedFor::kExact});
  constexpr std::uint64_t kPage = 4096;
  stretch.bytes += (size + kPage - 1) / kPage * kPage;
}

bool PackedWeights::map(const WeightCacheOptions& cache, const Stretch& stretch, ThreadPool& pool) {
  auto loaded = load_panels(cache, stretch.tensors, pool);
  if (!loaded) {
    std::error_code ignored;
    // The first load of a model finds no cache: nothing to report.
    if (std::filesystem::exists(cache.path, ignored)) cache.log.warning("{}", loaded.error().message());
    return false;
  }
  for (std::size_t i = 0; i < stretch.order.size(); ++i) {
    PackedWeight& weight = by_id_[stretch.order[i]];
    weight.panels = reinterpret_cast<const std::uint8_t*>(loaded->payload.data()) + stretch.tensors[i].offset;
    weight.regular = loaded->regular[i];
  }
  file_ = std::move(loaded->file);
  return true;
}

std::vector<bool> PackedWeights::pack(const Stretch& stretch, PageMemory& memory, const Weights& weights,
                                      ThreadPool& pool, const std::function<bool(double)>& progress) {
  memory = PageMemory(stretch.bytes);
  std::vector<bool> regular;
  for (std::size_t i = 0; i < stretch.order.size(); ++i) {
    const std::uint64_t offset = stretch.tensors[i].offset;
    if (progress && !progress(static_cast<double>(offset) / static_cast<double>(stretch.bytes))) throw PackingStopped();
    const WeightView& view = weights[stretch.order[i]];
    PackedWeight& weight = by_id_[stretch.order[i]];
    pack_into(weight, view, reinterpret_cast<std::uint8_t*>(memory.data()) + offset, pool);
    regular.push_back(weight.regular);
    drop(view);
  }
  return regular;
}

void PackedWeights::want_all(const Graph& graph, const Weights& weights, SuperWeights super, Stretch& model,
                             Stretch& adapters) {
  by_id_.resize(weights.size());
  const auto add = [&](WeightId id) {
    if (id == kNoId) return;  // the head of a rank without tokens
    const auto i = static_cast<std::size_t>(id);
    const WeightDecl& decl = graph.weights[i];
    want(decl, weights[i], i, super, decl.adapter ? adapters : model);
  };
  for (const Op& op : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op)) add(linear->weight);
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) add(head->weight);
    if (const auto* experts = std::get_if<op::Experts>(&op))
      for (const WeightId id : {experts->gate, experts->up, experts->down}) add(id);
  }
}

std::int64_t PackedWeights::bytes_needed(const Graph& graph, const Weights& weights) {
  PackedWeights none;
  Stretch all;
  none.want_all(graph, weights, SuperWeights::kNone, all, all);
  return static_cast<std::int64_t>(all.bytes);
}

PackedWeights PackedWeights::pack(const Graph& graph, const Weights& weights, ThreadPool& pool,
                                  const WeightCacheOptions& cache, const std::function<bool(double)>& progress,
                                  SuperWeights super) {
  PackedWeights packed;
  Stretch model, adapters;
  packed.want_all(graph, weights, super, model, adapters);
  if (!adapters.order.empty()) packed.pack(adapters, packed.adapters_, weights, pool, {});
  const bool cached = !cache.path.empty() && !model.tensors.empty();
  if (!cached || !packed.map(cache, model, pool)) {
    const std::vector<bool> regular = packed.pack(model, packed.memory_, weights, pool, progress);
    if (!cached) return packed;
    if (const auto stored = store_panels(cache, model.tensors, regular,
                                         {packed.memory_.data(), static_cast<std::size_t>(model.bytes)}, pool);
        !stored)
      cache.log.warning("{}; going on without", stored.error().message());
  }
  // The fingerprint has touched a few pages, and the system maps their neighbours too.
  for (const std::size_t i : model.order) drop(weights[i]);
  return packed;
}

std::string PackedWeights::arithmetic(bool residual) const {
  std::vector<std::string> exact;
  bool other = false;
  for (const PackedWeight& weight : by_id_) {
    if (weight.format == nullptr) continue;
    const bool twice = residual && weight.experts == 1 && !packs_floats(*weight.format);
    const bool own = weight.super || weight.in_steps || twice;
    other = other || own;
    std::string name(codec(weight.format->type).name);
    if (weight.experts > 1) name += " experts";
    if (!own && std::find(exact.begin(), exact.end(), name) == exact.end()) exact.push_back(name);
  }
  if (!other) return "exact";
  std::string text = residual ? "residual" : "super";
  for (const std::string& name : exact) text += (&name == exact.data() ? ", exact for " : ", ") + name;
  return text;
}

PackedMatrix::PackedMatrix(const WeightView& view, ThreadPool& pool, bool super)
    : weight_(describe(view, super ? SuperWeights::kAll : SuperWeights::kNone)) {
  memory_ = PageMemory(static_cast<std::uint64_t>(weight_.panel_count() * weight_.panel_bytes()));
  pack_into(weight_, view, reinterpret_cast<std::uint8_t*>(memory_.data()), pool);
}

}  // namespace dllm::cpu
