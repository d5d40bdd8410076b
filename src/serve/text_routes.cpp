// Tokens and templates: /tokenize, /detokenize, /apply-template (fields of llama.cpp and vLLM), /tokenizer_info.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/try.h"
#include "serve/answer.h"
#include "serve/conversation.h"

namespace dllm::serve {
namespace {

/// A flag that the two APIs name differently.
Expected<bool> either_flag(Fields& fields, const char* ours, const char* theirs, bool otherwise) {
  DLLM_TRY(const bool first, fields.flag(ours, otherwise));
  return fields.flag(theirs, first);
}

/// A list of ids with their texts, written at once: as values of JSON, those of a body of 4 MB would take a gigabyte.
/// Null: the call is over before that.
std::optional<std::string> pieces(Call& call, const std::vector<std::int32_t>& ids) {
  constexpr std::size_t kBetweenLooks = 16384;
  const LanguageModel& model = call.served().model;
  std::unordered_map<std::int32_t, std::string> known;
  std::string list = "[";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i % kBetweenLooks == 0 && call.is_over()) return std::nullopt;
    std::string& one = known[ids[i]];
    if (one.empty()) {
      const auto text = model.detokenize({ids[i]}, /*special=*/true);
      one = fmt::format(R"({{"id":{},"piece":{}}})", ids[i], dump(Json(text.has_value() ? *text : "")));
    }
    if (i > 0) list += ',';
    list += one;
  }
  return list + "]";
}

}  // namespace

Expected<void> tokenize(const CallPtr& call) {
  const ServedModel& served = call->served();
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  DLLM_TRY(const auto content, fields.text("content"));
  DLLM_TRY(const auto prompt, fields.text("prompt"));
  DLLM_TRY(const bool bos, either_flag(fields, "add_special", "add_special_tokens", prompt.has_value()));
  DLLM_TRY(const bool special, fields.flag("parse_special", true));
  DLLM_TRY(const bool with_pieces, either_flag(fields, "with_pieces", "return_token_strs", false));
  const Json* list = fields.find("messages");
  DLLM_TRY(const Thinking thinking, read_thinking(fields, served));
  DLLM_CHECK_OK(fields.done());
  if (int{content.has_value()} + int{prompt.has_value()} + int{list != nullptr} != 1)
    return wrong_type("content", "given, or \"prompt\", or \"messages\"");
  std::vector<std::int32_t> ids;
  if (list != nullptr) {
    DLLM_TRY(ConversationPrompt rendered,
             render(served, {.system = "", .messages = *list, .images = false}, std::nullopt, thinking,
                    /*structured=*/false, call->ignored));
    ids = std::move(rendered.ids);
  } else if (bos) {
    DLLM_TRY(ids, served.model.prompt_ids(content.value_or(prompt.value_or("")), special));
  } else {
    DLLM_TRY(ids, served.model.tokenize(content.value_or(prompt.value_or("")), special));
  }
  const std::int64_t longest = served.model.context_length();
  if (!with_pieces) {
    call->reply({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", longest}});
  } else if (const auto texts = pieces(*call, ids)) {
    call->reply(HttpResponse{
        .body = fmt::format(R"({{"tokens":{},"count":{},"max_model_len":{}}})", *texts, ids.size(), longest)});
  }
  return {};
}

Expected<void> detokenize(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  const Json* list = fields.find("tokens");
  DLLM_CHECK_OK(fields.done());
  if (list == nullptr) return wrong_type("tokens", "given");
  DLLM_TRY(const auto ids, token_ids(*list, "tokens"));
  for (const std::int32_t id : ids)
    if (id >= call->served().model.vocab_size()) return wrong_type("tokens", "ids of the model's vocabulary");
  DLLM_TRY(const std::string text, call->served().model.detokenize(ids, /*special=*/true));
  call->reply({{"content", text}, {"prompt", text}});
  return {};
}

Expected<void> apply_template(const CallPtr& call) {
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  const Json* list = fields.find("messages");
  DLLM_TRY(const auto tools, read_tools(fields));
  DLLM_TRY(const Thinking thinking, read_thinking(fields, call->served()));
  DLLM_CHECK_OK(fields.done());
  if (list == nullptr) return wrong_type("messages", "given");
  DLLM_TRY(const ConversationPrompt rendered,
           render(call->served(), {.system = "", .messages = *list, .images = false}, tools, thinking,
                  /*structured=*/false, call->ignored));
  DLLM_TRY(const std::string text, call->served().model.detokenize(rendered.ids, /*special=*/true));
  call->reply({{"prompt", text}, {"tokens", rendered.ids}});
  return {};
}

Expected<void> tokenizer_info(const CallPtr& call) {
  const LanguageModel& model = call->served().model;
  const SpecialTokens tokens = model.special_tokens();
  const auto text = [&](const std::optional<std::int32_t>& id) -> Json {
    if (!id) return nullptr;
    const auto bytes = model.detokenize({*id}, /*special=*/true);
    return bytes ? Json(*bytes) : Json(nullptr);
  };
  Json json = {{"tokenizer_class", "dllm"},
               {"bos_token", text(tokens.bos)},
               {"eos_token", text(tokens.eos)},
               {"eot_token", text(tokens.eot)},
               {"pad_token", text(tokens.pad)},
               {"mask_token", text(tokens.mask)},
               {"add_bos_token", tokens.add_bos},
               {"vocab_size", model.vocab_size()},
               {"model_max_length", model.context_length()}};
  json["chat_template"] = model.has_chat_template() ? Json(model.chat_template()) : Json(nullptr);
  call->reply(json);
  return {};
}

}  // namespace dllm::serve
