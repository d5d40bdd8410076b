#include "text/tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <tuple>
#include <vector>

#include "text/utf8.h"

namespace dllm {
namespace {

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

void append_decomposed(utf8proc_int32_t code, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> parts{};  // canonical decompositions have at most 4 characters
  int boundary = 0;
  const auto count = utf8proc_decompose_char(code, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
                                             UTF8PROC_DECOMPOSE, &boundary);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    out.push_back(code);
  } else {
    out.insert(out.end(), parts.begin(), parts.begin() + count);
  }
}

// utf8proc_map() orders combining marks by exchanging neighbours, which is quadratic for long runs; so the
// decomposition is ordered here and only the composition is left to the library. (Class, position) as the key keeps the
// order within a class; std::stable_sort would too, but clang rejects libstdc++ 12's as deprecated.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto is_starter = [](utf8proc_int32_t code) { return combining_class(code) == 0; };
  std::vector<std::tuple<int, std::size_t, utf8proc_int32_t>> marks;
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if_not(begin, codes.end(), is_starter);
    const auto end = std::find_if(begin, codes.end(), is_starter);
    marks.clear();
    for (auto mark = begin; mark != end; ++mark) marks.emplace_back(combining_class(*mark), marks.size(), *mark);
    std::sort(marks.begin(), marks.end());
    for (const auto& mark : marks) *begin++ = std::get<2>(mark);
  }
}

void append_nfc(std::string_view valid, std::string& out) {
  std::vector<utf8proc_int32_t> codes;
  for (std::size_t i = 0; i < valid.size();) {
    const Utf8Char c = utf8_at(valid, i);
    append_decomposed(static_cast<utf8proc_int32_t>(c.code), codes);
    i += c.size;
  }
  order_marks(codes);
  const auto count = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (count < 0) throw std::bad_alloc();  // the only possible failure for valid input
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
  }
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t valid = utf8_valid_run(text, i);
    append_nfc(text.substr(i, valid), out);
    i += valid;
    if (i < text.size()) out.push_back(text[i++]);
  }
  return out;
}

}  // namespace dllm
