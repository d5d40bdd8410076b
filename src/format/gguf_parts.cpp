#include <fmt/format.h>

#include "format/gguf.h"

namespace dllm {

std::vector<std::string> gguf_parts(const std::string& path) {
  static const std::string kFirst = "-00001-of-", kEnd = ".gguf";
  constexpr std::size_t kDigits = 5;
  const std::size_t tail = kFirst.size() + kDigits + kEnd.size();
  if (path.size() < tail) return {path};
  const std::string stem = path.substr(0, path.size() - tail);
  const std::string digits = path.substr(stem.size() + kFirst.size(), kDigits);
  if (path != stem + kFirst + digits + kEnd || digits.find_first_not_of("0123456789") != std::string::npos)
    return {path};
  std::vector<std::string> parts;
  for (int i = 1; i <= std::stoi(digits); ++i) parts.push_back(fmt::format("{}-{:05}-of-{}{}", stem, i, digits, kEnd));
  return parts.empty() ? std::vector{path} : parts;
}

}  // namespace dllm
