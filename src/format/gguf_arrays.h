#pragma once

#include <cstdint>
#include <string_view>

#include "dllm/error.h"
#include "format/byte_cursor.h"
#include "format/metadata.h"

namespace dllm {

/// Bytes of an element of a GGUF array, for strings the minimum; 0 if it is not an element type.
std::uint64_t element_bytes(MetaType type);

/// Passes over an array of arrays, whose element type the cursor has just passed. `name`: the key, for messages.
/// Errors: kInvalidFile, kUnsupported (an unknown type; too many levels).
Expected<void> skip_nested_array(ByteCursor& cursor, std::string_view name);

}  // namespace dllm
