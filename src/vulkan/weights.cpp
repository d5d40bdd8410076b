#include "vulkan/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <variant>

#include "base/human_bytes.h"
#include "base/try.h"
#include "cpu/hadamards.h"
#include "cpu/packed_weights.h"
#include "graph/cut.h"
#include "numerics/tensor_type.h"

namespace dllm::vulkan {
namespace {

std::size_t place_of(WeightId id) { return static_cast<std::size_t>(id); }

/// The vectors that operators read on the device.
std::vector<WeightId> vectors_of(const Graph& graph) {
  std::vector<WeightId> ids;
  for (const Op& op : graph.ops) {
    if (const auto* norm = std::get_if<op::RmsNorm>(&op)) ids.push_back(norm->gain);
    if (const auto* linear = std::get_if<op::Linear>(&op)) ids.push_back(linear->bias);
    if (const auto* head = std::get_if<op::ScoreHead>(&op)) ids.push_back(head->bias);
    if (const auto* route = std::get_if<op::Route>(&op)) {
      ids.push_back(route->bias);
      ids.push_back(route->expert_scale);
    }
  }
  return ids;
}

}  // namespace

std::vector<float> decoded(const WeightView& view) {
  const std::int64_t count = element_count(view.shape);
  std::vector<float> values(static_cast<std::size_t>(count));
  codec(view.type).dequantize(view.data.data(), values.data(), count);
  return values;
}

Expected<void> DeviceWeights::load_vectors(const std::shared_ptr<Device>& device, const Graph& graph,
                                           const Weights& weights, Uploader& uploader) {
  // One buffer for all: they are small, and drivers limit the number of allocations.
  constexpr std::size_t kAlignFloats = 16;
  std::vector<float> all;
  std::vector<std::pair<std::size_t, std::size_t>> starts;
  std::vector<bool> seen(weights.size());
  for (const WeightId id : vectors_of(graph)) {
    if (id == kNoId || seen[place_of(id)] || !weights[place_of(id)].present()) continue;
    seen[place_of(id)] = true;
    const std::vector<float> values = decoded(weights[place_of(id)]);
    starts.emplace_back(place_of(id), all.size());
    all.insert(all.end(), values.begin(), values.end());
    all.resize((all.size() + kAlignFloats - 1) / kAlignFloats * kAlignFloats);
  }
  const cpu::Hadamards transforms(graph);
  for (const Hadamard& one : transforms.all()) {
    hadamards_.push_back({one.order(), one.core(), one.scale(), all.size() * sizeof(float)});
    if (one.core() > 1) all.insert(all.end(), one.core_signs().begin(), one.core_signs().end());
    all.resize((all.size() + kAlignFloats - 1) / kAlignFloats * kAlignFloats);
  }
  if (all.empty()) return {};
  DLLM_TRY(Buffer buffer, Buffer::make(device, static_cast<std::int64_t>(all.size() * sizeof(float)), Place::kDevice,
                                       "the model's vectors"));
  DLLM_CHECK_OK(uploader.copy(buffer, std::as_bytes(std::span(all))));
  for (const auto& [id, start] : starts) vectors_[id] = buffer.address() + start * sizeof(float);
  for (DeviceHadamard& transform : hadamards_) transform.signs += buffer.address();
  buffers_.push_back(std::move(buffer));
  return {};
}

bool DeviceWeights::has_halves() const {
  return std::ranges::any_of(matrices_, [](const DeviceMatrix& one) { return one.half_exponent.has_value(); });
}

std::optional<std::int32_t> half_exponent(const WeightView& view, ThreadPool& pool) {
  if (view.type != TensorType::kF16 && view.type != TensorType::kBF16) return std::nullopt;
  // Magnitudes of both types are in the order of their bits.
  const std::size_t count = view.data.size() / sizeof(std::uint16_t);
  constexpr std::size_t kPart = std::size_t{1} << 20;
  std::vector<std::uint16_t> largest((count + kPart - 1) / kPart);
  pool.parallel_for(static_cast<std::int64_t>(largest.size()), [&](std::int64_t part, int) {
    const std::size_t first = static_cast<std::size_t>(part) * kPart;
    std::uint16_t most = 0;
    for (std::size_t i = first; i < std::min(first + kPart, count); ++i) {
      std::uint16_t word = 0;  // copied, as tensors of safetensors may begin at odd addresses
      std::memcpy(&word, view.data.data() + i * sizeof word, sizeof word);
      most = std::max(most, static_cast<std::uint16_t>(word & 0x7fff));
    }
    largest[static_cast<std::size_t>(part)] = most;
  });
  const std::uint16_t most = largest.empty() ? std::uint16_t{0} : std::ranges::max(largest);
  float value = 0;
  codec(view.type).dequantize(reinterpret_cast<const std::byte*>(&most), &value, 1);
  const auto exponent = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) >> 23);
  constexpr std::int32_t kLeast = 31, kNotFinite = 255;
  return exponent < kLeast || exponent == kNotFinite ? std::nullopt : std::optional(exponent);
}

