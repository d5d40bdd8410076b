#include "npu_core/device/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "base/try.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

constexpr double kMostInteger = 1e15;

template <class T>
constexpr bool is_required(const T&) {
  return std::is_same_v<T, RequiredKey>;
}

}  // namespace

// The sections' lists, this time as entries of the table.
#undef DLLM_INTEGER
#undef DLLM_NUMBER
#undef DLLM_TEXT
#define DLLM_QUOTED(name) #name
#define DLLM_NAME(name) DLLM_QUOTED(name)
#define DLLM_MEMBER(type, key) [](Device& d) -> type& { return d.DLLM_SECTION.key; }
#define DLLM_INTEGER(key, initial, low, high, unit, readers, ...)                                              \
  keys.push_back({DLLM_NAME(DLLM_SECTION), #key, DeviceKey::kInteger, DLLM_MEMBER(std::int64_t, key), nullptr, \
                  nullptr, is_required(initial), low, high, "", unit, readers, __VA_ARGS__});
#define DLLM_NUMBER(key, initial, low, high, unit, readers, ...)                                                 \
  keys.push_back({DLLM_NAME(DLLM_SECTION), #key, DeviceKey::kNumber, nullptr, DLLM_MEMBER(double, key), nullptr, \
                  is_required(initial), low, high, "", unit, readers, __VA_ARGS__});
#define DLLM_TEXT(key, initial, choices, readers, ...)                                                              \
  keys.push_back({DLLM_NAME(DLLM_SECTION), #key, DeviceKey::kText, nullptr, nullptr, DLLM_MEMBER(std::string, key), \
                  is_required(initial), 0, 0, choices, "", readers, __VA_ARGS__});

namespace {

std::vector<DeviceKey> make_keys() {
  using namespace reads;
  std::vector<DeviceKey> keys;
#define DLLM_SECTION array
#include "npu_core/device/keys/array.def"
#undef DLLM_SECTION
#define DLLM_SECTION clock
#include "npu_core/device/keys/clock.def"
#undef DLLM_SECTION
#define DLLM_SECTION issue
#include "npu_core/device/keys/issue.def"
#undef DLLM_SECTION
#define DLLM_SECTION sram
#include "npu_core/device/keys/sram.def"
#undef DLLM_SECTION
#define DLLM_SECTION memory
#include "npu_core/device/keys/memory.def"
#undef DLLM_SECTION
#define DLLM_SECTION prefetch
#include "npu_core/device/keys/prefetch.def"
#undef DLLM_SECTION
#define DLLM_SECTION latency
#include "npu_core/device/keys/latency.def"
#undef DLLM_SECTION
#define DLLM_SECTION numerics
#include "npu_core/device/keys/numerics.def"
#undef DLLM_SECTION
#define DLLM_SECTION host
#include "npu_core/device/keys/host.def"
#undef DLLM_SECTION
#define DLLM_SECTION window
#include "npu_core/device/keys/window.def"
#undef DLLM_SECTION
#define DLLM_SECTION thermal
#include "npu_core/device/keys/thermal.def"
#undef DLLM_SECTION
#define DLLM_SECTION energy
#include "npu_core/device/keys/energy.def"
#undef DLLM_SECTION
  return keys;
}

#undef DLLM_INTEGER
#undef DLLM_NUMBER
#undef DLLM_TEXT
#undef DLLM_MEMBER
#undef DLLM_NAME
#undef DLLM_QUOTED

}  // namespace

const std::vector<DeviceKey>& device_keys() {
  static const std::vector<DeviceKey> keys = make_keys();
  return keys;
}

const DeviceKey* find_device_key(std::string_view dotted) {
  static const std::unordered_map<std::string, const DeviceKey*> keys = [] {
    std::unordered_map<std::string, const DeviceKey*> all;
    for (const DeviceKey& key : device_keys()) all.emplace(key.dotted(), &key);
    return all;
  }();
  const auto found = keys.find(std::string(dotted));
  return found == keys.end() ? nullptr : found->second;
}

