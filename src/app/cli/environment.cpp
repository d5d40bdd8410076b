#include "app/cli/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "app/cli/verb.h"

namespace dllm::app {
namespace {

void add_twins(const std::vector<VerbEntry>& entries, std::vector<std::string>& twins) {
  for (const VerbEntry& entry : entries) {
    if (entry.group != nullptr) {
      add_twins(entry.group(), twins);
      continue;
    }
    const std::unique_ptr<Verb> verb = entry.make();
    const Flags flags = declared_flags(entry, *verb);
    for (const Flag& flag : flags.flags())
      for (const std::string& name : flag.environment_names()) twins.push_back(name);
  }
}

}  // namespace

std::vector<std::string> flag_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("DLLM_ARG_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

Expected<void> check_flag_variables(std::span<const std::string> names) {
  if (names.empty()) return {};
  std::vector<std::string> twins;
  add_twins(verbs(), twins);
  for (const std::string& name : names) {
    if (std::find(twins.begin(), twins.end(), name) != twins.end()) continue;
    const std::string near = nearest(name, twins);
    return Error{ErrorCode::kUsage, "no flag has this environment variable", name,
                 near.empty() ? "unset it; dllm VERB --help lists the known ones"
                              : fmt::format("did you mean {}? else unset it", near)};
  }
  return {};
}

}  // namespace dllm::app
