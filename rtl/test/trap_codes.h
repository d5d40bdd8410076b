#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "dllm/error.h"

namespace dllm::rtl {

/// Values of rtl/traps.svh.
enum class TrapCode : std::uint8_t { kNone, kOpcode, kRow, kWord, kLength, kLoop, kOrder, kValue };

/// Why and where the functional machine trapped.
struct MachineTrap {
  TrapCode code = TrapCode::kNone;
  std::uint32_t index = 0;  ///< of the instruction
  bool was_issued = false;  ///< its observers saw the instruction: resolve() passed, and its function failed
};
/// nullopt: not a trap.
std::optional<MachineTrap> machine_trap(const Error& error);

}  // namespace dllm::rtl
