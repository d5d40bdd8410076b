#pragma once

#include <string>

#include "dllm/error.h"
#include "serve/json.h"

namespace dllm::serve {

// Fields of other servers' APIs that are no options here. A field that can change no word of an answer is ignored, and
// named in the header x-dllm-ignored; what would change it is an error, unless its value asks for nothing.

/// Whether the field is a hint: whatever its value, the words are the same.
bool is_hint(const std::string& field);

/// Whether a hint asks for something, so that ignoring it deserves a mention.
bool asks_for_something(const Json& value);

enum class Foreign {
  kUnknown,  ///< no such field
  kNeutral,  ///< the value asks for nothing
  kOther,    ///< another value, which would change the answer
};
Foreign foreign_value(const std::string& field, const Json& value);

/// The error for such a value, which names one that asks for nothing.
Error foreign_error(const std::string& field);

}  // namespace dllm::serve
