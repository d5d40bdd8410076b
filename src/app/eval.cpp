#include "eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <set>

#include "app/options.h"
#include "app/report.h"
#include "app/verb.h"
#include "base/try.h"
#include "eval/eval_report.h"

namespace dllm::app {
namespace {

class Eval final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("FILE.jsonl", "lines of {\"task\", \"prompt\", \"answer\"}", 1, words_);
    flags.add({.names = {"--limit"}, .value = "N", .help = "the first N items only", .apply = into(limit_, 1, kMax)});
    flags.add({.names = {"--task"}, .value = "NAME", .help = "items of this task only", .apply = into(task_)});
    flags.add({.names = {"--batch"},
               .value = "N",
               .help = "answer N items in one forward pass; the answers are the same",
               .default_text = "1",
               .apply = into(batch_, 1, kMax)});
    flags.add({.names = {"--system-prompt", "-sys"},
               .value = "TEXT",
               .help = "system message in front of each prompt",
               .apply = into(system_)});
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "md", "json", "jsonl"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.list_isas(terminal)) return kExitOk;
    finish_generate_options(flags, options_);
    if (words_.empty()) return Error{ErrorCode::kUsage, "no file is named", "dllm eval", "see dllm eval --help"};
    DLLM_TRY(const std::vector<EvalItem> items, chosen_items());
    DLLM_TRY(const LanguageModel model, model_.open(terminal));

    ProgressLine progress(terminal);
    const std::stop_token stop = session.interrupt.arm();
    // In a batch answers come in another order than the items; they are scored when all are there.
    std::vector<Generation> answers;
    if (batch_ > 1) {
      DLLM_TRY(answers, batched(model, items, progress, stop));
    }
    std::size_t next = 0;
    const auto answer = [&](const std::string& prompt) -> Expected<Generation> {
      if (batch_ > 1) return std::move(answers[next++]);
      return model.generate(turns(prompt), options_, {}, stop);
    };
    auto report = evaluate(items, answer, [&](const EvalReport& so_far, std::size_t total) {
      progress.show(static_cast<double>(so_far.records.size()) / static_cast<double>(total),
                    fmt::format("{}/{} · {:.1f} % exact · NFE {:.1f}", so_far.records.size(), total,
                                100 * so_far.all.accuracy(), so_far.all.mean_nfe()));
    });
    session.interrupt.disarm();
    progress.clear();
    if (!report) return std::move(report).error();
    print(*report, run_config(model, model_, options_, session.command), terminal.out);
    terminal.err << fmt::format("{}/{} exact ({:.1f} %) · NFE {:.1f} · TPF {:.2f} · {:.1f} tok/s · {:.1f} s\n",
                                report->all.correct, report->all.items, 100 * report->all.accuracy(),
                                report->all.mean_nfe(), report->all.tokens_per_forward(),
                                report->all.tokens_per_second(), report->all.seconds);
    if (report->complete) return kExitOk;
    terminal.err << fmt::format("interrupted: {} of {} items\n", report->all.items, items.size());
    return kExitInterrupted;
  }

 private:
  static constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

  Expected<std::vector<EvalItem>> chosen_items() const {
    DLLM_TRY(std::vector<EvalItem> items, read_items(words_.front()));
    if (!task_.empty()) {
      std::set<std::string> names;
      for (const EvalItem& item : items) names.insert(item.task);
      if (!names.contains(task_))
        return Error{ErrorCode::kUsage, fmt::format("the file has no task '{}'", task_), "--task",
                     choice_hint(task_, {names.begin(), names.end()})};
      std::erase_if(items, [&](const EvalItem& item) { return item.task != task_; });
    }
    if (limit_ > 0) items.resize(std::min(items.size(), static_cast<std::size_t>(limit_)));
    return items;
  }

  Expected<std::vector<Generation>> batched(const LanguageModel& model, const std::vector<EvalItem>& items,
                                            ProgressLine& progress, std::stop_token stop) const {
    std::vector<std::vector<ChatTurn>> conversations;
    for (const EvalItem& item : items) conversations.push_back(turns(item.prompt));
    std::size_t done = 0;
    const auto count = [&](std::size_t, const Generation&) {
      ++done;
      progress.show(static_cast<double>(done) / static_cast<double>(items.size()),
                    fmt::format("{}/{} answered", done, items.size()));
      return true;
    };
    return model.generate_batch(conversations, options_, batch_, count, std::move(stop));
  }

  std::vector<ChatTurn> turns(const std::string& prompt) const {
    if (system_.empty()) return {{"user", prompt}};
    return {{"system", system_}, {"user", prompt}};
  }

  void print(const EvalReport& report, const nlohmann::ordered_json& config, std::ostream& out) const {
    if (output_ == "json") {
      auto json = report_json(report);
      json["config"] = config;
      out << dump(json) << "\n";
    } else if (output_ == "jsonl") {
      for (const EvalRecord& record : report.records) out << dump(record_json(record), -1) << "\n";
      auto summary = report_json(report);
      summary.erase("records");
      out << dump({{"summary", summary}, {"config", config}}, -1) << "\n";
    } else {
      out << score_table(report, output_ == "md");
    }
  }

  std::vector<std::string> words_;
  std::int32_t limit_ = 0, batch_ = 1;
  std::string task_, system_, output_;
  ModelFlags model_;
  GenerateOptions options_;
};

}  // namespace

std::unique_ptr<Verb> make_eval() { return std::make_unique<Eval>(); }

}  // namespace dllm::app
