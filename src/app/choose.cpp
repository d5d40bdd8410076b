// dllm choose: how probable each of several answers is.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/try.h"

namespace dllm::app {
namespace {

class Choose final : public Verb {
 public:
  void declare(Flags& flags) override {
    text_.add(flags, "PROMPT");
    flags.add({.names = {"--choice"},
               .value = "TEXT",
               .help = "a possible answer; give two or more",
               .apply = into(choices_)});
    flags.add({.names = {"--system-prompt", "-sys"},
               .value = "TEXT",
               .help = "system message before the prompt",
               .apply = into(system_)});
    model_.add_template(flags);
    model_.add_loading(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    if (choices_.size() < 2)
      return Error{ErrorCode::kUsage, "there is nothing to choose from", "--choice", "give it two or more times"};
    if (model_.raw && flags.given("--system-prompt"))
      return Error{ErrorCode::kUsage, "raw text has no system message", "--system-prompt", "leave out --raw"};
    DLLM_TRY(const std::string prompt, text_.read(flags, terminal));
    DLLM_TRY(const LanguageModel model, model_.open(session));
    std::vector<ChatTurn> turns;
    if (!system_.empty()) turns.push_back({"system", system_});
    turns.push_back({"user", prompt});
    DLLM_TRY(const auto ids, model.apply_template(turns));
    DLLM_TRY(std::vector<ChoiceScore> scores, model.score_choices(ids, choices_));
    std::ranges::stable_sort(scores, std::ranges::greater(), &ChoiceScore::log_probability);
    if (output_ == "text") {
      for (const ChoiceScore& one : scores)
        terminal.out << fmt::format("{:6.4f} {}\n", one.probability, terminal.out_tty ? sanitize(one.text) : one.text);
      return kExitOk;
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ChoiceScore& one : scores)
      list.push_back({{"text", one.text},
                      {"probability", one.probability},
                      {"log_probability", one.log_probability},
                      {"tokens", one.tokens}});
    terminal.out << dump({{"choices", std::move(list)}}) << "\n";
    return kExitOk;
  }

 private:
  TextFlags text_;
  std::vector<std::string> choices_;
  std::string system_, output_;
  ModelFlags model_;
};

}  // namespace

std::unique_ptr<Verb> make_choose() { return std::make_unique<Choose>(); }

}  // namespace dllm::app
