#include "engine/backends.h"

#include <fmt/format.h>

#include <utility>

#include "base/nearest.h"
#include "base/try.h"
#include "engine/method.h"

namespace dllm {

BackendEntry cpu_backend();
BackendEntry npu_backend();

namespace {

std::vector<BackendEntry>& known_backends() {
  static std::vector<BackendEntry> all = {cpu_backend(), npu_backend()};
  return all;
}

}  // namespace

const std::vector<BackendEntry>& backends() { return known_backends(); }

bool add_backend(BackendEntry entry) {
  known_backends().push_back(std::move(entry));
  return true;
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
    known.push_back(entry.name);
    if (entry.name != name && !name.empty()) continue;
    if (entry.make != nullptr) return &entry;
    return Error{ErrorCode::kUnsupported, fmt::format("this build has no backend '{}'", entry.name), "--backend",
                 entry.missing};
  }
  return Error{ErrorCode::kUsage, fmt::format("'{}' is unknown", name), "--backend", choice_hint(name, known)};
}

std::string virtual_time_hint() {
  std::string hint;
  for (const BackendEntry& entry : backends())
    if (entry.virtual_time) hint += (hint.empty() ? "add --backend " : " or --backend ") + entry.name;
  return hint;
}

}  // namespace dllm
