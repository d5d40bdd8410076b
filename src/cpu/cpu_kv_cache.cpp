#include "cpu/cpu_kv_cache.h"

#include <fmt/format.h>

#include <new>

namespace dllm::cpu {
namespace {

Error out_of_memory(Position capacity) {
  return {ErrorCode::kResource, fmt::format("no memory for a KV cache of {} positions", capacity), "",
          "lower the context length or use a 16-bit cache"};
}

}  // namespace

Expected<std::unique_ptr<CpuKvCache>> CpuKvCache::create(Position capacity, std::vector<std::int64_t> widths,
                                                         KvElement element) {
  if (capacity < 0) return out_of_memory(capacity);
  try {
    std::unique_ptr<CpuKvCache> cache(new CpuKvCache(capacity, std::move(widths), element));
    for (std::int64_t width : cache->widths_) {
      // calloc takes large blocks straight from the system: untouched zero pages.
      const auto zeros = [&] {
        return static_cast<std::byte*>(std::calloc(static_cast<std::size_t>(capacity) + 1,
                                                   static_cast<std::size_t>(width) * cache->element_bytes()));
      };
      Layer layer;
      layer.k.reset(zeros());
      layer.v.reset(zeros());
      if (!layer.k || !layer.v) return out_of_memory(capacity);
      cache->layers_.push_back(std::move(layer));
    }
    return cache;
  } catch (const std::bad_alloc&) {
    return out_of_memory(capacity);
  }
}

}  // namespace dllm::cpu
