#include "format/strict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace dllm {

Expected<nlohmann::json> parse_strict_json(std::span<const std::byte> text, std::string_view file,
                                           std::size_t first_byte, JsonNumbers numbers) {
  return read_json<nlohmann::json>({reinterpret_cast<const char*>(text.data()), text.size()},
                                   {.depth = 16,
                                    .name = fmt::format("{}, offset {:#x}", file, first_byte),
                                    .hint = "the file is damaged: fetch it again",
                                    .python_numbers = numbers == JsonNumbers::kPython});
}

}  // namespace dllm
