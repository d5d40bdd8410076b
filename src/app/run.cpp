#include <ostream>

#include "app/live.h"
#include "app/options.h"
#include "app/report.h"
#include "app/verb.h"
#include "base/try.h"

namespace dllm::app {
namespace {

class Run final : public Verb {
 public:
  void declare(Flags& flags) override {
    text_.add(flags, "PROMPT");
    flags.add({.names = {"--system-prompt", "-sys"},
               .value = "TEXT",
               .help = "system message in front of the prompt",
               .apply = into(system_)});
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    live_.add(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.list_isas(terminal)) return kExitOk;
    finish_generate_options(flags, options_);
    if (model_.raw && flags.given("--system-prompt"))
      return Error{ErrorCode::kUsage, "raw text has no system message", "--system-prompt", "leave out --raw"};
    DLLM_TRY(const std::string prompt, text_.read(flags, terminal));
    DLLM_TRY(const LanguageModel model, model_.open(terminal));
    std::vector<ChatTurn> turns;
    if (!system_.empty()) turns.push_back({"system", system_});
    turns.push_back({"user", prompt});

    const bool json = output_ == "json";
    LiveAnswer live(terminal, model, live_, /*print=*/!json);
    const std::stop_token stop = session.interrupt.arm();
    auto answer = model.generate(turns, options_, live.callback(), stop);
    const bool interrupted = session.interrupt.disarm();
    if (!answer) return std::move(answer).error();
    live.finish(*answer);
    if (json) {
      auto result = generation_json(*answer);
      result["config"] = run_config(model, model_, options_, session.command);
      terminal.out << dump(result) << "\n";
    }
    terminal.err << stats_line(*answer, options_.seed) << "\n";
    if (live.timed_out()) return kExitTimeout;
    return interrupted ? kExitInterrupted : kExitOk;
  }

 private:
  TextFlags text_;
  std::string system_, output_;
  ModelFlags model_;
  GenerateOptions options_;
  LiveFlags live_;
};

}  // namespace

std::unique_ptr<Verb> make_run() { return std::make_unique<Run>(); }

}  // namespace dllm::app
