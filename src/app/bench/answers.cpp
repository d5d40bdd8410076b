// Whole answers in the virtual time of a backend: recorded commits, no values.
#include "app/bench/answers.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/bench/workload.h"
#include "app/cli/report.h"
#include "base/try.h"
#include "engine/generate.h"
#include "engine/load.h"
#include "engine/replay.h"
#include "engine/trace.h"
#include "engine/virtual_time.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

/// Answers of a recording, one after the other.
struct Replayed {
  VirtualParts parts;
  VirtualEnergy energy;
  double prompt = 0, first_block = 0;  ///< sums of seconds
  GenerateStats stats;
  std::int64_t simulated = 0;  ///< passes
  std::string unsimulated;     ///< why others are not
  Json answers = Json::array();
};

class AnswerBench {
 public:
  /// `running`: without values, with a clock.
  AnswerBench(const ShapeModel& model, const RunningBackend& running, const BenchWatch& watch)
      : model_(model), running_(running), watch_(watch) {}

  Expected<Json> run(const BenchRequests& work) {
    VirtualClock& clock = *running_.clock;
    DLLM_TRY(const AnswerMeans means, answer_means(running_, work.options, watch_.stop));
    const auto start = std::chrono::steady_clock::now();
    Replayed sum;
    for (std::size_t i = 0; i < work.prompts.size(); ++i) {
      if (watch_.progress) watch_.progress("answers in virtual time");
      clock.reset();
      DLLM_TRY(const Generation answer, generate(means.on(*running_.backend), work.prompts[i], work.options,
                                                 {.stop = watch_.stop, .replay = &work.replays[i]}));
      if (answer.finish == FinishReason::kCancelled)
        return Error{ErrorCode::kCancelled, "the benchmark was interrupted", "", ""};
      DLLM_CHECK_OK(check_replayed(answer, work.replays[i]));
      add(clock.read(answer), answer, sum);
    }
    const std::chrono::duration<double> host = std::chrono::steady_clock::now() - start;
    return record(work, sum, host.count());
  }

 private:
  static void add(const VirtualTime& time, const Generation& answer, Replayed& sum) {
    sum.parts += time.parts;
    sum.energy += time.energy;
    sum.prompt += time.prompt_seconds;
    sum.first_block += time.first_block_seconds;
    sum.stats.answer_tokens += answer.stats.answer_tokens;
    sum.stats.nfe += answer.stats.nfe;
    sum.stats.second_passes += answer.stats.second_passes;
    sum.stats.rows_forwarded += answer.stats.rows_forwarded;
    sum.stats.rows_scored += answer.stats.rows_scored;
    sum.stats.prompt_tokens += answer.stats.prompt_tokens;
    Json one = virtual_json(time, answer.stats.answer_tokens);
    one["prompt_tokens"] = answer.stats.prompt_tokens;
    one["answer_tokens"] = answer.stats.answer_tokens;
    one["nfe"] = answer.stats.nfe;
    for (const VirtualStep& step : time.steps) sum.simulated += step.simulated ? 1 : 0;
    sum.unsimulated = time.unsimulated;
    sum.answers.push_back(std::move(one));
  }

  Json record(const BenchRequests& work, const Replayed& sum, double host_seconds) const {
    const auto count = static_cast<double>(work.prompts.size());
    const double seconds = sum.parts.seconds();
    Json json = {{"test", "answers"}, {"name", model_.name}, {"architecture", model_.desc.architecture}};
    json.update(running_.clock->settings());
    json.update(Json{{"replay", replay_json(work)},
                     {"options", options_json(work.options)},
                     {"requests", work.prompts.size()},
                     {"prompt_tokens", sum.stats.prompt_tokens / static_cast<std::int32_t>(work.prompts.size())},
                     {"answer_tokens", sum.stats.answer_tokens},
                     {"nfe", sum.stats.nfe},
                     {"second_passes", sum.stats.second_passes},
                     {"passes_simulated", sum.simulated},
                     {"unsimulated", sum.unsimulated},
                     {"rows_forwarded", sum.stats.rows_forwarded},
                     {"rows_scored", sum.stats.rows_scored},
                     {"virtual", virtual_sum_json(sum.parts, sum.energy)},
                     {"virtual_ms_per_answer", seconds * 1e3 / count},
                     {"virtual_prompt_ms", sum.prompt * 1e3 / count},
                     {"virtual_first_block_ms", sum.first_block * 1e3 / count},
                     {"joules_per_answer", sum.energy.joules() / count},
                     {"tokens_per_second", sum.stats.answer_tokens / seconds},
                     {"tokens_per_joule", sum.stats.answer_tokens / sum.energy.joules()},
                     {"host_seconds", host_seconds},
                     {"answers", sum.answers}});
    return json;
  }

  const ShapeModel& model_;
  const RunningBackend& running_;
  const BenchWatch& watch_;
};

}  // namespace

Expected<ShapeModel> ShapeModel::open(const BackendEntry& backend, const std::string& name, bool warnings) {
  ShapeModel result;
  std::optional<ModelOutline> outline;
  if (backend.outline != nullptr) {
    DLLM_TRY(outline, backend.outline(name));
  }
  if (outline) {
    result.name = outline->name;
    result.desc = outline->desc;
    result.graph = outline->graph;
    const auto vocab = static_cast<TokenId>(result.desc.vocab);
    result.desc.mask = vocab - 1;
    // Two tokens that end answers, as most models have: a recorded answer may exchange one for the other.
    result.desc.stop_ids = {vocab - 2, vocab - 3};
    constexpr std::int64_t kContext = 32768;
    result.desc.context_length = std::max(result.desc.context_length, kContext);
    return result;
  }
  DLLM_TRY(auto source, open_or_embedded(name));
  DLLM_TRY(result.model, Model::load(std::move(source), warnings ? Log() : Log([](LogLevel, const std::string&) {})));
  result.name = name.empty() ? "embedded" : std::filesystem::path(name).stem().string();
  result.desc = result.model->desc();
  result.graph = [model = result.model](StepShape step) { return model->build(step); };
  return result;
}

Expected<void> bench_answers(const BackendEntry& backend, const std::string& model, const BenchOptions& options,
                             const BenchWatch& watch, const BenchSink& sink) {
  if (options.replays.empty())
    return Error{ErrorCode::kUsage, "which positions a pass decides depends on values, which are not computed here",
                 "--backend " + backend.name, "add --replay FILE, or use `dllm run` for answers of the model itself"};
  DLLM_TRY(const ShapeModel shape, ShapeModel::open(backend, model, options.load.warnings));
  for (const std::string& file : options.replays)
    for (const std::int32_t tokens : options.prompts.empty() ? std::vector{0} : options.prompts) {
      // One for each recording, as it counts what it could not simulate.
      DLLM_TRY(const RunningBackend running, backend.make_valueless(shape.desc, shape.graph, options.load));
      DLLM_TRY(const BenchRequests work,
               recorded_workload(shape.desc, {file, options.answers, options.generate.length.value_or(0), tokens,
                                              options.generate.seed}));
      DLLM_TRY(const Json record, AnswerBench(shape, running, watch).run(work));
      sink(record);
    }
  return {};
}

}  // namespace dllm::app
