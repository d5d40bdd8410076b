#include "serve/context_edits.h"

#include <fmt/format.h>

#include <limits>

#include "base/try.h"

namespace dllm::serve {
namespace {

constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();
constexpr const char* kField = "context_management";

/// {"type": TYPE, "value": N}
Expected<std::int64_t> read_amount(const Json& value, std::string_view type, const std::string& where) {
  const Json named = value.is_object() ? value.value("type", Json()) : Json();
  const Json amount = value.is_object() ? value.value("value", Json()) : Json();
  if (named != type || !amount.is_number_unsigned() || amount.get<std::uint64_t>() > kMostTokens)
    return wrong_type(where, fmt::format("{{\"type\": \"{}\", \"value\": N}}", type));
  return amount.get<std::int64_t>();
}

Expected<void> read_edit(const Json& edit, const std::string& where, Ignored* ignored, ContextEdits& edits) {
  if (!edit.is_object()) return wrong_type(where, "an edit");
  Fields fields(edit, ignored, where);
  DLLM_TRY(const auto type, fields.text("type"));
  if (type == "clear_thinking_20251015") {
    const Json* keep = fields.find("keep");
    DLLM_CHECK_OK(fields.done());
    const bool all = keep != nullptr && (*keep == "all" || (keep->is_object() && keep->value("type", Json()) == "all"));
    if (all) return {};
    edits.kept_thoughts = 1;
    if (keep != nullptr) {
      DLLM_TRY(edits.kept_thoughts, read_amount(*keep, "thinking_turns", where + ".keep"));
    }
    return {};
  }
  const bool tools = type == "clear_tool_uses_20250919";
  if (!tools && type != "compact_20260112")
    return Error{ErrorCode::kUsage, "there is no such edit", where + ".type", "leave it out"};
  std::int64_t tokens = tools ? 100'000 : 150'000;  // as Anthropic documents them
  if (const Json* trigger = fields.find("trigger")) {
    DLLM_TRY(tokens, read_amount(*trigger, "input_tokens", where + ".trigger"));
  }
  // How the edit is made.
  for (const char* known :
       {"keep", "clear_at_least", "exclude_tools", "clear_tool_inputs", "instructions", "pause_after_compaction"})
    fields.find(known);
  DLLM_CHECK_OK(fields.done());
  edits.triggers.push_back({*type, tokens});
  return {};
}

}  // namespace

Expected<ContextEdits> read_context_edits(Fields& fields) {
  ContextEdits edits;
  const Json* value = fields.find(kField);
  if (value == nullptr) return edits;
  if (!value->is_object()) return wrong_type(kField, "an object");
  edits.given = true;
  Fields own(*value, fields.ignored(), kField);
  const Json* list = own.find("edits");
  DLLM_CHECK_OK(own.done());
  if (list == nullptr) return edits;
  const std::string where = std::string(kField) + ".edits";
  if (!list->is_array()) return wrong_type(where, "a list of edits");
  for (std::size_t i = 0; i < list->size(); ++i)
    DLLM_CHECK_OK(read_edit((*list)[i], fmt::format("{}[{}]", where, i), fields.ignored(), edits));
  return edits;
}

Expected<void> check_untriggered(const ContextEdits& edits, std::size_t prompt_tokens) {
  for (const ContextEdits::Trigger& one : edits.triggers)
    if (static_cast<std::int64_t>(prompt_tokens) > one.tokens)
      return Error{ErrorCode::kUsage,
                   fmt::format("the edit '{}' would be due: the prompt has {} tokens, more than {}", one.type,
                               prompt_tokens, one.tokens),
                   std::string(kField) + ".edits", "shorten the conversation, or raise the trigger"};
  return {};
}

}  // namespace dllm::serve
