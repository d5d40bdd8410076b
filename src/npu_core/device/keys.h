#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/device/override.h"
#include "npu_core/device/readers.h"

namespace dllm::npu {

struct Device;

/// One key of a profile, as its section declares it (keys/*.def).
struct DeviceKey {
  std::string_view section, key;
  enum Kind { kInteger, kNumber, kText } kind;
  std::int64_t& (*integer)(Device&);
  double& (*number)(Device&);
  std::string& (*text)(Device&);
  bool required;             ///< without a base, a profile must give it; others have the default that a Device{} has
  double minimum, maximum;   ///< of numbers
  std::string_view choices;  ///< of texts: "open, closed, timeout"; empty: checked by what reads it
  std::string_view unit;
  Readers readers;
  std::string_view meaning;
  std::string_view needs =
      {};  ///< "host.batch_us": nothing reads this key while none of these is on; empty: always read

  std::vector<std::string_view> needed_keys() const;

  std::string dotted() const;  ///< "array.blen"
  /// The value as TOML writes it: 4, 2.5, "open".
  std::string value(const Device& device) const;
  /// Not 0, "" or "none".
  bool on(const Device& device) const;
  /// "1 to 8", "open, closed, timeout"; empty: any.
  std::string range() const;
  std::string range_hint() const;               ///< "it must be between 1 and 8"
  bool in_range(const Device& device) const;    ///< of numbers
  bool accepts(std::string_view choice) const;  ///< of texts
};
/// In the order of sections.
const std::vector<DeviceKey>& device_keys();
/// By "array.blen"; nullptr for others.
const DeviceKey* find_device_key(std::string_view dotted);
/// All of them, dotted.
std::vector<std::string> device_key_names();

/// Why a derived key such as "array.tile_cycles" cannot be set, and what to set instead; empty for other
/// keys.
std::string_view derived_key_hint(std::string_view dotted);

/// That a verb reads the key. Errors: kUsage, with the verbs that do.
Expected<void> check_verb_reads(const DeviceKey& key, const VerbUse& use);
/// That something reads the key on this device. Errors: kUsage while what it needs is off.
Expected<void> check_needs(const DeviceKey& key, const Device& device);
/// Both, for a user's changes, which `device` has. Errors: `where` is "--set KEY".
Expected<void> check_changes(const std::vector<Override>& changes, const Device& device, const VerbUse& use);
/// Values outside their ranges. Errors: kInvalidFile, naming the key.
Expected<void> check_ranges(const Device& device);

/// docs/guide/device-keys.md.
std::string device_keys_markdown();
/// The same as data, with every verb's keys.
nlohmann::ordered_json device_keys_json();

}  // namespace dllm::npu
