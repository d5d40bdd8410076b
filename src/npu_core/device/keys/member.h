#pragma once

#include <cstdint>
#include <string>

namespace dllm::npu {

/// In the place of a default: a profile without a base must give the key.
struct RequiredKey {
  operator std::int64_t() const { return 0; }
  operator double() const { return 0; }
  operator std::string() const { return {}; }
};
inline constexpr RequiredKey kRequired;

}  // namespace dllm::npu

// Each section of a profile is a list of keys, keys/SECTION.def, and each key is declared there once:
//   DLLM_INTEGER(key, default, lowest, highest, unit, readers, meaning)
//   DLLM_NUMBER(key, default, lowest, highest, unit, readers, meaning)
//   DLLM_TEXT(key, default, choices, readers, meaning)       choices: "open, closed, timeout"; "": checked elsewhere
// A last argument may name other keys of which one must be on (not 0, "" or "none") for anything to read this one.
// These definitions make members of the lists, for the section's struct; keys.cpp makes the table from them.
#define DLLM_INTEGER(key, initial, ...) std::int64_t key = initial;
#define DLLM_NUMBER(key, initial, ...) double key = initial;
#define DLLM_TEXT(key, initial, ...) std::string key = initial;
