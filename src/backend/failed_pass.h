#pragma once

#include <span>

#include "backend/backend.h"

namespace dllm {

/// Invalidates every row that the batch's plans write, in its step's cache and in branches of the batch that show it.
/// Every backend calls this when a pass fails, whatever the reason: some layers then hold the new rows and others the
/// old ones. A branch's record already said that its parent's rows had been written (KvCache::follow()).
void invalidate_rows(std::span<const SequenceStep> batch) noexcept;

}  // namespace dllm
