#include "serve/tools.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "constrain/tool_calls.h"
#include "serve/answer.h"

namespace dllm::serve {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";

std::string_view without_spaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::string_view without_last_spaces(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1 is 0
}

bool is_tool(const Tools& tools, const std::string& name) {
  return std::ranges::any_of(tools.list, [&](const Json& tool) { return tool["function"]["name"] == name; });
}

std::optional<ToolCall> parse_call(std::string_view text, const Tools& tools) {
  const auto json = parse_body(without_spaces(text));
  if (!json) return std::nullopt;
  const auto name = json->find("name"), arguments = json->find("arguments");
  if (name == json->end() || !name->is_string() || !is_tool(tools, name->get<std::string>())) return std::nullopt;
  if (arguments == json->end()) return ToolCall{name->get<std::string>(), "{}"};
  if (!arguments->is_object()) return std::nullopt;
  return ToolCall{name->get<std::string>(), dump(*arguments)};
}

Expected<Json> read_call(const Json& call, const std::string& where) {
  if (!call.is_object()) return wrong_type(where, "a tool call");
  Fields fields(call);
  DLLM_TRY(const auto id, fields.text("id"));
  DLLM_TRY(const auto type, fields.text("type"));
  const Json* function = fields.find("function");
  DLLM_CHECK_OK(fields.done());
  if (type.value_or("function") != "function" || function == nullptr || !function->is_object())
    return wrong_type(where, "a call of type \"function\"");
  Fields inner(*function);
  DLLM_TRY(const auto name, inner.text("name"));
  const Json* arguments = inner.find("arguments");
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

Expected<Json> read_message(const Json& message, const std::string& where) {
  if (!message.is_object()) return wrong_type(where, "a message");
  Fields fields(message);
  DLLM_TRY(const auto role, fields.text("role"));
  const Json *content = fields.find("content"), *calls = fields.find("tool_calls");
  DLLM_TRY(const auto id, fields.text("tool_call_id"));
  DLLM_TRY(const auto name, fields.text("name"));
  fields.find("refusal");
  DLLM_CHECK_OK(fields.done());
  if (!role) return wrong_type(where, "a message with a \"role\"");
  Json result = {{"role", *role == "developer" ? "system" : *role}};
  const std::string& known = result["role"].get_ref<const std::string&>();
  if (known != "system" && known != "user" && known != "assistant" && known != "tool")
    return Error{ErrorCode::kUsage, fmt::format("the role '{}' is not supported", known), where,
                 "system, developer, user, assistant or tool"};
  if (content == nullptr && calls == nullptr) return wrong_type(where, "a message with a \"content\"");
  if (content != nullptr) {
    DLLM_TRY(result["content"], content_text(*content, where + ".content"));
  } else if (message.contains("content")) {
    result["content"] = nullptr;  // as sent: templates distinguish none from an empty text
  }
  if (id) result["tool_call_id"] = *id;
  if (name) result["name"] = *name;
  if (calls == nullptr) return result;
  if (!calls->is_array() || *role != "assistant")
    return wrong_type(where + ".tool_calls", "an assistant's list of calls");
  if (calls->empty()) return result;
  result["tool_calls"] = Json::array();
  for (const Json& call : *calls) {
    DLLM_TRY(Json one, read_call(call, where + ".tool_calls"));
    result["tool_calls"].push_back(std::move(one));
  }
  return result;
}

/// Whether the conversation contains tool calls or results, which plain turns cannot express.
bool has_tool_turns(const Json& messages) {
  return messages.is_array() && std::ranges::any_of(messages, [](const Json& message) {
           if (!message.is_object()) return false;
           const auto calls = message.find("tool_calls"), role = message.find("role");
           return (calls != message.end() && calls->is_array() && !calls->empty()) ||
                  (role != message.end() && *role == "tool");
         });
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

Expected<std::vector<std::int32_t>> tool_template_ids(const Api& api, const Conversation& conversation,
                                                      const std::optional<Tools>& tools) {
  const auto& [system, messages, field] = conversation;
  if (api.model.chat_template(tools.has_value()).find("tool") == std::string::npos)
    return Error{ErrorCode::kUsage, "the model's chat template knows no tools", "tools", "leave them out"};
  if (!messages.is_array() || messages.empty()) return wrong_type(field, "a list of messages, at least one");
  DLLM_CHECK_OK(api.check_size(dump(messages).size() + system.size(), field));
  Json variables = {{"messages", Json::array()}, {"add_generation_prompt", true}};
  if (!system.empty()) variables["messages"].push_back({{"role", "system"}, {"content", system}});
  for (std::size_t i = 0; i < messages.size(); ++i) {
    DLLM_TRY(Json message, read_message(messages[i], fmt::format("{}[{}]", field, i)));
    variables["messages"].push_back(std::move(message));
  }
  if (tools) variables["tools"] = tools->list;
  auto ids = api.model.apply_template_variables(dump(variables));
  // Some templates can only add to a text. An assistant that only called tools has none; transformers fails there.
  if (!ids && fill_contents(variables["messages"])) ids = api.model.apply_template_variables(dump(variables));
  if (ids) return ids;
  Error error = std::move(ids).error();
  error.code = ErrorCode::kUsage;  // the template refuses these messages
  return error;
}

}  // namespace

Expected<ToolChoice> read_choice(const Json* choice) {
  if (choice == nullptr) return ToolChoice();
  const Json type = choice->is_object() ? choice->value("type", Json()) : *choice;
  if (type == "auto") return ToolChoice();
  if (type == "none") return ToolChoice{.callable = false, .forced = false, .only = ""};
  if (type == "required" || type == "any") return ToolChoice{.callable = true, .forced = true, .only = ""};
  if (choice->is_object() && (type == "function" || type == "tool")) {
    const auto inner = choice->find("function");
    const Json& holder = inner != choice->end() && inner->is_object() ? *inner : *choice;
    if (const Json name = holder.value("name", Json()); name.is_string())
      return ToolChoice{.callable = true, .forced = true, .only = name.get<std::string>()};
    return wrong_type("tool_choice", "a choice with the name of a tool");
  }
  return Error{ErrorCode::kUsage, "there is no such choice", "tool_choice",
               "give \"auto\", \"none\", \"required\" (\"any\" in messages), or a tool by its name"};
}

Expected<std::optional<Tools>> under_choice(Tools tools, const ToolChoice& choice) {
  if (choice.forced && tools.list.empty())
    return Error{ErrorCode::kUsage, "a call is forced, and there are no tools", "tool_choice", "give tools"};
  if (!choice.only.empty() && !is_tool(tools, choice.only))
    return Error{ErrorCode::kUsage, fmt::format("there is no tool '{}'", choice.only), "tool_choice", ""};
  if (!choice.callable || tools.list.empty()) return std::optional<Tools>();
  tools.forced = choice.forced;
  tools.only = choice.only;
  return std::optional(std::move(tools));
}

Expected<void> apply_tools(const std::optional<Tools>& tools, GenerateOptions& options) {
  if (!tools) return {};
  if (options.regex || options.json_schema)
    return Error{ErrorCode::kUsage, "an answer with a structure calls no tools", "tools",
                 "leave them out, or the structure"};
  if (!tools->forced) return {};
  Json calls = {{"tools", Json::array()}, {"several", tools->parallel && tools->only.empty()}};
  for (std::size_t i = 0; i < tools->list.size(); ++i) {
    const Json& function = tools->list[i]["function"];
    if (!tools->only.empty() && function["name"] != tools->only) continue;
    Json one = {{"name", function["name"]}};
    if (const auto parameters = function.find("parameters"); parameters != function.end()) {
      if (const auto pattern = constrain::arguments_pattern(*parameters); !pattern) {
        Error error = pattern.error();
        error.where = fmt::format("tools[{}].{}{}", i, tools->schema, error.where.substr(1));
        return error;
      }
      one["parameters"] = *parameters;
    }
    calls["tools"].push_back(std::move(one));
  }
  options.tool_calls = dump(calls);
  return {};
}

Expected<std::optional<Tools>> read_tools(Fields& fields) {
  Tools tools;
  const Json *list = fields.find("tools"), *choice = fields.find("tool_choice");
  DLLM_TRY(tools.parallel, fields.flag("parallel_tool_calls", true));
  DLLM_TRY(const ToolChoice chosen, read_choice(choice));
  if (list == nullptr) return under_choice(std::move(tools), chosen);
  if (!list->is_array()) return wrong_type("tools", "a list of tools");
  for (const Json& tool : *list) {
    const bool function = tool.is_object() && tool.value("type", Json("function")) == "function" &&
                          tool.contains("function") && tool["function"].is_object();
    if (!function || !tool["function"].contains("name") || !tool["function"]["name"].is_string())
      return wrong_type("tools", "tools of type \"function\", each with a name");
  }
  tools.list = *list;
  return under_choice(std::move(tools), chosen);
}

Expected<std::vector<std::int32_t>> conversation_ids(const Api& api, const Conversation& conversation,
                                                     const std::optional<Tools>& tools) {
  const auto& [system, messages, field] = conversation;
  if (tools || has_tool_turns(messages)) return tool_template_ids(api, conversation, tools);
  std::vector<ChatTurn> turns;
  DLLM_CHECK_OK(api.check_size(system.size(), "system"));
  if (!system.empty()) turns.push_back({"system", system});
  DLLM_TRY(const std::vector<ChatTurn> said, read_turns(api, messages, field));
  turns.insert(turns.end(), said.begin(), said.end());
  return template_ids(api, turns);
}

std::size_t text_before_calls(std::string_view answer) {
  std::size_t end = answer.find(kOpen);
  if (end == answer.npos) {
    end = answer.size();
    for (std::size_t size = std::min(kOpen.size() - 1, answer.size()); size > 0; --size)
      if (answer.ends_with(kOpen.substr(0, size))) {
        end -= size;
        break;
      }
  }
  return without_last_spaces(answer.substr(0, end)).size();
}

ToolAnswer parse_tool_calls(std::string_view answer, const Tools& tools) {
  ToolAnswer result;
  const std::size_t first = answer.find(kOpen);
  std::size_t at = first;
  while (at < answer.size()) {
    const std::size_t begin = at + kOpen.size(), end = answer.find(kClose, begin);
    const auto call = end == answer.npos ? std::nullopt : parse_call(answer.substr(begin, end - begin), tools);
    if (!call) break;
    result.calls.push_back(*call);
    at = end + kClose.size();
    at = std::min(answer.find_first_not_of(kSpace, at), answer.size());
    if (at < answer.size() && !answer.substr(at).starts_with(kOpen)) break;
  }
  if (result.calls.empty() || at < answer.size()) return {std::string(answer), {}};
  if (!tools.parallel) result.calls.resize(1);
  result.text = std::string(without_last_spaces(answer.substr(0, first)));
  return result;
}

ToolAnswer parse_answer(const std::string& answer, const std::optional<Tools>& tools) {
  return tools ? parse_tool_calls(answer, *tools) : ToolAnswer{answer, {}};
}

std::string shown_text(const std::string& answer, bool complete, const std::optional<Tools>& tools) {
  if (!tools) return answer;
  return complete ? parse_tool_calls(answer, *tools).text : answer.substr(0, text_before_calls(answer));
}

}  // namespace dllm::serve
