#include "base/human_bytes.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace dllm {

std::string human_bytes(double bytes) {
  constexpr std::array<std::string_view, 5> units = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[unit]);
}

}  // namespace dllm
