#include "constrain/char_set.h"

#include <algorithm>

namespace dllm::constrain {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

int utf8_size(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

/// The bytes of a character; `size`: utf8_size().
std::vector<std::uint8_t> utf8_bytes(char32_t c, int size) {
  constexpr std::uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  for (std::size_t i = bytes.size(); i-- > 1; c >>= 6) bytes[i] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
  bytes[0] = static_cast<std::uint8_t>(kLead[size == 1 ? 0 : size] | c);
  return bytes;
}

void split_range(char32_t first, char32_t last, std::vector<ByteRanges>& out) {
  for (const char32_t limit : {0x7F, 0x7FF, 0xFFFF})
    if (first <= limit && last > limit) {
      split_range(first, limit, out);
      split_range(limit + 1, last, out);
      return;
    }
  const int size = utf8_size(first);
  // Where the leading bits differ, the last bytes must be whole ranges 80 to BF.
  for (int i = 1; i < size; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      split_range(first, first | low, out);
      split_range((first | low) + 1, last, out);
      return;
    }
    if ((last & low) != low) {
      split_range(first, (last & ~low) - 1, out);
      split_range(last & ~low, last, out);
      return;
    }
  }
  const auto from = utf8_bytes(first, size), to = utf8_bytes(last, size);
  ByteRanges ranges;
  for (std::size_t i = 0; i < from.size(); ++i) ranges.emplace_back(from[i], to[i]);
  out.push_back(std::move(ranges));
}

}  // namespace

void CharSet::add(char32_t first, char32_t last) {
  last = std::min(last, kLastChar);
  if (first < kFirstSurrogate && last >= kFirstSurrogate) add(first, kFirstSurrogate - 1);
  if (first >= kFirstSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (first < kFirstSurrogate && last >= kFirstSurrogate) first = kLastSurrogate + 1;
  if (last >= kFirstSurrogate && last <= kLastSurrogate) return;
  if (first > last) return;
  auto from = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& one) { return one.last + 1 >= first; });
  auto to = from;
  for (; to != ranges_.end() && to->first <= last + 1; ++to) {
    first = std::min(first, to->first);
    last = std::max(last, to->last);
  }
  from = ranges_.erase(from, to);
  ranges_.insert(from, {first, last});
}

void CharSet::add(const CharSet& other) {
  for (const Range& one : other.ranges_) add(one.first, one.last);
}

CharSet CharSet::complement() const {
  CharSet result;
  char32_t next = 0;
  for (const Range& one : ranges_) {
    if (one.first > next) result.add(next, one.first - 1);
    next = one.last + 1;
  }
  if (next <= kLastChar) result.add(next, kLastChar);
  return result;
}

CharSet CharSet::minus(const CharSet& other) const {
  CharSet neither = complement();
  neither.add(other);
  return neither.complement();
}

bool CharSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [c](const Range& one) { return one.first <= c && c <= one.last; });
}

std::vector<ByteRanges> utf8_ranges(const CharSet& set) {
  std::vector<ByteRanges> result;
  for (const CharSet::Range& one : set.ranges()) split_range(one.first, one.last, result);
  return result;
}

}  // namespace dllm::constrain
