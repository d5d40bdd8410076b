// POST /v1/choose: how probable each of several answers is (LanguageModel::score_choices). The pass of each choice runs
// between the rounds of generations.
#include <fmt/format.h>

#include <memory>

#include "base/try.h"
#include "engine/choices.h"
#include "serve/answer.h"
#include "serve/conversation.h"

namespace dllm::serve {
namespace {

constexpr std::size_t kMostScored = 64, kMostChoiceTokens = 64;

class ChooseJob : public std::enable_shared_from_this<ChooseJob> {
 public:
  ChooseJob(CallPtr call, std::vector<std::int32_t> prompt, std::vector<std::string> texts,
            std::vector<std::vector<std::int32_t>> answers)
      : call_(std::move(call)), prompt_(std::move(prompt)), answers_(std::move(answers)) {
    for (std::size_t i = 0; i < answers_.size(); ++i)
      scores_.push_back({std::move(texts[i]), static_cast<std::int32_t>(answers_[i].size()), 0, 0});
    ++call_->served().scoring;
  }
  ~ChooseJob() { --call_->served().scoring; }

  void post() {
    call_->served().scheduler.post([self = shared_from_this()] { self->pass(); });
  }

 private:
  void pass() {
    if (call_->is_over()) return;
    const auto log = call_->served().model.answer_log_prob(prompt_, answers_[next_], choice_canvas(answers_));
    if (!log) return call_->fail(log.error());
    scores_[next_++].log_probability = *log;
    next_ < answers_.size() ? post() : finish();
  }

  void finish() {
    set_shares(scores_);
    Json data = Json::array();
    std::size_t best = 0, tokens = prompt_.size();
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      if (scores_[i].log_probability > scores_[best].log_probability) best = i;
      tokens += answers_[i].size();
      data.push_back({{"index", i},
                      {"text", scores_[i].text},
                      {"probability", scores_[i].probability},
                      {"log_probability", scores_[i].log_probability},
                      {"tokens", scores_[i].tokens}});
    }
    call_->reply({{"id", new_id("choice-", *call_)},
                  {"object", "list"},
                  {"model", call_->name()},
                  {"choice", scores_[best].text},
                  {"data", std::move(data)},
                  {"usage", {{"prompt_tokens", tokens}, {"completion_tokens", 0}, {"total_tokens", tokens}}}});
  }

  CallPtr call_;
  std::vector<std::int32_t> prompt_;
  std::vector<std::vector<std::int32_t>> answers_;
  std::vector<ChoiceScore> scores_{};
  std::size_t next_ = 0;
};

}  // namespace

Expected<void> choose(const CallPtr& call) {
  ServedModel& served = call->served();
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  DLLM_TRY(auto prompt, read_context(served, fields));
  const Json* list = fields.find("choices");
  if (list == nullptr || !list->is_array()) return wrong_type("choices", "a list of texts");
  DLLM_TRY(auto texts, fields.texts("choices", kMostScored));
  DLLM_CHECK_OK(fields.done());
  for (const std::string& text : texts) DLLM_CHECK_OK(served.check_size(text.size(), "choices"));
  DLLM_TRY(auto answers, choice_ids(served.model, texts));
  // The pass of a choice has a sequence per token, and other requests wait for it.
  for (const auto& answer : answers)
    if (answer.size() > kMostChoiceTokens)
      return wrong_type("choices", fmt::format("texts of up to {} tokens", kMostChoiceTokens));
  if (served.scoring >= served.options.scheduling.queue + 1)
    return Error{ErrorCode::kResource, "too many texts are being scored", std::string(kQueueFull), "try again later"};
  const auto job = std::make_shared<ChooseJob>(call, std::move(prompt), std::move(texts), std::move(answers));
  job->post();
  return {};
}

}  // namespace dllm::serve
