#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/marked_text.h"

/// Python's str, on UTF-8. Invalid bytes count as one character each and pass through unchanged. What is made from a
/// byte gets its mark: content stays content whatever is done to it, and markup stays markup.
namespace dllm::jinja {

std::size_t char_count(std::string_view text);
std::vector<std::string_view> chars(std::string_view text);
/// The character at `index` < char_count().
std::string_view char_at(std::string_view text, std::size_t index);

/// Offset of the first or last occurrence. Linear in the length of both, whatever they contain.
std::optional<std::size_t> find_first(std::string_view text, std::string_view part, std::size_t from = 0);
std::optional<std::size_t> find_last(std::string_view text, std::string_view part);

/// The part without leading and trailing white space, or without characters of `set` if it is not null.
std::string_view strip(std::string_view text, const std::string_view* set, bool left, bool right);

MarkedText upper(const MarkedText& text);
MarkedText lower(const MarkedText& text);
MarkedText swap_case(const MarkedText& text);
MarkedText capitalize(const MarkedText& text);
/// str.title(): every run of letters begins with a capital.
MarkedText title(const MarkedText& text);
/// The filter: words begin after white space and - ( { [ <.
MarkedText title_filter(const MarkedText& text);
/// The characters in reverse order.
MarkedText reversed(const MarkedText& text);
/// & < > ' " as entities of HTML.
MarkedText escape_html(const MarkedText& text);
/// Spaces around the text, up to `width` characters; `left` and `right`: on which sides.
MarkedText padded(const MarkedText& text, std::size_t width, bool left, bool right);

/// `count` < 0: all. The replacement keeps its own marks.
MarkedText replace(const MarkedText& text, std::string_view from, const MarkedText& to, long count);
/// Length of the result of replace(), to be charged in advance.
std::size_t replaced_size(std::string_view text, std::string_view from, std::string_view to, long count);

/// `limit` < 0: no limit.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, long limit);
std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator, long limit);
/// Splits at runs of white space, which are dropped.
std::vector<std::string_view> split_space(std::string_view text, long limit);
std::vector<std::string_view> rsplit_space(std::string_view text, long limit);
/// `keep`: the lines have their ends.
std::vector<std::string_view> split_lines(std::string_view text, bool keep = false);

bool all_chars(std::string_view text, bool (*predicate)(char32_t));
bool is_letter(char32_t code);
bool is_decimal(char32_t code);
bool is_numeric(char32_t code);
/// str.isupper(), str.islower(): all cased characters are, and there is one.
bool is_upper_text(std::string_view text);
bool is_lower_text(std::string_view text);

}  // namespace dllm::jinja
