// POST /v1/score: the likelihood of a continuation given a context, by LLaDA's estimator (Nie et al., arXiv 2502.09992,
// eq. 6; eval/likelihood.h). Its passes run between the rounds of generations, a few masks at a time.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/try.h"
#include "eval/likelihood.h"
#include "serve/answer.h"
#include "serve/conversation.h"

namespace dllm::serve {
namespace {

constexpr std::int64_t kMostSamples = 4096, kMostTargets = 64;
constexpr std::size_t kMasksPerPass = 4;

struct ScoreTarget {
  std::vector<std::int32_t> ids;  ///< context and continuation
  LikelihoodPlan plan;
  std::vector<double> values{};  ///< by sample
};

class ScoreJob : public std::enable_shared_from_this<ScoreJob> {
 public:
  ScoreJob(CallPtr call, std::vector<ScoreTarget> targets, std::int32_t context, double cfg_scale, bool list)
      : call_(std::move(call)), targets_(std::move(targets)), context_(context), cfg_scale_(cfg_scale), list_(list) {
    ++call_->served().scoring;
  }
  ~ScoreJob() { --call_->served().scoring; }

  void post() {
    call_->served().scheduler.post([self = shared_from_this()] { self->pass(); });
  }

 private:
  void pass() {
    if (call_->is_over()) return;
    std::vector<MaskedText> texts;
    std::vector<std::size_t> owners;
    while (next_ < targets_.size() && texts.size() < kMasksPerPass) {
      const ScoreTarget& target = targets_[next_];
      texts.push_back({target.ids, target.plan.mask(sample_), context_});
      for (std::int32_t& position : texts.back().masked) position += context_;
      owners.push_back(next_);
      if (++sample_ == target.plan.samples()) ++next_, sample_ = 0;
    }
    const auto logs = call_->served().model.masked_log_probs_batch(texts, cfg_scale_);
    if (!logs) return call_->fail(logs.error());
    for (std::size_t i = 0; i < logs->size(); ++i)
      targets_[owners[i]].values.push_back(targets_[owners[i]].plan.value((*logs)[i]));
    next_ < targets_.size() ? post() : finish();
  }

  void finish() {
    Json scores = Json::array();
    std::int64_t tokens = context_;
    for (const ScoreTarget& target : targets_) {
      const LikelihoodEstimate estimate = target.plan.combine(target.values);
      const std::int64_t length = static_cast<std::int64_t>(target.ids.size()) - context_;
      tokens += length;
      scores.push_back({{"index", scores.size()},
                        {"log_likelihood", estimate.log_likelihood},
                        {"standard_error", estimate.standard_error},
                        {"samples", estimate.samples},
                        {"tokens", length}});
    }
    Json json = {
        {"id", new_id("score-", *call_)}, {"object", "list"}, {"model", call_->name()}, {"data", std::move(scores)}};
    if (!list_)
      json.update(Json{{"log_likelihood", json["data"][0]["log_likelihood"]},
                       {"standard_error", json["data"][0]["standard_error"]}});
    json["usage"] = {{"prompt_tokens", tokens}, {"completion_tokens", 0}, {"total_tokens", tokens}};
    call_->reply(json);
  }

  CallPtr call_;
  std::vector<ScoreTarget> targets_;
  std::int32_t context_;
  double cfg_scale_;
  bool list_;
  std::size_t next_ = 0;
  std::int32_t sample_ = 0;
};

Expected<double> read_cfg_scale(Fields& fields) {
  const Json* value = fields.find("cfg_scale");
  if (value == nullptr) return 0.0;
  if (!value->is_number() || value->get<double>() < 0 || value->get<double>() > 1e6)
    return wrong_type("cfg_scale", "a number from 0");
  return value->get<double>();
}

Expected<ScoreTarget> read_target(const ServedModel& served, const Json& continuation,
                                  const std::vector<std::int32_t>& context, const LikelihoodOptions& options) {
  std::vector<std::int32_t> tokens;
  if (continuation.is_string()) {
    DLLM_CHECK_OK(served.check_size(continuation.get_ref<const std::string&>().size(), "continuation"));
    DLLM_TRY(tokens, served.model.tokenize(continuation.get_ref<const std::string&>(), /*special=*/false));
  } else {
    DLLM_TRY(tokens, token_ids(continuation, "continuation"));
  }
  if (tokens.empty()) return wrong_type("continuation", "a text of at least one token");
  const auto length = static_cast<std::int32_t>(tokens.size());
  LikelihoodPlan plan = LikelihoodPlan::whole(length);
  if (!served.model.autoregressive()) {
    DLLM_TRY(plan, LikelihoodPlan::sampled(length, options));
  }
  ScoreTarget target{context, plan};
  target.ids.insert(target.ids.end(), tokens.begin(), tokens.end());
  if (static_cast<std::int64_t>(target.ids.size()) > served.model.context_length())
    return Error{ErrorCode::kUsage,
                 fmt::format("{} tokens exceed the context of {}", target.ids.size(), served.model.context_length()),
                 "continuation", ""};
  return target;
}

}  // namespace

Expected<void> score(const CallPtr& call) {
  ServedModel& served = call->served();
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  DLLM_TRY(const auto context, read_context(served, fields));
  const Json* continuation = fields.find("continuation");
  if (continuation == nullptr) return wrong_type("continuation", "given");
  DLLM_TRY(const auto samples, fields.integer("samples", 0, kMostSamples));
  DLLM_TRY(const auto seed, fields.integer("seed", 0, std::numeric_limits<std::int64_t>::max()));
  DLLM_TRY(const auto item, fields.integer("item", 0, std::numeric_limits<std::uint32_t>::max()));
  DLLM_TRY(const double cfg_scale, read_cfg_scale(fields));
  DLLM_CHECK_OK(fields.done());
  const LikelihoodOptions options{
      .samples = static_cast<std::int32_t>(samples.value_or(128)),
      .rng = {static_cast<std::uint64_t>(seed.value_or(0)), static_cast<std::uint32_t>(item.value_or(0))}};
  const bool list = continuation->is_array() && !continuation->empty() && !continuation->front().is_number();
  if (list && continuation->size() > kMostTargets)
    return wrong_type("continuation", fmt::format("at most {} texts", kMostTargets));
  std::vector<ScoreTarget> targets;
  for (std::size_t i = 0; i < (list ? continuation->size() : 1); ++i) {
    DLLM_TRY(ScoreTarget target, read_target(served, list ? (*continuation)[i] : *continuation, context, options));
    targets.push_back(std::move(target));
  }
  if (served.scoring >= served.options.scheduling.queue + 1)
    return Error{ErrorCode::kResource, "too many texts are being scored", std::string(kQueueFull), "try again later"};
  const auto job =
      std::make_shared<ScoreJob>(call, std::move(targets), static_cast<std::int32_t>(context.size()), cfg_scale, list);
  job->post();
  return {};
}

}  // namespace dllm::serve
