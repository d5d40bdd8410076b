#include "experiment/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/try.h"
#include "cpu/cpu_backend.h"
#include "engine/backends.h"
#include "engine/generate.h"
#include "engine/resolve.h"
#include "eval/eval_set.h"
#include "npu_backend/timed/timed_backend.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

constexpr std::size_t kPrompts = 3;
constexpr std::int64_t kStairRows = 128;

/// Runs a backend that others own, and notes the shapes of its steps.
class NotedBackend final : public Backend {
 public:
  explicit NotedBackend(Backend& values) : values_(values) {}
  const ModelDesc& desc() const override { return values_.desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return values_.make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    passes.push_back({npu::step_totals(batch)});
    return values_.forward(batch);
  }
  Lab::Passes passes;
  Backend& values() { return values_; }

 private:
  Backend& values_;
};

/// The second path of a noted backend: values at once, and notes of what was launched and waited for.
class NotedRunner final : public PassRunner {
 public:
  explicit NotedRunner(NotedBackend& noted) : noted_(noted) {}
  std::future<Expected<std::vector<Scores>>> start(SequenceStep step) override {
    std::promise<Expected<std::vector<Scores>>> promise;
    promise.set_value(noted_.values().forward({&step, 1}));
    noted_.passes.push_back({npu::step_totals({&step, 1}), PassEvent::Kind::kLaunch, launched_++});
    return promise.get_future();
  }
  // One sequence has one pass at a time: the latest.
  void wait_for(const KvCache&) override { note(PassEvent::Kind::kWait); }
  void drop(const KvCache&) override { note(PassEvent::Kind::kDrop); }
  void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) override {
    CpuBackend::copy_rows(from, to, rows);
  }

 private:
  void note(PassEvent::Kind kind) { noted_.passes.push_back({{}, kind, launched_ - 1}); }

  NotedBackend& noted_;
  std::size_t launched_ = 0;
};

/// "speculative 8": with a lookahead at 8 masks. "threshold 0.7": with that threshold.
Expected<GenerateOptions> decoding_options(const std::string& decoding, std::int32_t tokens) {
  const std::size_t space = std::min(decoding.find(' '), decoding.size());
  using Given = std::vector<std::pair<const char*, const char*>>;
  static const Given kAhead = {{"window", "lookahead"}, {"cache", "dual"}, {"latency", "auto"}};
  static const std::map<std::string, std::pair<Given, bool>> kGiven = {
      // second: with the lookahead
      {"prefix", {{{"algorithm", "low-confidence"}, {"cache", "prefix"}}, false}},
      {"threshold", {{{"algorithm", "threshold"}, {"cache", "prefix"}}, false}},
      {"dual", {{{"algorithm", "threshold"}, {"threshold", "0.9"}, {"cache", "dual"}}, false}},
      {"speculative", {{{"algorithm", "threshold"}, {"threshold", "0.9"}}, true}},
      {"hasty", {{{"algorithm", "threshold"}, {"threshold", "0.7"}}, true}},
      {"states", {{{"algorithm", "revision"}, {"refresh_rows", "0"}, {"drain_rounds", "0"}}, true}},
      {"refresh", {{{"algorithm", "revision"}, {"refresh_path", "second"}}, true}},
      {"folded", {{{"algorithm", "revision"}}, true}},
      {"masked", {{{"algorithm", "revision"}, {"leave_one_out", "true"}, {"reopen", "true"}}, true}}};
  GenerateOptions options;
  const auto& [given, ahead] = kGiven.at(decoding.substr(0, space));
  for (const auto& [key, text] : given) DLLM_CHECK_OK(options.set(key, text));
  if (ahead)
    for (const auto& [key, text] : kAhead) DLLM_CHECK_OK(options.set(key, text));
  if (space < decoding.size() && !ahead) {
    DLLM_CHECK_OK(options.set("threshold", decoding.substr(space + 1)));
  } else if (space < decoding.size()) {
    DLLM_CHECK_OK(options.set("lookahead_masks", decoding.substr(space + 1)));
    if (decoding.substr(space + 1) == "0") options.window.options.erase("latency");  // not read
  }
  options.length = tokens;
  options.block_length = 32;
  options.exact_length = true;
  return options;
}

}  // namespace

