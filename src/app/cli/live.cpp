#include "app/cli/live.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>
#include <utility>

#include "app/cli/report.h"

namespace dllm::app {
namespace {

TokenLookup token_lookup(const LanguageModel& model) {
  return [&model](std::int32_t token) -> TokenText {
    const auto plain = model.detokenize({token}, false);
    if (plain && !plain->empty()) return {*plain, false};
    return {"", true};
  };
}

}  // namespace

void LiveFlags::add(Flags& flags) {
  flags.group("Output");
  flags.add({.names = {"--visual", "--diffusion-visual"},
             .help = "show the canvas on stderr while it is denoised, coloured by confidence",
             .apply = into(visual)});
  flags.add({.names = {"--visual-delay"},
             .value = "MS",
             .help = "delay after each frame, for models that are too fast to watch",
             .default_text = "0",
             .apply = into(visual_delay_ms, 0, 60000)});
  flags.add({.names = {"--timeout"},
             .value = "S",
             .help = "stop after this many seconds, print what is committed, and exit with code 124; 0: never",
             .default_text = "0",
             .apply = into(timeout_s, 0, 1e9)});
}

LiveAnswer::LiveAnswer(Terminal& terminal, const LanguageModel& model, const LiveFlags& flags, AnswerForm form,
                       TraceSink trace)
    : terminal_(terminal),
      flags_(flags),
      form_(form),
      trace_(std::move(trace)),
      // On a terminal the canvas would overwrite the text.
      streaming_(form == AnswerForm::kText && !(flags.visual && terminal.out_tty)),
      log_(model),
      view_(terminal, token_lookup(model)),
      // A bar and streamed text cannot share a terminal.
      progress_(terminal, !flags.visual && !(streaming_ && terminal.out_tty)) {}

StepCallback LiveAnswer::callback() {
  const bool wanted =
      trace_ || flags_.visual || streaming_ || form_ == AnswerForm::kSteps || terminal_.err_tty || flags_.timeout_s > 0;
  if (!wanted) return {};
  return [this](const StepEvent& event) { return on_step(event); };
}

bool LiveAnswer::on_step(const StepEvent& event) {
  if (trace_) {
    const std::chrono::duration<double> worked = std::chrono::steady_clock::now() - start_ - slept_;
    trace_(event, worked.count());
  }
  if (streaming_) stream(terminal_.out_tty ? sanitize(event.text) : event.text);
  if (form_ == AnswerForm::kSteps) terminal_.out << dump(log_.step(event), -1) << std::endl;
  if (flags_.visual) {
    view_.show(event);
    const auto before = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(flags_.visual_delay_ms));
    slept_ += std::chrono::steady_clock::now() - before;
  } else {
    const auto total = static_cast<std::int32_t>(event.canvas.size()) - event.prompt_length;
    const std::int32_t done = total - event.masked;
    progress_.show(total > 0 ? static_cast<double>(done) / total : 1,
                   fmt::format("{}/{} tokens · step {} · NFE {}", done, total, event.step + 1, event.nfe));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  timed_out_ = flags_.timeout_s > 0 && elapsed.count() >= flags_.timeout_s && event.masked > 0;
  return !timed_out_;
}

void LiveAnswer::stream(const std::string& text) {
  if (text.size() <= streamed_.size() || !text.starts_with(streamed_)) return;
  terminal_.out << text.substr(streamed_.size()) << std::flush;
  streamed_ = text;
}

void LiveAnswer::finish(const Generation& generation) {
  progress_.clear();
  if (form_ != AnswerForm::kText) return;
  const std::string text = terminal_.out_tty ? sanitize(generation.text) : generation.text;
  if (text.starts_with(streamed_)) {
    terminal_.out << text.substr(streamed_.size()) << std::endl;
    return;
  }
  // No decoder changes final text. If one ever does, the right answer is printed last, with a message.
  terminal_.err << "warning: text that was final has changed; the answer follows once more\n";
  terminal_.out << "\n" << text << std::endl;
}

}  // namespace dllm::app
