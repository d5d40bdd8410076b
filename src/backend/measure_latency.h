#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "backend/backend.h"
#include "backend/latency_table.h"
#include "dllm/error.h"

namespace dllm {

struct LatencyOptions {
  std::int32_t max_rows = 128;      ///< largest step measured; the powers of two up to it are
  Position max_context = 512;       ///< where the cost of context is measured
  std::int32_t repetitions = 3;     ///< of each step at most; the fastest counts, as a busy machine only adds time
  double budget_seconds = 15;       ///< no measurement begins that would pass it, but for one row
  std::function<double()> clock{};  ///< seconds; empty: the steady clock
  std::stop_token stop{};
};

/// Times steps of the backend on a cache of its own. Larger steps are left out where the budget ends, and so is the
/// cost of context (then 0). Errors: kResource, kCancelled.
Expected<LatencyTable> measure_latency(Backend& backend, const LatencyOptions& options = {});

}  // namespace dllm
