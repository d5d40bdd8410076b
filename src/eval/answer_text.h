#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dllm {

std::string_view strip(std::string_view text);
std::string_view strip_end(std::string_view text);

/// The whole answer without trailing white space.
bool exact_match(std::string_view text, std::string_view answer);

/// lm-evaluation-harness' "flexible-extract": the last run of two or more of `$0-9.,` (optionally after a minus) or of
/// one digit, without `$`, `,` and a trailing full stop. nullopt if there is none.
std::optional<std::string> last_number(std::string_view text);

/// Its "strict-match": the digits, commas and points after the first `#### `. nullopt if there is none.
std::optional<std::string> marked_number(std::string_view text);

/// The text before the first of the stops.
std::string_view before(std::string_view text, const std::vector<std::string_view>& stops);

/// Content of the first ``` block, whatever its language; an unclosed block ends with the text. nullopt if there is no
/// block.
std::optional<std::string> code_block(std::string_view text);

/// The option that occurs first in the text, ignoring case; of several at the same place the longest. -1: none.
int first_option(std::string_view text, const std::vector<std::string>& options);

}  // namespace dllm
