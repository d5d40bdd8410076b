#include "cpu/cpu_kv_cache.h"

#include <fmt/format.h>

#include <cassert>
#include <cstdint>
#include <cstring>
#include <new>

namespace dllm::cpu {
namespace {

constexpr std::int64_t kAlignment = 64;

Error cache_out_of_memory(Position capacity) {
  return {ErrorCode::kResource, fmt::format("no memory for a KV cache of {} positions", capacity), "",
          "lower the context length or use a smaller cache type"};
}

}  // namespace

bool ZeroPages::allocate(std::int64_t bytes) {
  // calloc gets large blocks directly from the system, untouched.
  block_.reset(std::calloc(static_cast<std::size_t>(bytes + kAlignment), 1));
  const auto address = reinterpret_cast<std::uintptr_t>(block_.get());
  data_ = block_ ? static_cast<std::byte*>(block_.get()) + (kAlignment - address % kAlignment) % kAlignment : nullptr;
  return data_ != nullptr;
}

Expected<std::unique_ptr<CpuKvCache>> CpuKvCache::create(Position capacity, const std::vector<KvShape>& layers,
                                                         TensorType type, bool plain_keys) {
  if (capacity < 0) return cache_out_of_memory(capacity);
  try {
    std::unique_ptr<CpuKvCache> cache(new CpuKvCache(capacity, type, plain_keys));
    const Codec& format = codec(type);
    cache->layers_.reserve(layers.size());
    for (const KvShape& shape : layers) {
      assert(shape.head_dim % format.block_elems == 0);
      Layer layer;
      layer.shape = shape;
      layer.position_bytes = format.row_bytes(shape.head_dim);
      layer.head_bytes = (capacity * layer.position_bytes + kAlignment - 1) / kAlignment * kAlignment;
      const std::int64_t bytes = shape.kv_heads * layer.head_bytes;
      if (!layer.k.allocate(bytes) || !layer.v.allocate(bytes)) return cache_out_of_memory(capacity);
      cache->layers_.push_back(std::move(layer));
    }
    return cache;
  } catch (const std::bad_alloc&) {
    return cache_out_of_memory(capacity);
  }
}

void CpuKvCache::copy_rows(const KvCache& other, std::span<const Position> positions) {
  const auto& from = static_cast<const CpuKvCache&>(other);
  assert(from.capacity() == capacity() && from.type_ == type_ && from.layers_.size() == layers_.size());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer &to = layers_[l], &source = from.layers_[l];
    for (std::int64_t head = 0; head < to.shape.kv_heads; ++head)
      for (Position p : positions) {
        const std::int64_t at = head * to.head_bytes + p * to.position_bytes;
        std::memcpy(to.k.get() + at, source.k.get() + at, static_cast<std::size_t>(to.position_bytes));
        std::memcpy(to.v.get() + at, source.v.get() + at, static_cast<std::size_t>(to.position_bytes));
      }
  }
  std::vector<PlanRow> rows;
  for (Position p : positions) rows.push_back({p, from.token_of(p)});
  record(rows);
}

std::int64_t CpuKvCache::bytes() const {
  std::int64_t sum = 0;
  for (const Layer& layer : layers_) sum += 2 * layer.shape.kv_heads * layer.head_bytes;
  return sum;
}

void CpuKvCache::copy_bytes(const CpuKvCache& from, PositionRange rows, Position to) {
  assert(from.type_ == type_ && from.layers_.size() == layers_.size() && to + rows.size() <= capacity());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer &target = layers_[l], &source = from.layers_[l];
    const std::int64_t bytes = rows.size() * target.position_bytes;
    for (std::int64_t head = 0; head < target.shape.kv_heads; ++head) {
      const std::int64_t at = head * target.head_bytes + to * target.position_bytes;
      const std::int64_t of = head * source.head_bytes + rows.begin * source.position_bytes;
      std::memcpy(target.k.get() + at, source.k.get() + of, static_cast<std::size_t>(bytes));
      std::memcpy(target.v.get() + at, source.v.get() + of, static_cast<std::size_t>(bytes));
    }
  }
}

bool CpuKvCache::take(const KvCache& branch, std::span<const PositionRange> rows) {
  for (const PositionRange& range : rows) copy_bytes(static_cast<const CpuKvCache&>(branch), range, range.begin);
  return true;
}

void CpuKvCache::copy(const KvCache& from, PositionRange rows, Position to) {
  assert(from.parent() == nullptr);
  copy_bytes(static_cast<const CpuKvCache&>(from), rows, to);
  std::vector<PlanRow> written;
  for (Position p = rows.begin; p < rows.end; ++p) written.push_back({to + p - rows.begin, from.token_of(p)});
  record(written);
}

}  // namespace dllm::cpu