const std::vector<AnswerMode>& answer_modes() {
  using npu::StepProcessor;
  static const std::vector<AnswerMode> modes = {{"host, prefix cache", "prefix", {StepProcessor::kHost, true, false}},
                                                {"NPU", "prefix", {StepProcessor::kDevice, false, false}},
                                                {"+ memory runtime", "prefix", {StepProcessor::kDevice, true, false}},
                                                {"+ speculative", "speculative", {StepProcessor::kDevice, true, false}},
                                                {"+ staged states", "states", {StepProcessor::kDevice, true, false}},
                                                {"+ logits skipping", "states", {StepProcessor::kDevice, true, true}},
                                                {"+ sparse refresh", "refresh", {StepProcessor::kDevice, true, true}}};
  return modes;
}

Expected<void> Lab::begin_part(std::size_t index, std::size_t count) const {
  if (stop_.stop_requested()) return Error{ErrorCode::kCancelled, "the experiment was interrupted", "", ""};
  progress_(static_cast<double>(index) / static_cast<double>(count));
  return {};
}

Expected<const ShapeModel*> Lab::shape(const std::string& name) {
  const std::string& wanted = name.empty() ? inputs_.shape : name;
  auto known = shapes_.find(wanted);
  if (known == shapes_.end()) {
    DLLM_TRY(const BackendEntry* const npu, find_backend("npu"));
    DLLM_TRY(ShapeModel shape, ShapeModel::open(*npu, wanted, true));
    known = shapes_.emplace(wanted, std::move(shape)).first;
  }
  return &known->second;
}

Expected<void> Lab::open() {
  if (model_) return {};
  DLLM_TRY(BenchModel model, BenchModel::open(inputs_.model, {}));
  DLLM_TRY(const LanguageModel text, LanguageModel::load(inputs_.model));
  DLLM_TRY(const EvalSet items, read_eval_set(inputs_.items));
  for (std::size_t i = 0; i < std::min(kPrompts, items.items.size()); ++i) {
    DLLM_TRY(auto ids, text.apply_template({{"user", items.items[i].prompt}}));
    prompts_.push_back(std::move(ids));
  }
  model_ = std::make_unique<BenchModel>(std::move(model));
  return {};
}

Expected<const LatencyTable*> Lab::stairs() {
  if (stairs_) return stairs_.get();
  DLLM_TRY(const ShapeModel* const shape, this->shape());
  DLLM_TRY(const npu::Device device, npu::load_device("mobile-sm8750"));
  DLLM_TRY(const auto timed,
           npu::TimedBackend::create(std::make_unique<npu::ValuelessBackend>(shape->desc), device, shape->graph, {}));
  DLLM_TRY(LatencyTable stairs, timed->latency_table(kStairRows));
  stairs_ = std::make_unique<LatencyTable>(std::move(stairs));
  return stairs_.get();
}

Expected<const std::vector<Lab::Passes>*> Lab::passes(const std::string& decoding, std::int32_t tokens) {
  const std::string key = fmt::format("{} {}", decoding, tokens);
  if (const auto known = passes_.find(key); known != passes_.end()) return &known->second;
  DLLM_CHECK_OK(open());
  DLLM_TRY(const LatencyTable* const stairs, this->stairs());
  DLLM_TRY(const GenerateOptions options, decoding_options(decoding, tokens));
  DLLM_TRY(const ResolvedOptions resolved, resolve_options(options, model_->model->desc()));
  std::vector<Passes> all;
  for (const auto& prompt : prompts_) {
    NotedBackend noted(model_->backend());
    NotedRunner second(noted);
    DLLM_TRY(const Generation answer, generate({noted, nullptr, stairs, &second}, prompt, resolved, {.stop = stop_}));
    if (answer.finish == FinishReason::kCancelled)
      return Error{ErrorCode::kCancelled, "the experiment was interrupted", "", ""};
    all.push_back(std::move(noted.passes));
  }
  return &passes_.emplace(key, std::move(all)).first->second;
}

