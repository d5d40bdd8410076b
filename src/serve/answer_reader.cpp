#include "serve/answer_reader.h"

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace dllm::serve {
namespace {

constexpr std::string_view kCall = "<tool_call>";

bool has_structure(const GenerateOptions& options) {
  return options.regex || options.json_schema || options.tool_calls;
}

/// Calls that are messages of their own; one that no tool of the request takes is text.
void add_calls(ParsedAnswer& parsed, const std::vector<MessageCall>& calls, const std::optional<Tools>& tools) {
  for (const MessageCall& one : calls) {
    const auto arguments = parse_body(one.arguments);
    const bool full = tools && !tools->parallel && !parsed.calls.empty();
    if (tools && arguments && is_tool(*tools, one.name)) {
      if (!full) parsed.calls.push_back({one.name, dump(*arguments)});
    } else {
      parsed.text += one.arguments;
    }
  }
}

}  // namespace

AnswerReader::AnswerReader(const ServedModel& served, std::optional<Tools> tools, Thinking thinking,
                           std::string opening)
    : tools_(std::move(tools)), thinking_(std::move(thinking)), opening_(std::move(opening)) {
  const TemplateFacts& facts = served.facts(tools_.has_value());
  format_ = facts.thoughts;
  markers_ = facts.markers;
}

ParsedAnswer AnswerReader::parse(const std::string& answer) const {
  ParsedAnswer parsed;
  const ThoughtFormat format = thinking_.apart ? format_ : ThoughtFormat();
  SplitAnswer split = split_answer(format, opening_, answer, /*complete=*/true, tools_ ? kCall : "");
  parsed.thought_bytes = split.thought_bytes;
  if (!thinking_.hidden) parsed.thoughts = std::move(split.thoughts);
  if (tools_ && split.calls.empty()) {
    ToolAnswer called = parse_tool_calls(split.text, *tools_);
    parsed.text = std::move(called.text);
    parsed.calls = std::move(called.calls);
  } else {
    parsed.text = std::move(split.text);
    add_calls(parsed, split.calls, tools_);
  }
  return parsed;
}

ShownAnswer AnswerReader::shown(const std::string& answer, bool complete) const {
  if (complete) {
    ParsedAnswer parsed = parse(answer);
    return {std::move(parsed.thoughts), std::move(parsed.text)};
  }
  const ThoughtFormat format = thinking_.apart ? format_ : ThoughtFormat();
  SplitAnswer split = split_answer(format, opening_, answer, complete, tools_ ? kCall : "");
  if (thinking_.hidden) split.thoughts.clear();
  if (tools_) split.text.resize(text_before_calls(split.text));
  return {std::move(split.thoughts), std::move(split.text)};
}

void AnswerReader::prepare(AnswerRequest& request, const GenerateOptions& options, const Json& body) const {
  for (const std::int32_t id : markers_)
    if (std::ranges::count(request.shown, id) == 0) request.shown.push_back(id);
  const bool opened = opens_thought(format_, opening_);
  if (!has_structure(options) || body.contains("regex")) return;
  const bool thinks = opened || thinking_.asks() == true;
  request.preamble = thinks ? thoughts_regex(format_, opening_) : header_regex(format_, opening_);
}

std::int64_t AnswerReader::thought_tokens(const LanguageModel& model, const Generation& answer) const {
  const ThoughtFormat format = thinking_.apart ? format_ : ThoughtFormat();
  const std::size_t end = split_answer(format, opening_, answer.text, /*complete=*/true).thought_bytes;
  const auto most = static_cast<std::size_t>(answer.stats.answer_tokens);
  std::size_t bytes = 0, tokens = 0;
  for (; tokens < most && tokens < answer.ids.size() && bytes < end; ++tokens) {
    const bool special = std::ranges::count(markers_, answer.ids[tokens]) > 0;
    if (const auto text = model.detokenize({answer.ids[tokens]}, special)) bytes += text->size();
  }
  return static_cast<std::int64_t>(tokens);
}

Expected<PreparedConversation> prepare(const CallPtr& call, const Conversation& conversation,
                                       std::optional<Tools> tools, const Thinking& thinking,
                                       const GenerateOptions& options) {
  const bool structured = has_structure(options) && !call->body.contains("regex");
  DLLM_TRY(ConversationPrompt prompt,
           render(call->served(), conversation, tools, thinking, structured, call->ignored, call->stop.get_token()));
  return PreparedConversation{std::move(prompt.ids),
                              AnswerReader(call->served(), std::move(tools), thinking, std::move(prompt.opening)),
                              std::move(prompt.images)};
}

}  // namespace dllm::serve
