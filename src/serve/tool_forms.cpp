#include "serve/tool_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "serve/conversation.h"
#include "serve/images.h"

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

/// A tool's result as chat completions have it: a text, or parts if there are images among them; absent is empty.
Expected<Json> result_content(const Json* content, const std::string& where, Ignored& ignored) {
  if (content == nullptr) return Json("");
  if (has_images(*content)) return *content;
  DLLM_TRY(std::string text, content_text(*content, where, &ignored));
  return Json(std::move(text));
}

/// The same, marked as an error: chat templates have no field for it.
Json failed_result(Json content) {
  constexpr const char* kError = "Error: ";
  if (content.is_array()) {
    Json part = {{"type", "text"}, {"text", kError}};
    content.insert(content.begin(), std::move(part));
    return content;
  }
  const auto& text = content.get_ref<const std::string&>();
  return text.starts_with("Error") ? content : Json(kError + text);
}

Json type_of_block(const Json& block) { return block.is_object() ? block.value("type", Json()) : Json(); }

bool has_block(const Json& message, std::string_view type) {
  if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) return false;
  return std::ranges::any_of(message["content"], [&](const Json& block) { return type_of_block(block) == type; });
}

/// Who calls: the model itself, unless it says otherwise. Which words were said is the same.
void read_caller(Fields& fields) {
  const Json* caller = fields.find("caller");
  if (caller != nullptr && caller->is_object() && caller->value("type", Json()) != "direct") fields.ignore("caller");
  fields.ignore("toolset_name");
}

void read_cache_control(Fields& fields) {
  if (fields.find("cache_control") != nullptr && fields.ignored() != nullptr) fields.ignored()->add("cache_control");
}

/// The assistant's message of `message`, whose blocks are thoughts, texts and "tool_use".
Expected<Json> assistant_from_blocks(const Json& message, const std::string& where, Ignored& ignored) {
  Fields own(message, &ignored, where);
  for (const char* known : {"role", "content"}) own.find(known);
  DLLM_CHECK_OK(own.done());
  std::string text, thoughts;
  Json calls = Json::array();
  for (const Json& block : message["content"]) {
    if (type_of_block(block) != "tool_use") {
      DLLM_TRY(const std::string more, content_text(Json::array({block}), where + ".content", &ignored, &thoughts));
      text += more;
      continue;
    }
    Fields fields(block, &ignored, where + ".content");
    fields.find("type");
    read_cache_control(fields);
    read_caller(fields);
    DLLM_TRY(const auto id, fields.text("id"));
    DLLM_TRY(const auto name, fields.text("name"));
    const Json* input = fields.find("input");
    DLLM_CHECK_OK(fields.done());
    if (!id || !name || (input != nullptr && !input->is_object()))
      return wrong_type(where + ".content", "tool_use blocks with an id, a name and an object as input");
    calls.push_back(chat_call(*id, *name, input == nullptr ? Json::object() : *input));
  }
  Json result = {{"role", "assistant"}, {"content", text}};
  if (!calls.empty()) result["tool_calls"] = std::move(calls);
  if (!thoughts.empty()) result["reasoning_content"] = thoughts;
  return result;
}

/// Appends the messages of a user's message with results: one per result, and one of what else is said between two
/// results, in their order.
Expected<void> append_results(const Json& message, const std::string& where, Ignored& ignored, Json& list) {
  Json said = Json::array();
  const auto end_said = [&]() -> Expected<void> {
    if (said.empty()) return {};
    DLLM_TRY(Json content, result_content(&said, where + ".content", ignored));
    if (content != "") list.push_back({{"role", "user"}, {"content", std::move(content)}});
    said = Json::array();
    return {};
  };
  for (const Json& block : message["content"]) {
    if (type_of_block(block) != "tool_result") {
      said.push_back(block);
      continue;
    }
    Fields fields(block, &ignored, where + ".content");
    fields.find("type");
    read_cache_control(fields);
    read_caller(fields);
    DLLM_TRY(const auto id, fields.text("tool_use_id"));
    DLLM_TRY(const bool failed, fields.flag("is_error", false));
    const Json* content = fields.find("content");
    DLLM_CHECK_OK(fields.done());
    if (!id) return wrong_type(where + ".content", "tool_result blocks with a tool_use_id");
    DLLM_TRY(Json result, result_content(content, where + ".content", ignored));
    if (failed) result = failed_result(std::move(result));
    DLLM_CHECK_OK(end_said());
    list.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(result)}});
  }
  return end_said();
}

