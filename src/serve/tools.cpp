#include "serve/tools.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "constrain/tool_calls.h"

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

std::optional<ToolCall> parse_call(std::string_view text, const Tools& tools) {
  const auto json = parse_body(without_spaces(text));
  if (!json) return std::nullopt;
  const auto name = json->find("name"), arguments = json->find("arguments");
  if (name == json->end() || !name->is_string() || !is_tool(tools, name->get<std::string>())) return std::nullopt;
  if (arguments == json->end()) return ToolCall{name->get<std::string>(), "{}"};
  if (!arguments->is_object()) return std::nullopt;
  return ToolCall{name->get<std::string>(), dump(*arguments)};
}

}  // namespace

bool is_tool(const Tools& tools, std::string_view name) {
  return std::ranges::any_of(tools.list, [&](const Json& tool) { return tool["function"]["name"] == name; });
}

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
  const bool structured = options.regex || options.json_schema;
  if (!tools->forced && !structured) return {};
  // The structure is the text's, and an answer that must be a call has none.
  if (tools->forced) options.regex.reset(), options.json_schema.reset();
  Json calls = {{"tools", Json::array()}, {"several", tools->parallel && tools->only.empty()}};
  for (std::size_t i = 0; i < tools->list.size(); ++i) {
    const Json& function = tools->list[i]["function"];
    if (!tools->only.empty() && function["name"] != tools->only) continue;
    Json one = {{"name", function["name"]}};
    if (const auto parameters = function.find("parameters"); parameters != function.end()) {
      const auto pattern = constrain::arguments_pattern(*parameters);
      if (!pattern && tools->forced) {
        Error error = pattern.error();
        error.where = fmt::format("tools[{}].{}{}", i, tools->schema, error.where.substr(1));
        return error;
      }
      // A call that is not forced may have any arguments if its schema is no constraint.
      if (pattern) one["parameters"] = *parameters;
    }
    calls["tools"].push_back(std::move(one));
  }
  options.tool_calls = dump(calls);
  return {};
}

Expected<std::optional<Tools>> tools_of(Fields& fields, Tools tools, const ToolChoice& chosen) {
  const bool strict = tools.strict;
  DLLM_TRY(auto made, under_choice(std::move(tools), chosen));
  // A call that is forced follows its tool's schema anyway, and others are what the model writes.
  if (strict && made && !made->forced && fields.ignored() != nullptr) fields.ignored()->add("tools.strict");
  return made;
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
    tools.strict = tools.strict || tool["function"].value("strict", Json(false)) == true;
  }
  tools.list = *list;
  return tools_of(fields, std::move(tools), chosen);
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

}  // namespace dllm::serve
