#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "dllm/error.h"

namespace dllm::app {

/// Lists and ranges in llama-bench's notation: "1,2,8", "1-4" (every number), "8-64+8" (steps of 8), "1-256*2"
/// (doubling), and any of these separated by commas. Ranges end at the last member that is not above their end; order
/// and repetitions are kept. Errors: kUsage, with the word: not a number, outside [minimum, maximum], first above last,
/// a step of 0, a factor below 2, more than 10000 members.
Expected<std::vector<std::int32_t>> parse_number_list(const std::string& text, std::int32_t minimum,
                                                      std::int32_t maximum);

/// Setter of a flag.
Apply into_numbers(std::vector<std::int32_t>& target, std::int32_t minimum, std::int32_t maximum);

}  // namespace dllm::app
