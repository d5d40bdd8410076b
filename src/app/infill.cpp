// dllm infill: a text with gaps, which the model fills.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/live.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/try.h"
#include "dllm/scheduler.h"
#include "engine/ends.h"

namespace dllm::app {
namespace {

/// The ids of a text in which [[N]] is a gap of N tokens, -1 each. Errors: kUsage (no gap, one that is too long).
Expected<std::vector<std::int32_t>> read_gaps(const LanguageModel& model, std::string_view text) {
  std::vector<std::int32_t> ids;
  bool gaps = false;
  const auto add_text = [&](std::string_view part) -> Expected<void> {
    DLLM_TRY(const auto found, model.tokenize(part, /*special=*/false));
    ids.insert(ids.end(), found.begin(), found.end());
    return {};
  };
  std::size_t from = 0;
  for (std::size_t open = text.find("[["); open != text.npos; open = text.find("[[", open + 1)) {
    const std::size_t close = text.find_first_not_of("0123456789", open + 2);
    if (close == text.npos || close == open + 2 || !text.substr(close).starts_with("]]")) continue;
    const auto size = parse_number<std::int32_t>(std::string(text.substr(open + 2, close - open - 2)));
    if (!size || *size < 1 || *size > model.context_length())
      return Error{ErrorCode::kUsage, fmt::format("a gap has 1 to {} tokens", model.context_length()),
                   std::string(text.substr(open, close + 2 - open)), ""};
    DLLM_CHECK_OK(add_text(text.substr(from, open - from)));
    ids.insert(ids.end(), static_cast<std::size_t>(*size), -1);
    gaps = true;
    from = close + 2;
  }
  if (!gaps) return Error{ErrorCode::kUsage, "the text has no gap", "dllm infill", "[[4]] is a gap of four tokens"};
  DLLM_CHECK_OK(add_text(text.substr(from)));
  return ids;
}

class Infill final : public Verb {
 public:
  void declare(Flags& flags) override {
    text_.add(flags, "TEXT");
    flags.add({.names = {"--ask"},
               .value = "TEXT",
               .help = "a question to the model; the text with gaps is then the form of its answer",
               .apply = into(question_)});
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    live_.add(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    if (options_.length || options_.max_tokens)
      return Error{ErrorCode::kUsage, "the gaps say how much is generated", "--predict", "leave the option out"};
    DLLM_TRY(const std::string text, text_.read(flags, terminal));
    DLLM_TRY(const LanguageModel model, model_.open(session));
    ScheduledRequest request;
    DLLM_TRY(request.form, read_gaps(model, text));
    DLLM_TRY(request.prompt,
             question_.empty() ? model.prompt_ids("", /*special=*/false) : model.apply_template({{"user", question_}}));
    request.options = options_;
    request.options.length = static_cast<std::int32_t>(request.form.size());
    fill_gaps(model, request.options);
    LiveAnswer live(terminal, model, live_, AnswerForm::kNone);
    DLLM_TRY(Generation answer, fill(model, std::move(request), live, session));
    live.finish(answer);
    if (output_ == "json") {
      nlohmann::ordered_json result = generation_json(answer);
      result["slots"] = answer.slots;
      result["empty_slots"] = empty_slots(answer);
      result["config"] = run_config(model, model_, answer.options, session.command);
      terminal.out << dump(result) << "\n";
    } else {
      terminal.out << (terminal.out_tty ? sanitize(answer.text) : answer.text) << "\n";
    }
    for (const std::size_t gap : empty_slots(answer))
      terminal.err << fmt::format("warning: gap {} is empty: the model ended it at once\n", gap + 1);
    terminal.err << stats_line(answer, told_arithmetic(model, model_.load)) << "\n";
    if (live.timed_out()) return kExitTimeout;
    return answer.finish == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
  }

 private:
  static Expected<Generation> fill(const LanguageModel& model, ScheduledRequest request, LiveAnswer& live,
                                   Session& session) {
    DLLM_TRY(const auto scheduler, Scheduler::create(model, {.parallel = 1, .queue = 0}));
    Expected<Generation> answer = Error{ErrorCode::kCancelled, "there was no step", "", ""};
    if (StepCallback look = live.callback()) {
      request.detail = StepDetail::kCanvas;
      request.on_step = std::move(look);
    }
    request.on_done = [&answer](Expected<Generation> made) { answer = std::move(made); };
    std::vector<ScheduledRequest> requests;
    requests.push_back(std::move(request));
    DLLM_TRY(const auto ids, scheduler->submit(std::move(requests)));
    const std::stop_token stop = session.interrupt.arm();
    while (scheduler->step())
      if (stop.stop_requested()) scheduler->cancel(ids.front());
    session.interrupt.disarm();
    return answer;
  }

  TextFlags text_;
  std::string question_, output_;
  ModelFlags model_;
  GenerateOptions options_;
  LiveFlags live_;
};

}  // namespace

std::unique_ptr<Verb> make_infill() { return std::make_unique<Infill>(); }

}  // namespace dllm::app