std::vector<std::string> device_key_names() {
  std::vector<std::string> names;
  for (const DeviceKey& key : device_keys()) names.push_back(key.dotted());
  return names;
}

std::string DeviceKey::dotted() const { return fmt::format("{}.{}", section, key); }

std::string DeviceKey::value(const Device& device) const {
  Device copy = device;  // the accessors return references
  switch (kind) {
    case kInteger:
      return fmt::format("{}", integer(copy));
    case kNumber:
      return fmt::format("{}", number(copy));
    case kText:
      return fmt::format("\"{}\"", text(copy));
  }
  return {};
}

bool DeviceKey::on(const Device& device) const {
  const std::string now = value(device);
  return now != "0" && now != "\"\"" && now != "\"none\"";
}

std::string DeviceKey::range() const {
  if (kind == kText) return std::string(choices);
  return maximum == kMostInteger ? fmt::format("at least {}", minimum) : fmt::format("{} to {}", minimum, maximum);
}

std::string DeviceKey::range_hint() const {
  return fmt::format("it must be between {} and {}{}{}", minimum, maximum, unit.empty() ? "" : " ", unit);
}

bool DeviceKey::in_range(const Device& device) const {
  Device copy = device;  // the accessors return references
  const double value = kind == kInteger ? static_cast<double>(integer(copy)) : number(copy);
  return value >= minimum && value <= maximum;
}

bool DeviceKey::accepts(std::string_view choice) const {
  if (choices.empty()) return true;
  const std::vector<std::string_view> known = split_words(choices, ", ");
  return std::ranges::find(known, choice) != known.end();
}

std::string_view derived_key_hint(std::string_view dotted) {
  constexpr std::pair<std::string_view, std::string_view> kDerived[] = {
      {"array.tile_cycles", "it is array.blen / array.macs_per_pe"},
      {"clock.voltage",
       "it follows from clock.ghz and the curve of clock.nominal_ghz, nominal_v, threshold_v and alpha"},
      {"clock.effort", "it follows from clock.ghz and clock.nominal_ghz"}};
  for (const auto& [key, hint] : kDerived)
    if (key == dotted) return hint;
  return "";
}

std::vector<std::string_view> DeviceKey::needed_keys() const { return split_words(needs); }

Expected<void> check_verb_reads(const DeviceKey& key, const VerbUse& use) {
  if (use.reads(key.dotted(), key.readers)) return {};
  return Error{ErrorCode::kUsage, fmt::format("'{}' is not read by dllm {}", key.dotted(), use.front()), "",
               fmt::format("it is read by {}", fmt::join(verbs_reading(key.dotted(), key.readers), ", "))};
}

Expected<void> check_needs(const DeviceKey& key, const Device& device) {
  const std::vector<std::string_view> needed = key.needed_keys();
  const auto on = [&device](std::string_view name) { return find_device_key(name)->on(device); };
  if (needed.empty() || std::ranges::any_of(needed, on)) return {};
  return Error{ErrorCode::kUsage,
               fmt::format("'{}' is not read while {} is {}", key.dotted(), fmt::join(needed, " and "),
                           find_device_key(needed.front())->value(device)),
               "", fmt::format("change {} too", needed.front())};
}

Expected<void> check_changes(const std::vector<Override>& changes, const Device& device, const VerbUse& use) {
  for (const Override& change : changes) {
    const DeviceKey* const key = find_device_key(change.key);
    if (key == nullptr) continue;  // name and summary; others are errors of the profile
    auto read = check_verb_reads(*key, use);
    if (read) read = check_needs(*key, device);
    if (read) continue;
    Error error = std::move(read).error();
    error.where = "--set " + change.key;
    return error;
  }
  return {};
}

Expected<void> check_ranges(const Device& device) {
  for (const DeviceKey& key : device_keys())
    if (key.kind != DeviceKey::kText && !key.in_range(device))
      return Error{ErrorCode::kInvalidFile, fmt::format("'{}' is {}", key.dotted(), key.value(device)),
                   "device " + device.name, key.range_hint()};
  return {};
}

}  // namespace dllm::npu
