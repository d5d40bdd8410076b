#include "serve/tool_forms.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "serve/answer.h"

namespace dllm::serve {
namespace {

Json chat_tool(const std::string& name, const Json* description, const Json* parameters) {
  Json function = {{"name", name}};
  if (description != nullptr) function["description"] = *description;
  if (parameters != nullptr) function["parameters"] = *parameters;
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json chat_call(const std::string& id, const std::string& name, const Json& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

/// A text, or text parts; absent is empty.
Expected<std::string> result_text(const Json* content, const std::string& where) {
  if (content == nullptr) return std::string();
  return content_text(*content, where);
}

bool has_block(const Json& message, std::string_view type) {
  if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) return false;
  for (const Json& block : message["content"])
    if (block.is_object() && block.contains("type") && block["type"] == type) return true;
  return false;
}

/// The assistant's message of `message`, whose blocks are texts and "tool_use".
Expected<Json> assistant_with_calls(const Json& message, const std::string& where) {
  std::string text;
  Json calls = Json::array();
  for (const Json& block : message["content"]) {
    if (!block.is_object() || block.value("type", Json()) != "tool_use") {
      DLLM_TRY(const std::string more, content_text(Json::array({block}), where + ".content"));
      text += more;
      continue;
    }
    Fields fields(block);
    fields.find("type"), fields.find("cache_control");
    DLLM_TRY(const auto id, fields.text("id"));
    DLLM_TRY(const auto name, fields.text("name"));
    const Json* input = fields.find("input");
    DLLM_CHECK_OK(fields.done());
    if (!id || !name || (input != nullptr && !input->is_object()))
      return wrong_type(where + ".content", "tool_use blocks with an id, a name and an object as input");
    calls.push_back(chat_call(*id, *name, input == nullptr ? Json::object() : *input));
  }
  return Json{{"role", "assistant"}, {"content", text}, {"tool_calls", std::move(calls)}};
}

/// Appends the messages of a user's message with results: one per result and per run of text, in their order.
Expected<void> append_results(const Json& message, const std::string& where, Json& list) {
  std::string text;
  const auto end_text = [&] {
    if (!text.empty()) list.push_back({{"role", "user"}, {"content", std::exchange(text, {})}});
  };
  for (const Json& block : message["content"]) {
    if (!block.is_object() || block.value("type", Json()) != "tool_result") {
      DLLM_TRY(const std::string more, content_text(Json::array({block}), where + ".content"));
      text += more;
      continue;
    }
    Fields fields(block);
    fields.find("type"), fields.find("cache_control");
    DLLM_TRY(const auto id, fields.text("tool_use_id"));
    DLLM_TRY(const bool failed, fields.flag("is_error", false));
    const Json* content = fields.find("content");
    DLLM_CHECK_OK(fields.done());
    if (!id) return wrong_type(where + ".content", "tool_result blocks with a tool_use_id");
    DLLM_TRY(std::string result, result_text(content, where + ".content"));
    // Chat templates have no field for it.
    if (failed && !result.starts_with("Error")) result.insert(0, "Error: ");
    end_text();
    list.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(result)}});
  }
  end_text();
  return {};
}

Expected<Json> call_from_item(const Json& item, const std::string& where) {
  Fields fields(item);
  for (const char* known : {"type", "id", "status"}) fields.find(known);
  DLLM_TRY(const auto id, fields.text("call_id"));
  DLLM_TRY(const auto name, fields.text("name"));
  const Json* arguments = fields.find("arguments");
  DLLM_CHECK_OK(fields.done());
  if (!id || !name) return wrong_type(where, "a function_call with a call_id and a name");
  return chat_call(*id, *name, arguments == nullptr ? Json("{}") : *arguments);
}

Expected<Json> result_from_item(const Json& item, const std::string& where) {
  Fields fields(item);
  for (const char* known : {"type", "id", "status"}) fields.find(known);
  DLLM_TRY(const auto id, fields.text("call_id"));
  const Json* output = fields.find("output");
  DLLM_CHECK_OK(fields.done());
  if (!id) return wrong_type(where, "a function_call_output with a call_id");
  DLLM_TRY(std::string text, result_text(output, where + ".output"));
  return Json{{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(text)}};
}

}  // namespace

