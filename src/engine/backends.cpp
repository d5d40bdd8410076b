#include "engine/backends.h"

#include <fmt/format.h>

#include "base/nearest.h"
#include "base/try.h"
#include "engine/method.h"

namespace dllm {

BackendEntry cpu_backend();
BackendEntry npu_backend();

const std::vector<BackendEntry>& backends() {
  static const std::vector<BackendEntry> all = {cpu_backend(), npu_backend()};
  return all;
}

Expected<std::unique_ptr<PassRunner>> make_second_path(const RunningBackend& running, const ResolvedOptions& resolved,
                                                       const ModelDesc& desc) {
  const auto wanted = second_path_of(resolved, desc);
  if (!wanted) return std::unique_ptr<PassRunner>();
  if (!running.second_path)
    return Error{ErrorCode::kUnsupported, "this backend runs one pass at a time", "--refresh-path",
                 "leave the option out"};
  return running.second_path(wanted->refresh_threads);
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
