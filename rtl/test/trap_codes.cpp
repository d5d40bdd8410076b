#include "test/trap_codes.h"

#include <charconv>

namespace dllm::rtl {

std::optional<MachineTrap> machine_trap(const Error& error) {
  constexpr std::string_view kTrap = "trap: ", kIndex = "(instruction ";
  const std::string_view what = error.what, where = error.where;
  const std::size_t at = where.find(kIndex);
  if (!what.starts_with(kTrap) || at == std::string_view::npos) return std::nullopt;
  MachineTrap trap;
  const char* digits = where.data() + at + kIndex.size();
  std::from_chars(digits, where.data() + where.size(), trap.index);
  const std::string_view rest = what.substr(kTrap.size());
  const auto has = [&](std::string_view text) { return rest.find(text) != std::string_view::npos; };
  if (rest.starts_with("VRAM address")) {
    trap.code = TrapCode::kRow;
  } else if (rest.starts_with("FP_MEM address") || rest.starts_with("INT_MEM address")) {
    trap.code = TrapCode::kWord;
  } else if (has("exceeds VLEN") || rest.starts_with("cannot select")) {
    trap.code = TrapCode::kLength;
  } else if (has("noise generators")) {
    trap.code = TrapCode::kOpcode;
  } else {
    trap.was_issued = true;
    trap.code = has("loops are open") ? TrapCode::kLoop : TrapCode::kValue;
  }
  return trap;
}

}  // namespace dllm::rtl
