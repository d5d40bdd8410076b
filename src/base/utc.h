#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dllm {

/// "2026-11-25T09:36:24Z" (RFC 3339). `seconds`: since 1970.
std::string utc_text(std::int64_t seconds);
/// The same with three digits of milliseconds.
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace dllm
