#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "app/cli/live.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/samples.h"
#include "app/cli/verb.h"
#include "app/cli/virtual_trace.h"
#include "app/cli/written_files.h"
#include "base/output_file.h"
#include "base/try.h"
#include "engine/backends.h"
#include "engine/trace.h"

namespace dllm::app {
namespace {

class Run final : public Verb {
 public:
  void declare(Flags& flags) override {
    text_.add(flags, "PROMPT");
    flags.add({.names = {"--system-prompt", "-sys"},
               .value = "TEXT",
               .help = "system message before the prompt",
               .apply = into(system_)});
    add_image_flag(flags, images_);
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json", "jsonl"});
    live_.add(flags);
    samples_.add(flags);
    flags.add({.names = {"--trace"},
               .value = "FILE",
               .help = "write every step as one JSON file, which the page of `dllm serve` shows",
               .takes_path = true,
               .written = true,
               .apply = into(trace_),
               .rare = true});
    flags.add(
        {.names = {"--perfetto"},
         .value = "FILE",
         .help = fmt::format("write the passes in the virtual time of {}, for ui.perfetto.dev", virtual_time_flags()),
         .takes_path = true,
         .written = true,
         .apply = into(perfetto_),
         .rare = true});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    if (model_.raw && flags.given("--system-prompt"))
      return Error{ErrorCode::kUsage, "raw text has no system message", "--system-prompt", "leave out --raw"};
    DLLM_TRY(const std::string prompt, text_.read(flags, terminal));
    for (const std::string& target : {trace_, perfetto_})
      if (!target.empty()) DLLM_CHECK_OK(check_result(target, trace_output()));
    DLLM_TRY(const BackendEntry* const backend, requested_backend(model_.load));
    if (!perfetto_.empty() && !backend->virtual_time)
      return Error{ErrorCode::kUsage, "only a simulated device has virtual time", "--perfetto",
                   "add " + virtual_time_flags()};
    DLLM_TRY(const LanguageModel model, model_.open(session));
    std::vector<ChatTurn> turns;
    if (!system_.empty()) turns.push_back({"system", system_});
    DLLM_TRY(std::vector<std::string> images, read_images(images_));
    turns.push_back({"user", prompt, std::move(images)});

    if (samples_.asked()) return several(model, turns, session);
    const AnswerForm form = output_ == "text"    ? AnswerForm::kText
                            : output_ == "jsonl" ? AnswerForm::kSteps
                                                 : AnswerForm::kNone;
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    TraceSink trace;
    if (!trace_.empty())
      trace = [&](const StepEvent& event, double seconds) {
        steps.push_back(trace_step(model, event, seconds, steps.empty()));
      };
    LiveAnswer live(terminal, model, live_, form, std::move(trace));
    const std::stop_token stop = session.interrupt.arm();
    auto answer = model.generate(turns, options_, live.callback(), stop);
    const bool interrupted = session.interrupt.disarm();
    if (!answer) return std::move(answer).error();
    live.finish(*answer);
    if (!perfetto_.empty() && answer->virtual_time)
      DLLM_CHECK_OK(
          write_result(session, perfetto_, dump(virtual_trace(*answer->virtual_time), -1) + "\n", trace_output()));
    if (!trace_.empty()) DLLM_CHECK_OK(write_trace(session, model, turns, std::move(steps), *answer));
    if (form != AnswerForm::kText) {
      nlohmann::ordered_json result = generation_json(*answer);
      if (form == AnswerForm::kSteps) result = {{"type", "result"}, {"result", std::move(result)}};
      result["config"] = run_config(model, model_, answer->options, session.command);
      terminal.out << dump(result, form == AnswerForm::kSteps ? -1 : 2) << "\n";
    }
    if (const std::string note = empty_answer_note(*answer); !note.empty()) terminal.err << "warning: " << note << "\n";
    terminal.err << stats_line(*answer, told_arithmetic(model, model_.load)) << "\n";
    if (const std::string line = virtual_line(*answer); !line.empty()) terminal.err << line << "\n";
    if (live.timed_out()) return kExitTimeout;
    return interrupted ? kExitInterrupted : kExitOk;
  }

 private:
  Expected<ExitCode> several(const LanguageModel& model, const std::vector<ChatTurn>& turns, Session& session) {
    const std::pair<bool, const char*> single[] = {
        {live_.visual, "--visual"}, {!trace_.empty(), "--trace"}, {!perfetto_.empty(), "--perfetto"}};
    for (const auto& [given, flag] : single)
      if (given) return Error{ErrorCode::kUsage, "it shows one answer, not several", flag, "leave --samples out"};
    DLLM_TRY(const auto answers, samples_.draw(model, turns, options_, live_.timeout_s, session));
    write_samples(answers, output_, run_config(model, model_, answers.front().options, session.command),
                  session.terminal);
    for (const Generation& answer : answers) session.terminal.err << stats_line(answer) << "\n";
    const bool all = std::ranges::none_of(
        answers, [](const Generation& answer) { return answer.finish == FinishReason::kCancelled; });
    return all ? kExitOk : live_.timeout_s > 0 ? kExitTimeout : kExitInterrupted;
  }

  OutputOptions trace_output() const {
    return made_of(std::vector{model_.path, model_.chat_template_file, text_.file});
  }
  Expected<void> write_trace(Session& session, const LanguageModel& model, const std::vector<ChatTurn>& turns,
                             nlohmann::ordered_json steps, const Generation& answer) const {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array(), runs = nlohmann::ordered_json::array();
    for (const ChatTurn& turn : turns) messages.push_back({{"role", turn.role}, {"content", turn.content}});
    runs.push_back(trace_run(model, std::move(messages), std::move(steps), answer));
    return write_result(session, trace_, dump(trace_document(std::move(runs)), -1) + "\n", trace_output());
  }

  TextFlags text_;
  std::string system_, output_, trace_, perfetto_;
  std::vector<std::string> images_;
  ModelFlags model_;
  GenerateOptions options_;
  LiveFlags live_;
  Samples samples_;
};

}  // namespace

std::unique_ptr<Verb> make_run() { return std::make_unique<Run>(); }

}  // namespace dllm::app
