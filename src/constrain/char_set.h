#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace dllm::constrain {

inline constexpr char32_t kLastChar = 0x10FFFF;

/// A set of Unicode scalar values (code points without surrogates).
class CharSet {
 public:
  struct Range {
    char32_t first = 0, last = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  CharSet() = default;
  /// first to last, both included; surrogates are left out.
  CharSet(char32_t first, char32_t last) { add(first, last); }
  static CharSet all() { return {0, kLastChar}; }

  void add(char32_t first, char32_t last);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet minus(const CharSet& other) const;
  CharSet common(const CharSet& other) const { return minus(other.complement()); }

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  const std::vector<Range>& ranges() const { return ranges_; }  ///< ascending, with gaps between them

 private:
  std::vector<Range> ranges_;
};

/// One range of bytes per byte of a UTF-8 sequence: any choice of bytes is a character.
using ByteRanges = std::vector<std::pair<std::uint8_t, std::uint8_t>>;

/// The UTF-8 encodings of the set's characters, as few sequences of byte ranges (Thompson's construction, as in RE2).
std::vector<ByteRanges> utf8_ranges(const CharSet& set);

}  // namespace dllm::constrain
