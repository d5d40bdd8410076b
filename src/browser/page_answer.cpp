#include "browser/page_answer.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/trace.h"

namespace dllm::browser {
namespace {

using Json = nlohmann::ordered_json;

Json delta(std::string_view field, std::string_view more) {
  return {{"choices", {{{"index", 0}, {"delta", {{field, more}}}}}}};
}

/// What `now` adds to what was told. Told text is never taken back: if a text does not continue it, nothing is told
/// until one does.
std::string_view addition(const std::string& now, const std::string& told) {
  return now.starts_with(told) ? std::string_view(now).substr(told.size()) : std::string_view();
}

/// One event of a stream.
std::string event_line(const std::string& json) { return "data: " + json + "\n\n"; }
std::string event_line(const Json& json) {
  return event_line(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

std::string error_text(const Error& error) {
  const std::string message = error.hint.empty() ? error.what : error.what + " (" + error.hint + ")";
  const Json json = {{"error", {{"message", message}, {"param", error.where.empty() ? Json() : Json(error.where)}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PageAnswer::PageAnswer(const LanguageModel& model, std::string opening)
    : model_(model), opening_(std::move(opening)), format_(thought_format(model.chat_template())) {}

std::vector<std::int32_t> PageAnswer::shown_tokens() const {
  std::vector<std::int32_t> shown;
  for (const std::string& marker : format_.markers())
    if (const auto ids = model_.tokenize(marker, /*special=*/true); ids && ids->size() == 1) shown.push_back((*ids)[0]);
  return shown;
}

double PageAnswer::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void PageAnswer::tell(const std::string& text, bool complete) {
  SplitAnswer split = split_answer(format_, opening_, text, complete);
  if (const auto more = addition(split.thoughts, thoughts_); !more.empty()) {
    events_ += event_line(delta("reasoning_content", more));
    thoughts_ = std::move(split.thoughts);
  }
  if (const auto more = addition(split.text, text_); !more.empty()) {
    events_ += event_line(delta("content", more));
    text_ = std::move(split.text);
  }
}

void PageAnswer::on_step(const StepEvent& event) {
  tell(event.text, /*complete=*/false);
  Json json = {{"choices", Json::array()}};
  json["diffusion"] = trace_step(model_, event, seconds(), !std::exchange(stepped_, true));
  events_ += event_line(json);
}

void PageAnswer::on_done(const Expected<Generation>& answer) {
  ended_ = true;
  if (!answer) {
    events_ += event_line(error_text(answer.error()));
    return;
  }
  if (answer->finish == FinishReason::kCancelled) return;  // the page does not listen any more
  tell(answer->text, /*complete=*/true);
  events_ += event_line(Json{{"choices", Json::array()},
                             {"diffusion",
                              {{"nfe", answer->stats.nfe},
                               {"masked", 0},
                               {"final", true},
                               {"options", options_json(answer->options)},
                               {"result", trace_result(*answer)}}}});
  events_ += "data: [DONE]\n\n";
}

std::string PageAnswer::take_events() { return std::exchange(events_, {}); }

}  // namespace dllm::browser
