#include "engine/backends.h"

#include <fmt/format.h>

#include <utility>

#include "base/nearest.h"
#include "base/try.h"

namespace dllm {

std::deque<BackendEntry> built_backends();  // backend/built.cpp

namespace {

std::deque<BackendEntry>& known_backends() {
  static std::deque<BackendEntry> all = built_backends();
  return all;
}

bool knows_device(const BackendEntry& entry, const std::string& name) {
  return entry.devices.check != nullptr && entry.devices.check(name).has_value();
}

/// A name that only another backend knows is most likely meant for that one.
Expected<void> check_device(const BackendEntry& entry, const std::string& name) {
  if (name.empty() || entry.devices.check == nullptr) return {};
  auto known = entry.devices.check(name);
  if (known) return {};
  Error error = std::move(known).error();
  error.where = "--device";
  for (const BackendEntry& other : backends()) {
    if (&other == &entry || !knows_device(other, name)) continue;
    error.what = fmt::format("'{}' is {}, of --backend {}; --backend {} runs on {}", name, other.devices.kind,
                             other.name, entry.name, entry.devices.kind);
    error.hint = fmt::format("give --backend {}, or see --backend {} --list-devices", other.name, entry.name);
    return error;
  }
  error.hint +=
      fmt::format("{}--backend {} runs on {}", error.hint.empty() ? "" : "; ", entry.name, entry.devices.kind);
  return error;
}

/// What the backend has here, or why it has nothing.
std::vector<DeviceInfo> devices_of(const BackendEntry& entry) {
  if (entry.make == nullptr)
    return {{.backend = entry.name, .missing = fmt::format("not in this build: {}", entry.missing)}};
  if (entry.devices.list == nullptr) return {{.backend = entry.name, .meaning = entry.meaning, .standard = true}};
  auto list = entry.devices.list();
  if (!list) return {{.backend = entry.name, .missing = list.error().message()}};
  for (DeviceInfo& one : *list) one.backend = entry.name;
  return *std::move(list);
}

}  // namespace

const std::deque<BackendEntry>& backends() { return known_backends(); }

bool add_backend(BackendEntry entry) {
  known_backends().push_back(std::move(entry));
  return true;
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

Expected<const BackendEntry*> requested_backend(const LoadOptions& options) {
  std::string name = options.backend;
  if (name.empty())
    for (const BackendEntry& one : backends())
      if (!one.implied_by.empty() && options.backend_options.contains(one.implied_by)) name = one.name;
  DLLM_TRY(const BackendEntry* const entry, find_backend(name));
  DLLM_CHECK_OK(check_device(*entry, options.device));
  return entry;
}

std::string backend_flags(const std::function<bool(const BackendEntry&)>& holds) {
  std::string flags;
  for (const BackendEntry& entry : backends())
    if (holds(entry)) flags += (flags.empty() ? "--backend " : " or --backend ") + entry.name;
  return flags;
}

std::string virtual_time_flags() {
  return backend_flags([](const BackendEntry& entry) { return entry.virtual_time; });
}

Expected<std::vector<DeviceInfo>> list_devices(const std::string& backend) {
  if (!backend.empty()) {
    for (const BackendEntry& entry : backends())
      if (entry.name == backend) return devices_of(entry);
    return find_backend(backend).error();
  }
  std::vector<DeviceInfo> all;
  for (const BackendEntry& entry : backends())
    for (DeviceInfo& one : devices_of(entry)) all.push_back(std::move(one));
  return all;
}

}  // namespace dllm
