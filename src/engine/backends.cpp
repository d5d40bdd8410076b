#include "engine/backends.h"

#include <fmt/format.h>

#include "base/nearest.h"

namespace dllm {

BackendEntry cpu_backend();
BackendEntry npu_backend();

const std::vector<BackendEntry>& backends() {
  static const std::vector<BackendEntry> all = {cpu_backend(), npu_backend()};
  return all;
}

Expected<const BackendEntry*> find_backend(const std::string& name) {
  std::vector<std::string> known;
  for (const BackendEntry& entry : backends()) {
    if (entry.name == name || name.empty()) return &entry;
    known.push_back(entry.name);
  }
  return Error{ErrorCode::kUsage, fmt::format("'{}' is unknown", name), "--backend", choice_hint(name, known)};
}

}  // namespace dllm
