#include "app/cli/samples.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "app/cli/report.h"
#include "base/try.h"
#include "dllm/scheduler.h"

namespace dllm::app {
namespace {

constexpr std::int32_t kMostSamples = 10000, kTogether = 8;

}  // namespace

void Samples::add(Flags& flags) {
  flags.add({.names = {"--samples"},
             .value = "N",
             .help = "N answers, with the seeds S, S+1, ...; needs --temp above 0",
             .default_text = "1",
             .apply = into(count, 1, kMostSamples),
             .rare = true});
}

Expected<std::vector<Generation>> Samples::draw(const LanguageModel& model, const std::vector<ChatTurn>& turns,
                                                GenerateOptions options, double timeout_s, Session& session) const {
  DLLM_TRY(const ResolvedOptions resolved, model.resolve(options));
  if (!(resolved.temperature > 0))
    return Error{ErrorCode::kUsage, "nothing is drawn at temperature 0: all samples would be the same", "--samples",
                 "give --temp, for example 0.7"};
  DLLM_TRY(const std::vector<std::int32_t> prompt, model.apply_template(turns));
  std::vector<Generation> answers(static_cast<std::size_t>(count));
  std::optional<Error> failure;
  std::vector<ScheduledRequest> requests;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    ScheduledRequest request{.prompt = prompt, .options = options};
    request.options.seed = resolved.seed + i;
    request.on_done = [&answers, &failure, i](Expected<Generation> made) {
      made ? void(answers[i] = *std::move(made)) : void(failure = made.error());
    };
    requests.push_back(std::move(request));
  }
  DLLM_TRY(const auto scheduler, Scheduler::create(model, {.parallel = kTogether, .queue = count}));
  DLLM_TRY(const auto ids, scheduler->submit(std::move(requests)));
  const auto start = std::chrono::steady_clock::now();
  const std::stop_token stop = session.interrupt.arm();
  while (scheduler->step()) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (stop.stop_requested() || (timeout_s > 0 && elapsed.count() >= timeout_s))
      for (const RequestId id : ids) scheduler->cancel(id);
  }
  session.interrupt.disarm();
  if (failure) return *std::move(failure);
  return answers;
}

void write_samples(const std::vector<Generation>& answers, const std::string& output, nlohmann::ordered_json config,
                   Terminal& terminal) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Generation& answer : answers) {
    if (output == "text")
      terminal.out << "--- seed " << answer.options.seed << "\n"
                   << (terminal.out_tty ? sanitize(answer.text) : answer.text) << "\n";
    else
      list.push_back(generation_json(answer)), list.back()["seed"] = answer.options.seed;
  }
  if (output == "json") terminal.out << dump({{"samples", std::move(list)}, {"config", std::move(config)}}) << "\n";
  if (output == "jsonl")
    for (const auto& one : list) terminal.out << dump(one, -1) << "\n";
  terminal.out.flush();
}

}  // namespace dllm::app
