#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/eval_model.h"
#include "base/output_file.h"
#include "base/try.h"
#include "dllm/version.h"
#include "engine/recording.h"
#include "eval/eval_report.h"

namespace dllm::app {
namespace {

class Eval final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("FILE", "items as JSON lines or a JSON array: {\"task\", \"prompt\", \"answer\"}, GSM8K, …", 1,
                      words_);
    items_.add(flags);
    flags.add({.names = {"--batch"},
               .value = "N",
               .help = "answers, or masks of likelihoods, per forward pass; the results are the same for any N",
               .default_text = "1",
               .apply = into(items_.batch, 1, std::numeric_limits<std::int32_t>::max())});
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "md", "json", "jsonl"});
    flags.add({.names = {"--record"},
               .value = "FILE",
               .help = "record what each pass committed and revised, for dllm bench --replay",
               .takes_path = true,
               .written = true,
               .apply = into(record_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    if (words_.empty()) return Error{ErrorCode::kUsage, "no file is named", "dllm eval", "see dllm eval --help"};
    DLLM_TRY(const EvalSet set, items_.read(words_.front()));
    const Scoring scoring = items_.scoring_of(set);
    DLLM_CHECK_OK(check_scoring(*set.kind, scoring));
    if (scoring != Scoring::kGenerate) DLLM_CHECK_OK(check_unread(flags));
    if (scoring != Scoring::kGenerate && !record_.empty())
      return Error{ErrorCode::kUsage, "no answers are generated", "--record", "give --scoring generate"};
    if (!record_.empty()) DLLM_CHECK_OK(check_result(record_, record_options()));
    DLLM_TRY(const LanguageModel model, model_.open(session));
    DLLM_TRY(const ResolvedOptions resolved, model.resolve(options_));

    ProgressLine progress(terminal);
    const std::stop_token stop = session.interrupt.arm();
    EvalModel bound = items_.bind(model, options_, model_.raw, stop);
    // In a batch answers do not finish in the order of the items; they are scored when all are complete.
    std::vector<Generation> answers;
    std::size_t next = 0;
    if (items_.batch > 1 && scoring == Scoring::kGenerate) {
      DLLM_TRY(answers, batched(model, set.items, progress, stop));
      bound.answer = [&](const std::string&) -> Expected<Generation> { return std::move(answers[next++]); };
    }
    Recording recording;
    recording.program = fmt::format("dllm {}", DLLM_VERSION);
    recording.command = session.command;
    recording.model = model.name();
    recording.options = options_;
    if (!record_.empty()) record_answers(bound, model, recording, stop);
    auto report = evaluate(set, scoring, bound, items_.judging, [&](const EvalReport& so_far, std::size_t total) {
      progress.show(static_cast<double>(so_far.records.size()) / static_cast<double>(total),
                    fmt::format("{}/{} · {}", so_far.records.size(), total, summary(so_far)));
    });
    session.interrupt.disarm();
    progress.clear();
    if (!report) return std::move(report).error();
    print(*report, run_config(model, model_, resolved, session.command), terminal.out);
    terminal.err << fmt::format("{} · {:.1f} s\n", summary(*report), report->all.seconds);
    if (!record_.empty() && report->complete) DLLM_CHECK_OK(write(recording, *report, session));
    if (report->complete) return kExitOk;
    terminal.err << fmt::format("interrupted: {} of {} items\n", report->all.items, set.items.size());
    return kExitInterrupted;
  }

 private:
  /// Each answer is replayed at once after the reversed prompt, with other predictions. If passes, rows and commits are
  /// then not the same, they depend on predictions, which a recording does not contain.
  static void record_answers(EvalModel& bound, const LanguageModel& model, Recording& recording,
                             const std::stop_token& stop) {
    bound.answer = [answer = std::move(bound.answer), &model, &recording,
                    stop](const std::string& prompt) -> Expected<Generation> {
      DLLM_TRY(Generation given, answer(prompt));
      if (given.finish == FinishReason::kCancelled) return given;
      Generation other = given;
      std::reverse(other.prompt_ids.begin(), other.prompt_ids.end());
      DLLM_TRY(const Generation again, model.replay(other, stop));
      if (again.finish != FinishReason::kCancelled) DLLM_CHECK_OK(add_answer(recording, given));
      return given;
    };
  }

  OutputOptions record_options() const { return made_of(std::vector{words_.front(), model_.path}); }

  Expected<void> write(Recording& recording, const EvalReport& report, Session& session) const {
    recording.items = static_cast<std::int32_t>(report.all.items);
    recording.correct = static_cast<std::int32_t>(report.all.correct);
    DLLM_CHECK_OK(write_result(session, record_, recording_text(recording), record_options()));
    session.terminal.err << fmt::format("{} answers recorded in {}\n", recording.answers.size(), record_);
    return {};
  }

  /// Likelihoods are computed for given answers: nothing is generated.
  static Expected<void> check_unread(const Flags& flags) {
    const auto check = [&flags](const OptionInfo& info) -> Expected<void> {
      if (info.key == "seed" || info.key == "cfg_scale" || info.flags.empty() || !flags.given(info.flags.front()))
        return {};
      return Error{ErrorCode::kUsage, "likelihoods of given answers do not read it", info.flags.front(),
                   "leave it out, or give --scoring generate"};
    };
    for (const OptionInfo& info : options_info().common) DLLM_CHECK_OK(check(info));
    for (const PartInfo& part : options_info().parts) {
      DLLM_CHECK_OK(check(part.selector));
      for (const MethodInfo& method : part.methods)
        for (const OptionInfo& info : method.options) DLLM_CHECK_OK(check(info));
    }
    return {};
  }

  Expected<std::vector<Generation>> batched(const LanguageModel& model, const std::vector<EvalItem>& items,
                                            ProgressLine& progress, std::stop_token stop) const {
    std::vector<std::vector<ChatTurn>> conversations;
    for (const EvalItem& item : items) conversations.push_back(items_.turns(item.prompt));
    std::size_t done = 0;
    const auto count = [&](std::size_t, const Generation&) {
      ++done;
      progress.show(static_cast<double>(done) / static_cast<double>(items.size()),
                    fmt::format("{}/{} answered", done, items.size()));
      return true;
    };
    return model.generate_batch(conversations, options_, items_.batch, count, std::move(stop));
  }

  static std::string summary(const EvalReport& report) {
    const TaskScore& all = report.all;
    if (report.scoring == Scoring::kLikelihood) return fmt::format("{:.4f} nats per token", all.loss_per_token());
    const std::string right = fmt::format("{}/{} correct ({:.1f} %)", all.correct, all.items, 100 * all.accuracy());
    if (report.scoring == Scoring::kChoices) return right;
    return fmt::format("{} · NFE {:.1f} · TPF {:.2f} · {:.1f} tok/s", right, all.mean_nfe(), all.tokens_per_forward(),
                       all.tokens_per_second());
  }

  void print(const EvalReport& report, const nlohmann::ordered_json& config, std::ostream& out) const {
    if (output_ == "json") {
      auto json = report_json(report);
      json["config"] = config;
      out << dump(json) << "\n";
    } else if (output_ == "jsonl") {
      for (const EvalRecord& record : report.records) out << dump(record_json(record, report.scoring), -1) << "\n";
      auto summary = report_json(report);
      summary.erase("records");
      out << dump({{"summary", summary}, {"config", config}}, -1) << "\n";
    } else {
      out << (output_ == "md" ? score_table(report).markdown() : score_table(report).aligned());
    }
  }

  std::vector<std::string> words_;
  EvalFlags items_;
  std::string output_, record_;
  ModelFlags model_;
  GenerateOptions options_;
};

}  // namespace

std::unique_ptr<Verb> make_eval() { return std::make_unique<Eval>(); }

}  // namespace dllm::app