void read_item(Fields& fields) {
  for (const char* known : {"type", "id", "status"}) fields.find(known);
  read_caller(fields);
}

Expected<Json> call_from_item(const Json& item, const std::string& where, Ignored& ignored) {
  Fields fields(item, &ignored, where);
  read_item(fields);
  fields.ignore("namespace");
  DLLM_TRY(const auto id, fields.text("call_id"));
  DLLM_TRY(const auto name, fields.text("name"));
  const Json* arguments = fields.find("arguments");
  DLLM_CHECK_OK(fields.done());
  if (!id || !name) return wrong_type(where, "a function_call with a call_id and a name");
  return chat_call(*id, *name, arguments == nullptr ? Json("{}") : *arguments);
}

Expected<Json> result_from_item(const Json& item, const std::string& where, Ignored& ignored) {
  Fields fields(item, &ignored, where);
  read_item(fields);
  for (const char* unread : {"name", "namespace"}) fields.ignore(unread);
  DLLM_TRY(const auto id, fields.text("call_id"));
  const Json* output = fields.find("output");
  DLLM_CHECK_OK(fields.done());
  if (!id) return wrong_type(where, "a function_call_output with a call_id");
  DLLM_TRY(Json content, result_content(output, where + ".output", ignored));
  return Json{{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(content)}};
}

/// The texts of parts of a type; absent is empty.
Expected<std::string> part_texts(const Json* parts, std::string_view type, const std::string& where) {
  std::string text;
  if (parts == nullptr) return text;
  if (!parts->is_array()) return wrong_type(where, "a list of parts");
  for (const Json& part : *parts) {
    if (type_of_block(part) != type || !part.contains("text") || !part["text"].is_string())
      return wrong_type(where, fmt::format("a list of parts of type \"{}\"", type));
    add_thoughts(text, part["text"].get_ref<const std::string&>());
  }
  return text;
}

/// The thoughts of an item "reasoning". What another server has encrypted is dropped; a summary is better than nothing.
Expected<std::string> thoughts_from_item(const Json& item, const std::string& where, Ignored& ignored) {
  Fields fields(item, &ignored, where);
  read_item(fields);
  DLLM_TRY(const auto sealed, fields.text("encrypted_content"));
  DLLM_TRY(const std::string said, part_texts(fields.find("content"), "reasoning_text", where + ".content"));
  DLLM_TRY(const std::string summary, part_texts(fields.find("summary"), "summary_text", where + ".summary"));
  DLLM_CHECK_OK(fields.done());
  if (!said.empty()) return said;
  return sealed ? unsealed_thoughts(*sealed).value_or(summary) : summary;
}

/// The messages of a list of items: items of one answer are one message of the assistant.
class MessagesOfItems {
 public:
  Expected<void> add(const Json& item, const std::string& where, Ignored& ignored) {
    const Json type = type_of_block(item);
    if (type == "reasoning") {
      DLLM_TRY(const std::string more, thoughts_from_item(item, where, ignored));
      add_thoughts(thoughts_, more);
    } else if (type == "function_call") {
      DLLM_TRY(Json call, call_from_item(item, where, ignored));
      if (!thoughts_.empty() || !goes_on()) begin_answer();
      list_.back()["tool_calls"].push_back(std::move(call));
    } else if (type == "function_call_output") {
      end_thoughts();
      DLLM_TRY(Json message, result_from_item(item, where, ignored));
      list_.push_back(std::move(message));
    } else {
      const bool answer = item.is_object() && item.value("role", Json()) == "assistant";
      if (!answer) end_thoughts();
      list_.push_back(item);
      if (item.is_object())
        for (const char* unused : {"type", "id", "status"}) list_.back().erase(unused);
      if (answer && !thoughts_.empty()) list_.back()["reasoning_content"] = std::exchange(thoughts_, {});
    }
    return {};
  }
  Json take() {
    end_thoughts();
    return std::move(list_);
  }

 private:
  bool goes_on() const {
    return !list_.empty() && list_.back().is_object() && list_.back().value("role", Json()) == "assistant";
  }
  void begin_answer() {
    list_.push_back({{"role", "assistant"}, {"content", ""}});
    if (!thoughts_.empty()) list_.back()["reasoning_content"] = std::exchange(thoughts_, {});
  }
  /// An answer that was cut consists of thoughts only.
  void end_thoughts() {
    if (!thoughts_.empty()) begin_answer();
  }

  Json list_ = Json::array();
  std::string thoughts_;
};

