#pragma once

#include "backend/latency_table.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "engine/backends.h"

namespace dllm {

/// What the backend's clock has counted for an answer.
VirtualTime virtual_time(const RunningBackend& running, const Generation& answer);

/// Sets the clock of a backend that has one to zero.
void reset_clock(const RunningBackend& running);

/// The stairs of a backend with a clock: what a step of so many rows costs on its device. Errors: those of the timer.
Expected<LatencyTable> device_latency(const RunningBackend& running);

}  // namespace dllm
