#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "backend/kv_cache.h"
#include "dllm/error.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {

/// K (and V) of one position of a layer: `kv_heads` slices of `head_dim`.
struct KvShape {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

/// Zeroed memory aligned to a cache line, so that rows of 64 bytes and more do not straddle lines. Large blocks come
/// from the operating system as zero pages that cost nothing until they are written.
class ZeroPages {
 public:
  /// Allocates; false if there is not enough memory.
  bool allocate(std::int64_t bytes);
  std::byte* get() const { return data_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> block_;
  std::byte* data_ = nullptr;
};

/// K and V of each layer as [kv_head][position][head_dim], the last in rows of the cache's tensor type. Heads are
/// outermost because attention walks the positions of one head: a tile of 64 positions is then contiguous instead of 64
/// rows on as many pages. A large capacity costs nothing until it is used.
class CpuKvCache final : public KvCache {
 public:
  /// `type`: F32, F16, BF16, Q8_0 or Q4_0, the last two with every head_dim a multiple of 32. `plain_keys`: Q4_0 does
  /// not rotate blocks of K. Errors: kResource.
  static Expected<std::unique_ptr<CpuKvCache>> create(Position capacity, const std::vector<KvShape>& layers,
                                                      TensorType type, bool plain_keys = false);

  TensorType type() const { return type_; }
  bool plain_keys() const { return plain_keys_; }
  const KvShape& shape(std::int32_t layer) const { return at(layer).shape; }
  /// Bytes from one position of a head to the next.
  std::int64_t position_bytes(std::int32_t layer) const { return at(layer).position_bytes; }
  /// Position 0 of a head.
  std::byte* k(std::int32_t layer, std::int64_t kv_head) const {
    return at(layer).k.get() + kv_head * at(layer).head_bytes;
  }
  std::byte* v(std::int32_t layer, std::int64_t kv_head) const {
    return at(layer).v.get() + kv_head * at(layer).head_bytes;
  }

  using KvCache::record;
  void copy_rows(const KvCache& from, std::span<const Position> positions) override;
  std::int64_t bytes() const override;
  void copy(const KvCache& from, PositionRange rows, Position to) override;

 protected:
  bool take(const KvCache& branch, std::span<const PositionRange> rows) override;

 private:
  struct Layer {
    KvShape shape;
    std::int64_t position_bytes = 0;
    std::int64_t head_bytes = 0;
    ZeroPages k, v;
  };
  CpuKvCache(Position capacity, TensorType type, bool plain_keys)
      : KvCache(capacity), type_(type), plain_keys_(plain_keys) {}
  void copy_bytes(const CpuKvCache& from, PositionRange rows, Position to);
  const Layer& at(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }

  TensorType type_;
  bool plain_keys_;
  std::vector<Layer> layers_;
};

}  // namespace dllm::cpu