const DeviceHadamard& DeviceWeights::hadamard(std::int64_t order) const {
  return *std::ranges::find(hadamards_, order, &DeviceHadamard::order);
}

namespace {

/// The most layers at the model's end whose weights leave a tenth of `bytes` for K, V and passes; 0: none does.
std::int64_t layers_that_fit(const Graph& graph, const Weights& weights, std::int64_t bytes) {
  for (auto last = static_cast<std::int64_t>(layers_of(graph).size()) - 1; last > 0; --last)
    if (const auto cut = cut_graph(graph, last);
        cut && cpu::PackedWeights::bytes_needed(cut->back, weights) <= bytes - bytes / 10)
      return last;
  return 0;
}

/// Errors: kResource, with the sizes.
Expected<void> check_room(const Device& device, const Graph& graph, const Weights& weights) {
  const DeviceFacts& facts = device.facts();
  const std::int64_t needed = cpu::PackedWeights::bytes_needed(graph, weights);
  if (facts.memory_bytes == 0 || facts.imports || needed + device.bytes_in_use() <= facts.memory_bytes) return {};
  const auto size = [](std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  const std::int64_t fit = layers_that_fit(graph, weights, facts.memory_bytes - device.bytes_in_use());
  return Error{ErrorCode::kResource,
               fmt::format("the weights take {} of {}'s memory, which has {}, of which {} are in use", size(needed),
                           facts.name, size(facts.memory_bytes), size(device.bytes_in_use())),
               "--backend vulkan",
               fmt::format("{}quantize the model to a smaller type, or leave --backend vulkan out",
                           fit == 0 ? "" : fmt::format("give --gpu-layers {} for its last layers, ", fit))};
}

}  // namespace

Expected<Buffer> DeviceWeights::place(const std::shared_ptr<Device>& device, const cpu::PackedWeight& matrix,
                                      const std::string& name, Uploader& uploader) {
  const std::int64_t bytes = matrix.panel_count() * matrix.panel_bytes();
  const std::int64_t pages = (bytes + kImportedPage - 1) / kImportedPage * kImportedPage;
  // Panels begin at pages, and the last one of a tensor belongs to it alone (PackedWeights::want).
  if (device->facts().imports && reinterpret_cast<std::uintptr_t>(matrix.panels) % kImportedPage == 0)
    if (auto imported = Buffer::import(device, matrix.panels, pages)) {
      imported_bytes_ += bytes;
      return imported;
    }
  DLLM_TRY(Buffer buffer, Buffer::make(device, bytes, Place::kDevice, fmt::format("the tensor '{}'", name)));
  DLLM_CHECK_OK(
      uploader.copy(buffer, {reinterpret_cast<const std::byte*>(matrix.panels), static_cast<std::size_t>(bytes)}));
  return buffer;
}

Expected<DeviceWeights> DeviceWeights::load(const std::shared_ptr<Device>& device, const Graph& graph,
                                            const Weights& weights, ThreadPool& pool, const WeightCacheOptions& cache,
                                            const std::function<bool(double)>& progress, bool halves) {
  DeviceWeights loaded;
  loaded.matrices_.resize(weights.size());
  loaded.vectors_.resize(weights.size());
  DLLM_CHECK_OK(check_room(*device, graph, weights));
  Uploader uploader(device);
  // The buffers that are imported from the panels end before them, also where this returns an error.
  loaded.panels_ = cpu::PackedWeights::pack(graph, weights, pool, cache, progress);
  const cpu::PackedWeights& packed = loaded.panels_;
  for (std::size_t id = 0; id < weights.size(); ++id) {
    const cpu::PackedWeight* const matrix = packed.find(static_cast<WeightId>(id));
    if (matrix == nullptr) continue;
    if (!multiplies(*matrix->format))
      return Error{ErrorCode::kUnsupported,
                   fmt::format("the Vulkan backend does not multiply {} weights", codec(matrix->format->type).name),
                   graph.weights[id].name, "leave --backend vulkan out, or quantize the model to another type"};
    DLLM_TRY(Buffer buffer, loaded.place(device, *matrix, graph.weights[id].name, uploader));
    loaded.matrices_[id] = {buffer.address(), matrix->format, matrix->layout,
                            matrix->k,        matrix->n,      matrix->panels_per_expert() * matrix->panel_bytes()};
    if (halves) loaded.matrices_[id].half_exponent = half_exponent(weights[id], pool);
    loaded.buffers_.push_back(std::move(buffer));
  }
  DLLM_CHECK_OK(loaded.load_vectors(device, graph, weights, uploader));
  if (loaded.imported_bytes_ == 0) loaded.panels_ = {};
  return loaded;
}

}  // namespace dllm::vulkan
