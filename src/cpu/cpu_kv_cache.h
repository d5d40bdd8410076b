#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "backend/kv_cache.h"
#include "dllm/error.h"

namespace dllm::cpu {

/// Storage of K/V elements.
enum class KvElement { kF32, kF16 };

/// Per layer K and V as [position][kv_heads * head_dim]. The memory comes from the operating system as zero pages that
/// cost nothing until a row is written, so a generous capacity is free.
class CpuKvCache final : public KvCache {
 public:
  /// `widths[layer]` = kv_heads * head_dim. Errors: kResource.
  static Expected<std::unique_ptr<CpuKvCache>> create(Position capacity, std::vector<std::int64_t> widths,
                                                      KvElement element);

  KvElement element() const { return element_; }
  std::int64_t width(std::int32_t layer) const { return widths_[static_cast<std::size_t>(layer)]; }
  std::size_t element_bytes() const { return element_ == KvElement::kF32 ? 4 : 2; }
  /// Position 0 of the layer.
  std::byte* k(std::int32_t layer) { return layers_[static_cast<std::size_t>(layer)].k.get(); }
  std::byte* v(std::int32_t layer) { return layers_[static_cast<std::size_t>(layer)].v.get(); }

  using KvCache::record;

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  struct Layer {
    std::unique_ptr<std::byte, Free> k, v;
  };
  CpuKvCache(Position capacity, std::vector<std::int64_t> widths, KvElement element)
      : KvCache(capacity), element_(element), widths_(std::move(widths)) {}

  KvElement element_;
  std::vector<std::int64_t> widths_;
  std::vector<Layer> layers_;
};

}  // namespace dllm::cpu
