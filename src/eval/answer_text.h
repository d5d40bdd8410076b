#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dllm {

std::string_view strip(std::string_view text);
std::string_view strip_end(std::string_view text);

/// The whole answer, white space at its end aside.
bool exact_match(std::string_view text, std::string_view answer);

/// lm-evaluation-harness' "flexible-extract": the last run of two or more of `$0-9.,` (a minus may stand in front) or
/// of one digit, without `$`, `,` and a full stop at the end. nullopt if there is none.
std::optional<std::string> last_number(std::string_view text);

/// Its "strict-match": what follows the first `#### `, of digits, commas and points. nullopt if there is none.
std::optional<std::string> marked_number(std::string_view text);

/// Text in front of the first of the stops.
std::string_view before(std::string_view text, const std::vector<std::string_view>& stops);

/// Inside of the first ``` block, whatever language it names; a block that is not closed ends with the text. nullopt
/// if there is no block.
std::optional<std::string> code_block(std::string_view text);

/// The option that occurs first in the text, case aside; of several that begin at one place the longest. -1: none.
int first_option(std::string_view text, const std::vector<std::string>& options);

}  // namespace dllm