/// What a tool says about when and how it is called. Deferred tools are loaded at once: nothing here searches for them.
Expected<void> read_tool_hints(Fields& one, bool& strict) {
  DLLM_TRY(const bool wished, one.flag("strict", false));
  strict = strict || wished;
  for (const char* flag : {"defer_loading", "eager_input_streaming"}) {
    DLLM_TRY(const bool given, one.flag(flag, false));
    if (given) one.ignore(flag);
  }
  const Json* callers = one.find("allowed_callers");
  if (callers != nullptr && (!callers->is_array() || std::ranges::count(*callers, Json("direct")) == 0))
    return wrong_type("tools.allowed_callers", "a list with \"direct\": no other tool calls tools");
  return {};
}

/// Examples of inputs, which a template writes with the rest of the tool.
Expected<void> add_examples(const Json* examples, Json& tool) {
  if (examples == nullptr) return {};
  if (!examples->is_array() || !std::ranges::all_of(*examples, [](const Json& one) { return one.is_object(); }))
    return wrong_type("tools.input_examples", "a list of objects");
  if (!examples->empty()) tool["function"]["input_examples"] = *examples;
  return {};
}

}  // namespace

Expected<std::optional<Tools>> read_anthropic_tools(Fields& fields) {
  const Json *list = fields.find("tools"), *choice = fields.find("tool_choice");
  DLLM_TRY(const ToolChoice chosen, read_choice(choice));
  Tools tools;
  tools.schema = "input_schema";
  tools.stop = "stop_sequences";
  if (list == nullptr) return under_choice(std::move(tools), chosen);
  if (!list->is_array()) return wrong_type("tools", "a list of tools");
  for (const Json& tool : *list) {
    const Json type = type_of_block(tool);
    if (!tool.is_object() || (type != "custom" && !type.is_null()))
      return wrong_type("tools", "tools of your own: name, description, input_schema");
    Fields one(tool, fields.ignored(), "tools");
    one.find("type");
    read_cache_control(one);
    DLLM_CHECK_OK(read_tool_hints(one, tools.strict));
    DLLM_TRY(const auto name, one.text("name"));
    const Json *description = one.find("description"), *schema = one.find("input_schema");
    const Json* examples = one.find("input_examples");
    DLLM_CHECK_OK(one.done());
    if (!name || schema == nullptr || !schema->is_object())
      return wrong_type("tools", "tools with a name and an input_schema");
    tools.list.push_back(chat_tool(*name, description, schema));
    DLLM_CHECK_OK(add_examples(examples, tools.list.back()));
  }
  if (choice != nullptr && choice->is_object()) {
    Fields one(*choice);
    one.find("type"), one.find("name");
    DLLM_TRY(const bool single, one.flag("disable_parallel_tool_use", false));
    DLLM_CHECK_OK(one.done());
    tools.parallel = !single;
  }
  return tools_of(fields, std::move(tools), chosen);
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
    Fields one(tool, fields.ignored(), "tools");
    one.find("type");
    read_cache_control(one);
    DLLM_CHECK_OK(read_tool_hints(one, tools.strict));
    one.ignore("output_schema");
    DLLM_TRY(const auto name, one.text("name"));
    const Json *description = one.find("description"), *parameters = one.find("parameters");
    DLLM_CHECK_OK(one.done());
    if (!name) return wrong_type("tools", "tools of type \"function\", each with a name");
    tools.list.push_back(chat_tool(*name, description, parameters));
  }
  return tools_of(fields, std::move(tools), chosen);
}

Expected<Json> messages_from_anthropic(const Json& list, const std::string& field, Ignored& ignored) {
  if (!list.is_array()) return list;
  Json result = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", field, i);
    const Json role = list[i].is_object() ? list[i].value("role", Json()) : Json();
    if (role == "assistant" && list[i].contains("content") && list[i]["content"].is_array()) {
      DLLM_TRY(Json message, assistant_from_blocks(list[i], where, ignored));
      result.push_back(std::move(message));
    } else if (role == "user" && has_block(list[i], "tool_result")) {
      DLLM_CHECK_OK(append_results(list[i], where, ignored, result));
    } else {
      result.push_back(list[i]);
    }
  }
  return result;
}

Expected<Json> messages_from_response_items(const Json& list, const std::string& field, Ignored& ignored) {
  if (!list.is_array()) return list;
  MessagesOfItems messages;
  for (std::size_t i = 0; i < list.size(); ++i)
    DLLM_CHECK_OK(messages.add(list[i], fmt::format("{}[{}]", field, i), ignored));
  return messages.take();
}

}  // namespace dllm::serve
