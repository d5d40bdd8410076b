#include "base/parse_text.h"

namespace dllm {

std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view yes : {"1", "true", "on", "enabled"})
    if (text == yes) return true;
  for (std::string_view no : {"0", "false", "off", "disabled"})
    if (text == no) return false;
  return std::nullopt;
}

}  // namespace dllm
