#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace dllm {

/// Bytes of a message: numbers as this machine stores them, lists with their length in front. All ranks of a group run
/// the same version on little-endian machines, so that no other form is needed.
class WireWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  WireWriter& put(T value) {
    const auto* const at = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), at, at + sizeof value);
    return *this;
  }
  WireWriter& put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    const auto* const at = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), at, at + text.size());
    return *this;
  }
  /// Calls each(element) after the list's length.
  template <class List, class Each>
  WireWriter& list(const List& values, const Each& each) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) each(value);
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what a WireWriter wrote. After bytes that are missing or cannot be, every read gives zeroes and sound() is
/// false.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  T get() {
    T value{};
    if (!sound_ || bytes_.size() < sizeof value) return sound_ = false, T{};
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = static_cast<std::uint8_t>(bytes_[0]);
      sound_ = byte <= 1;
      value = byte == 1;
    } else {
      std::memcpy(&value, bytes_.data(), sizeof value);
    }
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  template <class T>
  void get(T& value) {
    value = get<T>();
  }
  std::string text() {
    const auto size = get<std::uint32_t>();
    if (!sound_ || size > bytes_.size()) return sound_ = false, "";
    std::string value(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return value;
  }
  /// Calls read(element) for every element of a list, each of at least `least` bytes, so that a length which the
  /// message cannot hold takes no memory.
  template <class T, class Read>
  void list(std::vector<T>& values, std::size_t least, const Read& read) {
    const auto size = get<std::uint32_t>();
    if (!sound_ || size > bytes_.size() / least) return void(sound_ = false);
    values.resize(size);
    for (T& value : values) read(value);
  }
  void fail() { sound_ = false; }
  bool sound() const { return sound_; }
  bool ended() const { return sound_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool sound_ = true;
};

}  // namespace dllm
