#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "dllm/error.h"

namespace dllm {

struct LatencyOptions {
  std::int32_t max_rows = 128;      ///< the largest step; powers of two up to it are measured
  Position max_context = 512;       ///< where the cost of context is measured
  std::int32_t repetitions = 3;     ///< per step at most; the fastest counts, because a busy machine only adds time
  double budget_seconds = 15;       ///< no measurement starts that would exceed it, except of one row
  std::function<double()> clock{};  ///< seconds; empty: the steady clock
  std::stop_token stop{};
};

/// Times steps of the backend on its own cache. Larger steps are left out when the budget ends, as is the cost of
/// context (then 0). Errors: kResource, kCancelled.
Expected<LatencyTable> measure_latency(Backend& backend, const LatencyOptions& options = {});

}  // namespace dllm
