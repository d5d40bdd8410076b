#include "npu_compiler/workload/workload.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm::npu {
Expected<void> check(const Workload& w) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (w.batch < 1 || w.block < 1 || w.context < 1 || w.steps < 1 || w.batch > kMost || w.context > kMost ||
      w.steps > kMost || w.batch * w.context > kMost)
    return Error{ErrorCode::kUsage,
                 fmt::format("batch {}, block {}, context {}, steps {}", w.batch, w.block, w.context, w.steps),
                 "workload", "each at least 1; batch x context at most 16777216"};
  if (w.block > w.context)
    return Error{ErrorCode::kUsage, fmt::format("a block of {} in a context of {}", w.block, w.context), "workload",
                 "the context counts all positions, the block included"};
  if (w.suffix >= 0 && w.cache != CacheKind::kPrefix)
    return Error{ErrorCode::kUsage, fmt::format("a suffix of {} with cache {}", w.suffix, cache_name(w.cache)),
                 "workload", "only a prefix cache runs the positions after the block again"};
  if (refine_rows(w) > w.context)
    return Error{
        ErrorCode::kUsage,
        fmt::format("a block of {} and {} positions after it in a context of {}", w.block, w.suffix, w.context),
        "workload", ""};
  return {};
}

StepSize warm_step(const Workload& w) { return {w.batch, w.context, w.context, w.block}; }
StepSize refine_step(const Workload& w) { return {w.batch, refine_rows(w), w.context, w.block}; }
StepShape warm_shape(const Workload& w) { return warm_step(w).shape(); }
StepShape refine_shape(const Workload& w) { return refine_step(w).shape(); }

std::int64_t usual_suffix(std::int64_t block, std::int64_t context) {
  return std::max<std::int64_t>(0, (context / 2 - block) / 2);
}

std::int64_t refine_rows(const Workload& w) {
  switch (w.cache) {
    case CacheKind::kNone:
      return w.context;
    case CacheKind::kPrefix:
      return w.block + (w.suffix < 0 ? usual_suffix(w.block, w.context) : w.suffix);
    case CacheKind::kDual:
      break;
  }
  return w.block;
}

std::string_view cache_name(CacheKind kind) {
  constexpr std::string_view kNames[] = {"none", "prefix", "dual"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<CacheKind> cache_from_name(std::string_view name) {
  for (const CacheKind kind : {CacheKind::kNone, CacheKind::kPrefix, CacheKind::kDual})
    if (name == cache_name(kind)) return kind;
  return std::nullopt;
}

}  // namespace dllm::npu
