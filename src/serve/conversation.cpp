#include "serve/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "serve/foreign_fields.h"
#include "serve/images.h"

namespace dllm::serve {
namespace {

constexpr const char* kThoughts = "reasoning_content";  ///< the name that read_message() gives to thoughts

Expected<Json> read_call(const Json& call, const std::string& where, Ignored* ignored) {
  if (!call.is_object()) return wrong_type(where, "a tool call");
  Fields fields(call, ignored);
  DLLM_TRY(const auto id, fields.text("id"));
  DLLM_TRY(const auto type, fields.text("type"));
  const Json* function = fields.find("function");
  // A place among the calls of a stream; what gateways add.
  for (const char* known : {"index", "cache_control", "provider_specific_fields", "extra_content"}) fields.find(known);
  DLLM_CHECK_OK(fields.done());
  if (type.value_or("function") != "function" || function == nullptr || !function->is_object())
    return wrong_type(where, "a call of type \"function\"");
  Fields inner(*function);
  DLLM_TRY(const auto name, inner.text("name"));
  const Json* arguments = inner.find("arguments");
  inner.find("index");
  DLLM_CHECK_OK(inner.done());
  if (!name) return wrong_type(where, "a call with a name");
  Json values = Json::object();
  if (arguments != nullptr && arguments->is_object()) values = *arguments;
  // Templates write arguments as JSON themselves, but OpenAI sends them as a string of JSON.
  if (arguments != nullptr && arguments->is_string()) {
    auto parsed = parse_body(arguments->get_ref<const std::string&>());
    if (!parsed) return wrong_type(where, "a call whose arguments are a JSON object");
    values = *std::move(parsed);
  }
  return Json{{"id", id.value_or("")}, {"type", "function"}, {"function", {{"name", *name}, {"arguments", values}}}};
}

/// The text of a part that holds thoughts; nullopt: it is another part.
Expected<std::optional<std::string>> thought_part(const Json& part, const std::string& type, const std::string& where) {
  const auto text = [&](const char* key) { return part.value(key, Json()); };
  if (type == "thinking") {
    // Mistral's part has a list of texts.
    if (text("thinking").is_array()) {
      DLLM_TRY(std::string joined, content_text(text("thinking"), where + ".thinking", nullptr));
      return std::optional(std::move(joined));
    }
    if (!text("thinking").is_string()) return wrong_type(where, "a thinking block with a \"thinking\"");
    const Json signature = text("signature");
    if (!signature.is_string() && !signature.is_null()) return wrong_type(where + ".signature", "a text");
    const auto sealed = signature.is_string() ? unsealed_thoughts(signature.get<std::string>()) : std::nullopt;
    const auto thoughts = text("thinking").get<std::string>();
    return std::optional(thoughts.empty() && sealed ? *sealed : thoughts);
  }
  if (type == "redacted_thinking") {  // what another server keeps from us is dropped
    if (!text("data").is_string()) return wrong_type(where, "a redacted_thinking block with \"data\"");
    return std::optional(unsealed_thoughts(text("data").get<std::string>()).value_or(""));
  }
  if (type == "reasoning" || type == "reasoning_text") {
    if (!text("text").is_string()) return wrong_type(where, "a part with a \"text\"");
    return std::optional(text("text").get<std::string>());
  }
  return std::optional<std::string>();
}

/// Thoughts of an earlier answer, under the names that other servers give them.
Expected<std::string> read_thoughts(Fields& fields, const std::string& where) {
  std::string thoughts;
  for (const char* key : {kThoughts, "reasoning", "thinking"}) {
    DLLM_TRY(const auto text, fields.text(key));
    if (text && thoughts.empty()) thoughts = *text;  // the same, under two names
  }
  if (const Json* blocks = fields.find("thinking_blocks")) {
    std::string of_blocks;
    if (blocks->is_array())
      for (const Json& block : *blocks) {
        const Json type = block.is_object() ? block.value("type", Json()) : Json();
        if (!type.is_string()) return wrong_type(where + ".thinking_blocks", "a list of thinking blocks");
        DLLM_TRY(const auto one, thought_part(block, type.get<std::string>(), where + ".thinking_blocks"));
        add_thoughts(of_blocks, one.value_or(""));
      }
    if (thoughts.empty()) thoughts = of_blocks;
  }
  fields.ignore("reasoning_details");
  return thoughts;
}

Error in_message(Error error, const std::string& where) {
  error.where = where + "." + error.where;
  return error;
}

Expected<Json> read_calls(const Json& calls, const std::string& where, Ignored* ignored) {
  Json list = Json::array();
  for (const Json& call : calls) {
    DLLM_TRY(Json one, read_call(call, where + ".tool_calls", ignored));
    list.push_back(std::move(one));
  }
  return list;
}

/// What reading messages collects, and needs.
struct MessageReading {
  const ServedModel& served;
  Ignored* ignored;
  bool takes_images;
  std::vector<std::string> images{};  ///< bytes of image files, in their order
  Json shown = Json::array();         ///< image parts of results since the last other message
};

/// A result's text: templates take no parts there. Its images wait in `shown`.
Json text_of_result(const Json& parts, Json& shown) {
  std::string text;
  for (const Json& part : parts) {
    if (part["type"] == "image")
      shown.push_back(part);
    else
      text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// Puts what tools have shown before the user's next words, or without such into a message of the user's: behind the
/// results, which templates want next to each other.
void place_shown(Json& shown, Json* next, Json& list) {
  if (shown.empty()) return;
  Json parts = std::exchange(shown, Json::array());
  if (next == nullptr || (*next)["role"] != "user") {
    list.push_back({{"role", "user"}, {"content", std::move(parts)}});
    return;
  }
  Json& content = (*next)["content"];
  if (content.is_array())
    parts.insert(parts.end(), content.begin(), content.end());
  else
    parts.push_back({{"type", "text"}, {"text", content}});
  content = std::move(parts);
}

Expected<Json> read_message(const Json& message, const std::string& where, MessageReading& reading) {
  Ignored* const ignored = reading.ignored;
  if (!message.is_object()) return wrong_type(where, "a message");
  Fields fields(message, ignored);
  DLLM_TRY(const auto role, fields.text("role"));
  if (!role) return wrong_type(where, "a message with a \"role\"");
  const Json *content = fields.find("content"), *calls = fields.find("tool_calls");
  DLLM_TRY(const auto id, fields.text("tool_call_id"));
  DLLM_TRY(const auto name, fields.text("name"));
  DLLM_TRY(std::string thoughts, read_thoughts(fields, where));
  // Of answers, as they were sent.
  for (const char* known : {"type", "id", "status", "refusal", "annotations", "phase"}) fields.find(known);
  // What clients keep with a message, which no template reads.
  for (const char* unread : {"cache_control", "provider_specific_fields", "extra_content", "created", "created_at",
                             "timestamp", "metadata", "index", "finish_reason"})
    fields.ignore(unread);
  for (const char* empty : {"function_call", "audio", "images", "prefix", "partial"})
    if (const Json* value = fields.find(empty); value != nullptr && asks_for_something(*value))
      return Error{ErrorCode::kUsage, fmt::format("'{}' is not supported", empty), where, ""};
  if (auto done = fields.done(); !done) return in_message(std::move(done).error(), where);
  Json result = {{"role", *role == "developer" ? "system" : *role}};
  const std::string& known = result["role"].get_ref<const std::string&>();
  if (known != "system" && known != "user" && known != "assistant" && known != "tool")
    return Error{ErrorCode::kUsage, fmt::format("the role '{}' is not supported", known), where,
                 "system, developer, user, assistant or tool"};
  const bool answer = known == "assistant";
  const bool called = calls != nullptr && !calls->empty();
  if (content == nullptr && !called && (!answer || thoughts.empty()))
    return wrong_type(where, "a message with a \"content\"");
  if (content != nullptr && (known == "user" || known == "tool") && has_images(*content)) {
    if (!reading.takes_images)
      return Error{ErrorCode::kUsage, "this route reads text only", where + ".content", "leave the images out"};
    DLLM_TRY(Json parts, parts_with_images(reading.served, *content, where + ".content", ignored, reading.images));
    result["content"] = known == "tool" ? text_of_result(parts, reading.shown) : std::move(parts);
  } else if (content != nullptr) {
    DLLM_TRY(result["content"], content_text(*content, where + ".content", ignored, answer ? &thoughts : nullptr));
  } else if (!called) {
    result["content"] = "";  // a cut answer: thoughts only
  } else if (message.contains("content")) {
    result["content"] = nullptr;  // as sent: templates distinguish none from an empty text
  }
  if (answer && !thoughts.empty()) result[kThoughts] = std::move(thoughts);
  if (id) result["tool_call_id"] = *id;
  if (name) result["name"] = *name;
  if (calls == nullptr || (calls->is_array() && calls->empty())) return result;
  if (!calls->is_array() || !answer) return wrong_type(where + ".tool_calls", "an assistant's list of calls");
  DLLM_TRY(result["tool_calls"], read_calls(*calls, where, ignored));
  return result;
}

/// Whether the conversation contains tool calls or results, which plain turns cannot express.
bool has_tool_turns(const Json& messages) {
  return std::ranges::any_of(
      messages, [](const Json& message) { return message.contains("tool_calls") || message["role"] == "tool"; });
}

/// Gives every message a text as content; whether one had none.
bool fill_contents(Json& messages) {
  bool filled = false;
  for (Json& message : messages) {
    Json& content = message["content"];
    if (!content.is_null()) continue;
    content = "";
    filled = true;
  }
  return filled;
}

/// Gives thoughts the names that the template reads; whether there are some.
bool name_thoughts(Json& messages, const TemplateFacts& facts) {
  bool found = false;
  for (Json& message : messages) {
    const auto thoughts = message.find(kThoughts);
    if (thoughts == message.end()) continue;
    const Json text = *thoughts;
    message.erase(kThoughts);
    for (const std::string& name : facts.thought_fields) message[name] = text;
    found = true;
  }
  return found;
}

void drop_thoughts(Json& messages, const TemplateFacts& facts) {
  for (Json& message : messages)
    for (const std::string& name : facts.thought_fields) message.erase(name);
}

Expected<TemplatedPrompt> render_variables(const ServedModel& served, Json variables, const TemplateFacts& facts,
                                           const std::vector<std::string>& images, const std::function<bool()>& go_on) {
  const bool thoughts = name_thoughts(variables["messages"], facts);
  auto prompt = served.model.render_template(dump(variables));
  // Some templates can only add to a text. An assistant that only called tools has none; transformers fails there.
  if (!prompt && fill_contents(variables["messages"])) prompt = served.model.render_template(dump(variables));
  if (!prompt &&
      thoughts) {  // gpt-oss: "Cannot pass both content and thinking in an assistant message with tool calls"
    drop_thoughts(variables["messages"], facts);
    if (auto again = served.model.render_template(dump(variables))) prompt = std::move(again);
  }
  if (prompt) prompt = served.model.place_images(*std::move(prompt), images, go_on);
  if (prompt) return prompt;
  Error error = std::move(prompt).error();
  // What a template refuses is the client's error in these messages, not the server's.
  constexpr ErrorCode kOthers[] = {ErrorCode::kResource, ErrorCode::kIo, ErrorCode::kCancelled};
  if (std::ranges::count(kOthers, error.code) == 0) error.code = ErrorCode::kUsage;
  return error;
}

/// The prompt with an empty thought at its end, if the template begins one and the request wants none.
Expected<bool> close_thought(const ServedModel& served, const TemplateFacts& facts, TemplatedPrompt& prompt) {
  if (facts.thoughts.kind == ThoughtFormat::Kind::kHarmony || !opens_thought(facts.thoughts, prompt.opening))
    return false;
  const std::string end = "\n" + facts.thoughts.close + "\n\n";
  DLLM_TRY(const auto ids, served.model.tokenize(end, /*special=*/true));
  prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  prompt.opening += end;
  return true;
}

}  // namespace

void add_thoughts(std::string& thoughts, std::string_view more) {
  if (!thoughts.empty() && !more.empty()) thoughts += "\n\n";
  thoughts += more;
}

std::vector<std::string> clear_thoughts(Json& messages, std::int64_t kept) {
  std::vector<std::string> cleared;
  if (!messages.is_array()) return cleared;
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if (!message->is_object() || !message->contains(kThoughts) || kept-- > 0) continue;
    if ((*message)[kThoughts].is_string()) cleared.push_back((*message)[kThoughts].get<std::string>());
    message->erase(kThoughts);
  }
  return cleared;
}

Expected<std::string> content_text(const Json& content, const std::string& field, Ignored* ignored,
                                   std::string* thoughts) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return wrong_type(field, "a text, or a list of text parts");
  std::string text;
  for (const Json& part : content) {
    const Json named = part.is_object() ? part.value("type", Json()) : Json();
    const std::string type = named.is_string() ? named.get<std::string>() : "";
    if (thoughts != nullptr) {
      DLLM_TRY(const auto thought, thought_part(part, type, field));
      if (thought) {
        add_thoughts(*thoughts, *thought);
        continue;
      }
    }
    if (type != "text" && type != "input_text" && type != "output_text")
      return Error{ErrorCode::kUsage, "the model reads text only", field, "give parts of type \"text\""};
    Fields fields(part, ignored, field);
    for (const char* known : {"type", "annotations", "logprobs", "id"}) fields.find(known);
    for (const char* unread : {"cache_control", "prompt_cache_breakpoint", "citations"})
      if (const Json* value = fields.find(unread); value != nullptr && !value->empty() && ignored != nullptr)
        ignored->add(unread);
    DLLM_TRY(const auto more, fields.text("text"));
    DLLM_CHECK_OK(fields.done());
    if (!more) return wrong_type(field, "parts with a \"text\"");
    text += *more;
  }
  return text;
}

Expected<ConversationPrompt> render(const ServedModel& served, const Conversation& conversation,
                                    const std::optional<Tools>& tools, const Thinking& thinking, bool structured,
                                    Ignored& ignored) {
  const auto& [system, messages, field, images, go_on] = conversation;
  if (!messages.is_array() || messages.empty()) return wrong_type(field, "a list of messages, at least one");
  DLLM_CHECK_OK(served.check_size(system.size(), "system"));
  Json list = Json::array();
  MessageReading reading{served, &ignored, images};
  if (!system.empty()) list.push_back({{"role", "system"}, {"content", system}});
  for (std::size_t i = 0; i < messages.size(); ++i) {
    DLLM_TRY(Json message, read_message(messages[i], fmt::format("{}[{}]", field, i), reading));
    if (message["role"] != "tool") place_shown(reading.shown, &message, list);
    list.push_back(std::move(message));
  }
  place_shown(reading.shown, nullptr, list);
  DLLM_CHECK_OK(served.check_size(dump(list).size(), field));
  const bool with_tools = tools || has_tool_turns(list);
  if (with_tools && served.model.chat_template(tools.has_value()).find("tool") == std::string::npos)
    return Error{ErrorCode::kUsage, "the model's chat template knows no tools", "tools", "leave them out"};
  const TemplateFacts& facts = served.facts(tools.has_value());
  TemplateWish wish = template_wish(thinking, facts, structured, ignored);
  TemplatedPrompt prompt;
  if (!served.model.has_chat_template()) {  // one message may be a raw text
    std::vector<ChatTurn> turns;
    for (const Json& message : list) turns.push_back({message["role"], message["content"]});
    DLLM_TRY(prompt.ids, served.model.apply_template(turns));
  } else {
    Json variables = std::move(wish.variables);
    variables["messages"] = std::move(list);
    if (tools) variables["tools"] = tools->list;
    DLLM_TRY(prompt, render_variables(served, std::move(variables), facts, reading.images, go_on));
  }
  bool closed = false;
  if (thinking.wanted == false) {
    DLLM_TRY(closed, close_thought(served, facts, prompt));
  }
  if (thinking.wanted && !wish.switched && !closed) ignored.add(thinking.wanted_by);
  return ConversationPrompt{std::move(prompt.ids), std::move(prompt.opening), std::move(prompt.images)};
}

Expected<std::vector<std::int32_t>> read_context(const ServedModel& served, Fields& fields) {
  const Json *context = fields.find("context"), *list = fields.find("messages");
  if ((context == nullptr) == (list == nullptr)) return wrong_type("context", "given, or \"messages\"");
  DLLM_TRY(const Thinking thinking, read_thinking(fields, served));
  Ignored unused;
  if (list != nullptr) {
    DLLM_TRY(ConversationPrompt prompt,
             render(served, {.system = "", .messages = *list, .images = false}, std::nullopt, thinking,
                    /*structured=*/false, fields.ignored() ? *fields.ignored() : unused));
    return std::move(prompt.ids);
  }
  if (!context->is_string()) return token_ids(*context, "context");
  DLLM_CHECK_OK(served.check_size(context->get_ref<const std::string&>().size(), "context"));
  return served.model.prompt_ids(context->get_ref<const std::string&>(), /*special=*/true);
}

}  // namespace dllm::serve