Expected<EvalReport> Lab::answers(const std::string& path, const EvalSet& items, const std::string& decoding,
                                  std::int32_t tokens, std::vector<Generation>* generations) {
  DLLM_TRY(const BenchModel model, BenchModel::open(path, {}));
  DLLM_TRY(const LanguageModel text, LanguageModel::load(path));
  DLLM_TRY(const LatencyTable* const stairs, this->stairs());
  DLLM_TRY(GenerateOptions options, decoding_options(decoding, tokens));
  options.exact_length = false;
  DLLM_TRY(const ResolvedOptions resolved, resolve_options(options, model.model->desc()));
  EvalModel bound;
  bound.answer = [&](const std::string& prompt) -> Expected<Generation> {
    DLLM_TRY(const auto ids, text.apply_template({{"user", prompt}}));
    NotedBackend noted(model.backend());
    NotedRunner second(noted);
    DLLM_TRY(Generation answer,
             generate({noted, model.model->tokenizer(), stairs, &second}, ids, resolved, {.stop = stop_}));
    if (generations != nullptr) generations->push_back(answer);
    return answer;
  };
  DLLM_TRY(EvalReport report, evaluate(items, Scoring::kGenerate, bound));
  if (!report.complete) return Error{ErrorCode::kCancelled, "the experiment was interrupted", "", ""};
  return report;
}

Expected<std::vector<Lab::Passes>> Lab::autoregression(std::int32_t tokens) {
  DLLM_CHECK_OK(open());
  std::vector<Passes> all;
  for (const auto& prompt : prompts_) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    Passes passes = {{{1, length, 1, length}}};
    for (std::int64_t i = 1; i < tokens; ++i) passes.push_back({{1, 1, 1, length + i}});
    all.push_back(std::move(passes));
  }
  return all;
}

Expected<npu::StepTimer> Lab::timer(const npu::Device& device, const npu::StepTotals& most,
                                    const npu::TimerOptions& timing, const std::string& shape) {
  DLLM_TRY(const ShapeModel* const model, this->shape(shape));
  return npu::StepTimer::create(device, model->graph, most, timing);
}

double Lab::count(const Passes& passes) {
  return static_cast<double>(std::ranges::count(passes, PassEvent::Kind::kPass, &PassEvent::kind));
}

Expected<npu::StepTime> Lab::time(const npu::Device& device, const std::vector<Passes>& answers,
                                  const npu::TimerOptions& timing, const std::string& shape) {
  npu::StepTotals most{1, 1, 0, 1};
  for (const Passes& passes : answers)
    for (const PassEvent& event : passes) {
      most.rows = std::max(most.rows, event.work.rows);
      most.keys = std::max(most.keys, event.work.keys);
    }
  DLLM_TRY(npu::StepTimer timer, this->timer(device, most, timing, shape));
  std::optional<npu::StepTimer> slow;
  if (device.thermal.sustained_w > 0) {
    DLLM_TRY(npu::StepTimer made, this->timer(npu::throttled(device), most, timing, shape));
    slow.emplace(std::move(made));
  }
  DLLM_TRY(const ShapeModel* const model, this->shape(shape));
  npu::StepTime sum;
  npu::AnswerClock clock(device, timing.processor);
  for (const Passes& passes : answers) {
    clock.reset();
    for (const PassEvent& event : passes) {
      const npu::StepTotals& work = event.work;
      if (event.kind == PassEvent::Kind::kWait) clock.wait(event.refresh);
      if (event.kind == PassEvent::Kind::kDrop) clock.drop(event.refresh);
      if (event.kind == PassEvent::Kind::kLaunch) {
        const Graph graph = model->graph({.rows = work.rows, .scored = work.scored});
        clock.launch(work, npu::host_stretches(graph, clock.device(), work.sequences, work.keys));
      }
      if (event.kind != PassEvent::Kind::kPass) continue;
      DLLM_TRY(const npu::StepProfile* const step, (clock.throttled() ? *slow : timer).profile(work));
      clock.advance(work, *step);
    }
    sum += clock.sum();
  }
  return sum.scaled(1 / static_cast<double>(answers.size()));
}

}  // namespace dllm::app
