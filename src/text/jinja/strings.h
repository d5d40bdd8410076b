#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/marked_text.h"

/// Python's str, on UTF-8. Invalid bytes count as one character each and pass through unchanged.
namespace dllm::jinja {

std::size_t char_count(std::string_view text);
std::vector<std::string_view> chars(std::string_view text);

/// The part without leading and trailing white space, or without characters of `set` if it is not null.
std::string_view strip(std::string_view text, const std::string_view* set, bool left, bool right);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
/// str.title(): every run of letters begins with a capital.
std::string title(std::string_view text);
/// The filter: words begin after white space and - ( { [ <.
std::string title_filter(std::string_view text);

/// `count` < 0: all. The replacement keeps its own marks.
MarkedText replace(const MarkedText& text, std::string_view from, const MarkedText& to, long count);
/// Length of the result of replace(), to be charged in advance.
std::size_t replaced_size(std::string_view text, std::string_view from, std::string_view to, long count);

std::vector<std::string_view> split(std::string_view text, std::string_view separator, long limit);
std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator, long limit);
/// Splits at runs of white space, which are dropped.
std::vector<std::string_view> split_space(std::string_view text, long limit);
std::vector<std::string_view> split_lines(std::string_view text);

bool all_chars(std::string_view text, bool (*predicate)(char32_t));
bool is_letter(char32_t code);
bool is_decimal(char32_t code);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

}  // namespace dllm::jinja
