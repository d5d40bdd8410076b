#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dllm::npu {

/// The models that read the keys of a device, as a set of bits. A key lists its own (keys/*.def), a verb those that it
/// uses (device_verbs()), so that a verb reads a key if they share one. tests/app/npu_keys_test.py changes every key
/// under every verb and checks that the result changes if, and only if, the key is declared as read.
using Readers = std::uint32_t;

namespace reads {
inline constexpr Readers kChecks = 1u << 31;  ///< of every verb: whether a profile is possible
inline constexpr Readers kMachine = 1 << 0;
inline constexpr Readers kLayout = 1 << 1;
inline constexpr Readers kProgram = 1 << 2;
inline constexpr Readers kListing = 1 << 3;
inline constexpr Readers kSimulator = 1 << 4;
inline constexpr Readers kDraws = 1 << 5;
inline constexpr Readers kCost = 1 << 6;
inline constexpr Readers kSchedule = 1 << 7;
inline constexpr Readers kLogits = 1 << 8;
inline constexpr Readers kEnergy = 1 << 9;
inline constexpr Readers kArea = 1 << 10;
inline constexpr Readers kMemory = 1 << 11;
inline constexpr Readers kWindow = 1 << 12;
inline constexpr Readers kHost = 1 << 13;
inline constexpr Readers kHeat = 1 << 14;
inline constexpr Readers kValues = 1 << 15;
inline constexpr Readers kDispatch = 1 << 16;
}  // namespace reads

/// One of those bits, for the documentation.
struct ReaderInfo {
  Readers bit;
  std::string_view name, meaning;
};
std::span<const ReaderInfo> reader_infos();

/// A command with a device, and the models that it uses.
struct DeviceVerb {
  std::string_view name;  ///< "npu step --analytic"
  Readers readers;
  std::string_view except = {};  ///< keys of those models that it does not reach: "latency.shift latency.vector_mul"
  bool extends = false;          ///< an option, whose row comes on top of that of its verb
};
std::span<const DeviceVerb> device_verbs();

/// What a command does: a row of device_verbs(), which messages name, and those of options. A later row decides about
/// the keys that it names or whose models it uses.
class VerbUse {
 public:
  /// Precondition: each is in the list.
  VerbUse(std::initializer_list<std::string_view> names) : names_(names) {}
  void add(std::string_view name) { names_.push_back(name); }
  std::string_view front() const { return names_.front(); }
  bool reads(std::string_view key, Readers readers) const;

 private:
  std::vector<std::string_view> names_;
};
/// Names of the verbs that read a key; options only where their verb does not.
std::vector<std::string> verbs_reading(std::string_view key, Readers readers);

/// "a b" to its words.
std::vector<std::string_view> split_words(std::string_view text, std::string_view separator = " ");

}  // namespace dllm::npu