Expected<std::optional<Tools>> read_anthropic_tools(Fields& fields) {
  const Json *list = fields.find("tools"), *choice = fields.find("tool_choice");
  DLLM_TRY(const ToolChoice chosen, read_choice(choice));
  Tools tools;
  tools.schema = "input_schema";
  if (list == nullptr) return under_choice(std::move(tools), chosen);
  if (!list->is_array()) return wrong_type("tools", "a list of tools");
  for (const Json& tool : *list) {
    if (!tool.is_object() || tool.value("type", Json("custom")) != "custom")
      return wrong_type("tools", "tools of your own: name, description, input_schema");
    Fields one(tool);
    for (const char* known : {"type", "cache_control"}) one.find(known);
    DLLM_TRY(const auto name, one.text("name"));
    const Json *description = one.find("description"), *schema = one.find("input_schema");
    DLLM_CHECK_OK(one.done());
    if (!name || schema == nullptr || !schema->is_object())
      return wrong_type("tools", "tools with a name and an input_schema");
    tools.list.push_back(chat_tool(*name, description, schema));
  }
  if (choice != nullptr && choice->is_object()) {
    Fields one(*choice);
    one.find("type"), one.find("name");
    DLLM_TRY(const bool single, one.flag("disable_parallel_tool_use", false));
    DLLM_CHECK_OK(one.done());
    tools.parallel = !single;
  }
  return under_choice(std::move(tools), chosen);
}

Expected<std::optional<Tools>> read_response_tools(Fields& fields) {
  const Json *list = fields.find("tools"), *choice = fields.find("tool_choice");
  Tools tools;
  DLLM_TRY(tools.parallel, fields.flag("parallel_tool_calls", true));
  DLLM_TRY(const ToolChoice chosen, read_choice(choice));
  tools.schema = "parameters";
  if (list == nullptr) return under_choice(std::move(tools), chosen);
  if (!list->is_array()) return wrong_type("tools", "a list of tools");
  for (const Json& tool : *list) {
    if (!tool.is_object() || tool.value("type", Json()) != "function")
      return wrong_type("tools", "tools of type \"function\"");
    Fields one(tool);
    for (const char* known : {"type", "strict"}) one.find(known);
    DLLM_TRY(const auto name, one.text("name"));
    const Json *description = one.find("description"), *parameters = one.find("parameters");
    DLLM_CHECK_OK(one.done());
    if (!name) return wrong_type("tools", "tools of type \"function\", each with a name");
    tools.list.push_back(chat_tool(*name, description, parameters));
  }
  return under_choice(std::move(tools), chosen);
}

Expected<Json> messages_from_anthropic(const Json& list, const std::string& field) {
  if (!list.is_array()) return list;
  Json result = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", field, i);
    const Json role = list[i].is_object() ? list[i].value("role", Json()) : Json();
    if (role == "assistant" && has_block(list[i], "tool_use")) {
      DLLM_TRY(Json message, assistant_with_calls(list[i], where));
      result.push_back(std::move(message));
    } else if (role == "user" && has_block(list[i], "tool_result")) {
      DLLM_CHECK_OK(append_results(list[i], where, result));
    } else {
      result.push_back(list[i]);
    }
  }
  return result;
}

Expected<Json> messages_from_response_items(const Json& list, const std::string& field) {
  if (!list.is_array()) return list;
  bool tools = false;
  for (const Json& item : list) {
    const Json type = item.is_object() ? item.value("type", Json()) : Json();
    tools = tools || type == "function_call" || type == "function_call_output";
  }
  if (!tools) return list;
  Json result = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", field, i);
    const Json type = list[i].is_object() ? list[i].value("type", Json()) : Json();
    if (type == "function_call") {
      DLLM_TRY(Json call, call_from_item(list[i], where));
      if (result.empty() || !result.back().is_object() || result.back().value("role", Json()) != "assistant")
        result.push_back({{"role", "assistant"}, {"content", ""}});
      result.back()["tool_calls"].push_back(std::move(call));
    } else if (type == "function_call_output") {
      DLLM_TRY(Json message, result_from_item(list[i], where));
      result.push_back(std::move(message));
    } else {
      Json message = list[i];
      if (message.is_object())
        for (const char* unused : {"type", "id", "status"}) message.erase(unused);
      result.push_back(std::move(message));
    }
  }
  return result;
}

}  // namespace dllm::serve
