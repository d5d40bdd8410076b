#include "decode/method_entry.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"

namespace dllm {
namespace {

char hyphen_for(char letter) { return letter == '_' ? '-' : letter; }

}  // namespace

const OptionInfo* MethodDeclaration::option(std::string_view key) const {
  for (const OptionInfo& one : info.options)
    if (one.key == key) return &one;
  return nullptr;
}

bool is_called(const MethodInfo& method, std::string_view name) {
  const auto same = [name](std::string_view own) {
    return std::ranges::equal(own, name, [](char a, char b) { return a == hyphen_for(b); });
  };
  return same(method.name) || std::ranges::any_of(method.aliases, same);
}

Error unknown_method(std::string_view name, const std::vector<std::string>& known) {
  std::string wanted(name);
  std::ranges::transform(wanted, wanted.begin(), hyphen_for);
  return {ErrorCode::kUsage, fmt::format("'{}' is unknown", wanted), "", choice_hint(wanted, known)};
}

}  // namespace dllm
