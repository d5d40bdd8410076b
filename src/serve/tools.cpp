#include "serve/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/try.h"
#include "constrain/tool_calls.h"
#include "serve/call_forms.h"

namespace dllm::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view without_last_spaces(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1 is 0
}

/// The first place where a call may begin, and its form; npos: there is none.
struct CallStart {
  std::size_t at = std::string_view::npos;
  const CallForm* form = nullptr;
};

CallStart find_call(std::string_view text) {
  CallStart first;
  for (const CallForm& form : call_forms())
    if (const std::size_t at = text.find(form.open); at < first.at) first = {at, &form};
  return first;
}

const CallForm* form_at(std::string_view text) {
  for (const CallForm& form : call_forms())
    if (text.starts_with(form.open)) return &form;
  return nullptr;
}

/// {"mode": "auto" or "required", "tools": [{"type": "function", "name": ...}]}; chat completions have both within
/// "allowed_tools", and the name within "function".
Expected<ToolChoice> read_allowed(const Json& choice) {
  const auto inner = choice.find("allowed_tools");
  const Json& holder = inner != choice.end() && inner->is_object() ? *inner : choice;
  const Json mode = holder.value("mode", Json("auto")), list = holder.value("tools", Json());
  if (mode != "auto" && mode != "required") return wrong_type("tool_choice.mode", "\"auto\" or \"required\"");
  ToolChoice read{.callable = true, .forced = mode == "required", .only = ""};
  read.allowed.emplace();
  for (const Json& tool : list) {
    const bool within = tool.is_object() && tool.contains("function") && tool["function"].is_object();
    const Json name = tool.is_object() ? (within ? tool["function"] : tool).value("name", Json()) : Json();
    if (!name.is_string()) return wrong_type("tool_choice.tools", "tools with a name");
    read.allowed->push_back(name.get<std::string>());
  }
  if (read.allowed->empty()) return wrong_type("tool_choice.tools", "a list of tools");
  return read;
}

std::string_view tool_name(const Json& tool) { return tool["function"]["name"].get_ref<const std::string&>(); }

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
  if (choice->is_object() && type == "allowed_tools") return read_allowed(*choice);
  return Error{ErrorCode::kUsage, "there is no such choice", "tool_choice",
               "give \"auto\", \"none\", \"required\" (\"any\" in messages), or a tool by its name"};
}

Expected<std::optional<Tools>> under_choice(Tools tools, const ToolChoice& choice) {
  if (choice.allowed) {
    // Both lists may be long.
    std::unordered_set<std::string_view> names;
    for (const Json& tool : tools.list) names.insert(tool_name(tool));
    for (const std::string& name : *choice.allowed)
      if (!names.contains(name))
        return Error{ErrorCode::kUsage, fmt::format("there is no tool '{}'", name), "tool_choice", ""};
    const std::unordered_set<std::string_view> allowed(choice.allowed->begin(), choice.allowed->end());
    std::erase_if(tools.list.get_ref<Json::array_t&>(),
                  [&](const Json& tool) { return !allowed.contains(tool_name(tool)); });
  }
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
  if (tools->forced && !options.stop.empty())
    return Error{ErrorCode::kUsage, "a stop text would cut the call that is forced", tools->stop, "leave it out"};
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
  std::size_t end = find_call(answer).at;
  if (end == answer.npos) {
    std::size_t held = 0;
    for (const CallForm& form : call_forms())
      for (std::size_t size = std::min(form.open.size() - 1, answer.size()); size > held; --size)
        if (answer.ends_with(form.open.substr(0, size))) held = size;
    end = answer.size() - held;
  }
  return without_last_spaces(answer.substr(0, end)).size();
}

ToolAnswer parse_tool_calls(std::string_view answer, const Tools& tools) {
  ToolAnswer result;
  const CallStart first = find_call(answer);
  std::size_t at = std::min(first.at, answer.size());
  for (const CallForm* form = first.form; form != nullptr; form = form_at(answer.substr(at))) {
    const auto call = read_call(*form, answer.substr(at));
    if (!call || !is_tool(tools, call->name)) break;
    result.calls.push_back({call->name, dump(call->arguments)});
    at = std::min(answer.find_first_not_of(kSpace, at + call->bytes), answer.size());
  }
  if (result.calls.empty() || at < answer.size()) return {std::string(answer), {}};
  if (!tools.parallel) result.calls.resize(1);
  result.text = std::string(without_last_spaces(answer.substr(0, first.at)));
  return result;
}

}  // namespace dllm::serve
