// Whole answers in the virtual time of a simulated device: recorded commits, no values.
#include "app/bench/answers.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/bench/workload.h"
#include "app/cli/report.h"
#include "base/try.h"
#include "engine/backend/npu.h"
#include "engine/generate.h"
#include "engine/latency_file.h"
#include "engine/load.h"
#include "engine/load_options.h"
#include "engine/method.h"
#include "engine/replay.h"
#include "engine/trace.h"
#include "engine/virtual_time.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/device.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

bool is_shape(const std::string& name) { return npu::is_model_shape(name) || name.ends_with(".toml"); }

/// Answers of a recording, one after the other.
struct Replayed {
  npu::StepTime time;
  double prompt = 0, first_block = 0;  ///< sums of seconds
  GenerateStats stats;
  std::int64_t simulated = 0;  ///< passes
  std::string unsimulated;     ///< why others are not
  Json answers = Json::array();
};

class AnswerBench {
 public:
  AnswerBench(const ShapeModel& model, const npu::Device& device, const npu::TimerOptions& timing,
              const BenchWatch& watch)
      : model_(model), device_(device), timing_(timing), watch_(watch) {}

  Expected<Json> run(const Workload& work) {
    DLLM_TRY(const auto timed, npu::TimedBackend::create(std::make_unique<npu::ValuelessBackend>(model_.desc), device_,
                                                         model_.graph, timing_));
    RunningBackend running;
    running.timed = timed.get();
    running.device = device_.name;
    running.second_path = second_path_on_host(device_, *timed, &npu::ValuelessBackend::copy_rows);
    DLLM_TRY(const auto second, make_second_path(running, work.options, model_.desc));
    std::optional<LatencyTable> latency;
    if (const std::string name = latency_name(work.options); name == "auto") {
      DLLM_TRY(latency, device_latency(running));
    } else if (!name.empty()) {
      DLLM_TRY(latency, requested_latency(name, *timed, LatencyKey(), Log(), watch_.stop));
    }
    const auto start = std::chrono::steady_clock::now();
    Replayed sum;
    for (std::size_t i = 0; i < work.prompts.size(); ++i) {
      if (watch_.progress) watch_.progress("answers in virtual time");
      reset_clock(running);
      DLLM_TRY(const Generation answer,
               generate(*timed, nullptr, work.prompts[i], work.options, latency ? &*latency : nullptr, {}, watch_.stop,
                        second.get(), &work.replays[i]));
      if (answer.finish == FinishReason::kCancelled)
        return Error{ErrorCode::kCancelled, "the benchmark was interrupted", "", ""};
      DLLM_CHECK_OK(check_replayed(answer, work.replays[i]));
      add(virtual_time(running, answer), answer, timed->clock().sum(), sum);
    }
    const std::chrono::duration<double> host = std::chrono::steady_clock::now() - start;
    return record(work, sum, host.count());
  }

 private:
  static void add(const VirtualTime& time, const Generation& answer, const npu::StepTime& clock, Replayed& sum) {
    sum.time += clock;
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

  Json record(const Workload& work, const Replayed& sum, double host_seconds) const {
    const auto count = static_cast<double>(work.prompts.size());
    const double seconds = sum.time.seconds();
    return {{"test", "answers"},
            {"name", model_.name},
            {"architecture", model_.desc.architecture},
            {"device", device_.name},
            {"processor", timing_.processor == npu::StepProcessor::kHost ? "host" : "device"},
            {"planner", timing_.planner},
            {"skip_logits", timing_.skip_logits},
            {"timing", timing_.simulate ? "simulated" : "analytic"},
            {"replay", replay_json(work)},
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
            {"virtual", npu::step_time_json(sum.time)},
            {"virtual_ms_per_answer", seconds * 1e3 / count},
            {"virtual_prompt_ms", sum.prompt * 1e3 / count},
            {"virtual_first_block_ms", sum.first_block * 1e3 / count},
            {"joules_per_answer", sum.time.energy.joules() / count},
            {"tokens_per_second", sum.stats.answer_tokens / seconds},
            {"tokens_per_joule", sum.stats.answer_tokens / sum.time.energy.joules()},
            {"host_seconds", host_seconds},
            {"answers", sum.answers}};
  }

  const ShapeModel& model_;
  const npu::Device& device_;
  const npu::TimerOptions timing_;
  const BenchWatch& watch_;
};

}  // namespace

Expected<ShapeModel> ShapeModel::open(const std::string& name, bool warnings) {
  ShapeModel result;
  if (is_shape(name)) {
    DLLM_TRY(const npu::ModelShape shape, npu::load_model_shape(name));
    result.name = shape.desc.name;
    result.desc = shape.desc;
    result.desc.mask = static_cast<TokenId>(shape.desc.vocab - 1);
    // Two tokens that end answers, as most models have: a recorded answer may exchange one for the other.
    result.desc.stop_ids = {static_cast<TokenId>(shape.desc.vocab - 2), static_cast<TokenId>(shape.desc.vocab - 3)};
    constexpr std::int64_t kContext = 32768;
    result.desc.context_length = std::max(result.desc.context_length, kContext);
    result.graph = [shape](StepShape step) { return shape.architecture->build(shape.desc, step); };
    return result;
  }
  DLLM_TRY(auto source, open_or_embedded(name));
  DLLM_TRY(result.model, Model::load(std::move(source), warnings ? Log() : Log([](LogLevel, const std::string&) {})));
  result.name = name.empty() ? "embedded" : std::filesystem::path(name).stem().string();
  result.desc = result.model->desc();
  result.graph = [model = result.model](StepShape step) { return model->build(step); };
  return result;
}

Expected<void> bench_answers(const std::string& model, const BenchOptions& options, const BenchWatch& watch,
                             const BenchSink& sink) {
  if (options.replays.empty())
    return Error{ErrorCode::kUsage, "which positions a pass decides depends on values, which are not computed here",
                 "--backend npu", "add --replay FILE, or use `dllm run` for answers of the model itself"};
  DLLM_TRY(const ShapeModel shape, ShapeModel::open(model, options.load.warnings));
  DLLM_CHECK_OK(check_load(options.load, Computer::kExecutor));
  DLLM_TRY(const npu::Device device, requested_device(options.load, device_use(options.load, false)));
  DLLM_TRY(const npu::TimerOptions timing, timer_options(options.load));
  for (const std::string& file : options.replays)
    for (const std::int32_t tokens : options.prompts.empty() ? std::vector{0} : options.prompts) {
      DLLM_TRY(const Workload work,
               recorded_workload(shape.desc, {file, options.answers, options.generate.length.value_or(0), tokens,
                                              options.generate.seed}));
      DLLM_TRY(const Json record, AnswerBench(shape, device, timing, watch).run(work));
      sink(record);
    }
  return {};
}

}  // namespace dllm::app
