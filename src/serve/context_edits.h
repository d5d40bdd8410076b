#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/json.h"

namespace dllm::serve {

/// Anthropic's `context_management`: what is removed from a conversation before the model reads it.
struct ContextEdits {
  bool given = false;
  std::optional<std::int64_t> kept_thoughts{};  ///< answers that keep their thoughts; absent: all
  /// Edits of long conversations, which are not made here.
  struct Trigger {
    std::string type;
    std::int64_t tokens = 0;  ///< of a prompt that is not edited yet
  };
  std::vector<Trigger> triggers{};
};

/// Errors: kUsage (malformed, unknown edits, triggers that count other things than tokens).
Expected<ContextEdits> read_context_edits(Fields& fields);

/// An error if an edit that is not made here would be due.
Expected<void> check_untriggered(const ContextEdits& edits, std::size_t prompt_tokens);

}  // namespace dllm::serve
