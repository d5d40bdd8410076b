#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/testing/temp_dir.h"

/// Helpers of the format tests: raw little-endian bytes, so that files are built without the tested code.
namespace dllm::test {

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

template <class T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

inline std::string u32(std::uint32_t value) { return raw(value); }
inline std::string u64(std::uint64_t value) { return raw(value); }
inline std::string text(std::string_view value) { return u64(value.size()) + std::string(value); }

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string fixture(const std::string& name) { return DLLM_SOURCE_DIR "/src/format/testdata/" + name; }

}  // namespace dllm::test
