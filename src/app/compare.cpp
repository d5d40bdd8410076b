// dllm compare: several configurations on the same items.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/compare_masked.h"
#include "app/compare_sets.h"
#include "app/compare_spec.h"
#include "app/eval_model.h"
#include "base/output_file.h"
#include "base/try.h"
#include "engine/load_options.h"
#include "eval/accuracy_plot.h"
#include "eval/comparison.h"

namespace dllm::app {
namespace {

/// A prepared configuration: parsed flags, loaded model (configurations with the same model share it).
struct Runner {
  ComparedOptions given;
  GenerateOptions options;
  ModelFlags model;
  const LanguageModel* loaded = nullptr;
  ResolvedOptions resolved;
  EvalModel bound;
};

Error in_configuration(Error error, const std::string& name) {
  error.where = fmt::format("configuration '{}'{}{}", name, error.where.empty() ? "" : ", ", error.where);
  return error;
}

class Compare final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("CONFIGURATION...",
                      "\"NAME: OPTIONS\", such as \"dual: --cache dual\"; the first is the baseline", 1000, words_);
    sets_.add(flags);
    flags.add({.names = {"--file"},
               .value = "FILE.toml",
               .help = "items, common options and configurations, before those given here",
               .takes_path = true,
               .apply = into(spec_path_)});
    items_.add(flags);
    masked_.add(flags);
    flags.add({.names = {"--repeat"},
               .value = "N",
               .help = "run every item N times and report the best times",
               .default_text = "1",
               .apply = into(repeat_, 1, 1000),
               .rare = true});
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "md", "json", "csv"});
    flags.add({.names = {"--by-task"},
               .help = "text and md: a second table, accuracy per task",
               .apply = into(by_task_),
               .rare = true});
    flags.add({.names = {"--plot"},
               .value = "FILE.svg",
               .help = "plot differences in accuracy, and costs",
               .takes_path = true,
               .written = true,
               .apply = into(plot_)});
    flags.add({.names = {"--plot-x"},
               .value = "NAME",
               .help = "cost shown in the plot",
               .default_text = "tok/s",
               .choices = plot_axis_names(),
               .apply = into(plot_x_, plot_axis_names()),
               .rare = true});
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    DLLM_CHECK_OK(collect(terminal));
    DLLM_TRY(const EvalSet set, items_.read(sets_.path()));
    DLLM_CHECK_OK(sets_.check(set, items_));
    if (masked_.wanted()) return compare_masked(set, session);
    if (items_.scoring_of(set) != Scoring::kGenerate)
      return Error{ErrorCode::kUsage, "only generated answers are compared", "dllm compare",
                   "measure choices and likelihoods with dllm eval"};
    DLLM_CHECK_OK(check_scoring(*set.kind, Scoring::kGenerate));
    DLLM_CHECK_OK(load(session));
    bind(session.interrupt.arm());
    auto complete = ask(set, terminal);
    session.interrupt.disarm();
    if (!complete) return complete.error();
    if (contenders_.front().report.records.empty())
      return Error{ErrorCode::kCancelled, "interrupted before the first item was done", "", ""};
    DLLM_CHECK_OK(print(session));
    if (*complete) return kExitOk;
    terminal.err << fmt::format("interrupted: {} of {} items\n", contenders_.front().report.all.items,
                                set.items.size());
    return kExitInterrupted;
  }

 private:
  Expected<ExitCode> compare_masked(const EvalSet& set, Session& session) {
    DLLM_CHECK_OK(load(session));
    std::vector<MaskedContender> contenders;
    for (const auto& runner : runners_) contenders.push_back({runner->given.name, runner->loaded});
    ProgressLine progress(session.terminal);
    const auto complete = measure_masked(
        set, contenders, options_, masked_.options(),
        [&](std::size_t done, std::size_t all) {
          progress.show(static_cast<double>(done) / static_cast<double>(all), fmt::format("{}/{}", done, all));
        },
        session.interrupt.arm());
    session.interrupt.disarm();
    progress.clear();
    if (!complete) return complete.error();
    if (!*complete) return kExitInterrupted;
    const TextTable table = MaskedComparison::table(contenders);
    session.terminal.out << (output_ == "json"  ? dump(MaskedComparison::json(contenders)) + "\n"
                             : output_ == "csv" ? table.csv()
                             : output_ == "md"  ? table.markdown()
                                                : table.aligned());
    return kExitOk;
  }

  /// The configurations of the file and the command line.
  Expected<void> collect(Terminal& terminal) {
    if (!spec_path_.empty()) {
      DLLM_TRY(const std::string text, read_text(spec_path_, terminal));
      DLLM_TRY(const CompareSpec spec, parse_compare_spec(text, spec_path_));
      sets_.take(spec);
      title_ = spec.title;
      if (model_.path.empty()) model_.path = spec.model;
      for (const ComparedOptions& one : spec.configurations)
        DLLM_CHECK_OK(add({one.name, one.options}, spec.options + " " + one.options));
    }
    for (const std::string& word : words_) {
      DLLM_TRY(const ComparedOptions one, parse_compared(word));
      DLLM_CHECK_OK(add(one, one.options));
    }
    if (runners_.empty())
      return Error{ErrorCode::kUsage, "there is nothing to compare", "dllm compare",
                   "give configurations as \"NAME: OPTIONS\" or in --file"};
    return sets_.resolve();
  }

  /// Reads a configuration's flags on top of the common ones.
  Expected<void> add(const ComparedOptions& given, const std::string& text) {
    for (const auto& other : runners_)
      if (other->given.name == given.name)
        return Error{ErrorCode::kUsage, fmt::format("the name '{}' is given twice", given.name), "dllm compare", ""};
    auto runner = std::make_unique<Runner>();
    runner->given = given;
    runner->options = options_;
    runner->model = model_;
    Flags flags("compare", "", "");
    add_generate_flags(flags, runner->options);
    runner->model.add_loading(flags);
    DLLM_TRY(const std::vector<std::string> words, split_words(text));
    auto parsed = flags.parse(words, [](const std::string&) { return nullptr; });
    if (!parsed || *parsed != ParseOutcome::kRun) {
      Error error = parsed ? Error{ErrorCode::kUsage, "--help is not an option of a configuration", "", ""}
                           : std::move(parsed).error();
      return in_configuration(std::move(error), given.name);
    }
    if (runner->model.list_devices)
      return in_configuration({ErrorCode::kUsage, "it is not an option of a configuration", "--list-devices", ""},
                              given.name);
    runners_.push_back(std::move(runner));
    return {};
  }

  Expected<void> load(Session& session) {
    for (const auto& runner : runners_) {
      const std::string key = fmt::format("{}\n{}\n{}\n{}", runner->model.path, runner->model.hub.name,
                                          runner->model.hub.file, load_key(runner->model.load));
      auto found = models_.find(key);
      if (found == models_.end()) {
        DLLM_TRY(LanguageModel model, runner->model.open(session));
        found = models_.emplace(key, std::move(model)).first;
      }
      runner->loaded = &found->second;
      auto resolved = runner->loaded->resolve(runner->options);
      if (!resolved) return in_configuration(std::move(resolved).error(), runner->given.name);
      runner->resolved = *std::move(resolved);
      contenders_.push_back({runner->given.name, runner->given.options, {}});
    }
    return {};
  }

  void bind(const std::stop_token& stop) {
    for (const auto& runner : runners_)
      runner->bound = items_.bind(*runner->loaded, runner->options, runner->model.raw, stop);
  }

  /// Every item goes through all configurations before the next, so that if the machine slows down meanwhile, all are
  /// affected. False: interrupted; the current item then counts for none.
  Expected<bool> ask(const EvalSet& set, Terminal& terminal) {
    ProgressLine progress(terminal);
    for (std::size_t i = 0; i < set.items.size(); ++i) {
      std::vector<EvalRecord> records;
      for (const auto& runner : runners_) {
        std::optional<EvalRecord> best;
        for (std::int32_t r = 0; r < repeat_; ++r) {
          auto record = evaluate_item(set, i, Scoring::kGenerate, runner->bound, items_.judging);
          if (!record) {
            progress.clear();
            return in_configuration(std::move(record).error(), runner->given.name);
          }
          if (!*record) {
            progress.clear();
            return false;
          }
          if (!best || (*record)->stats.seconds < best->stats.seconds) best = *std::move(record);
        }
        records.push_back(*std::move(best));
      }
      for (std::size_t c = 0; c < records.size(); ++c) contenders_[c].report.add(std::move(records[c]));
      progress.show(
          static_cast<double>(i + 1) / static_cast<double>(set.items.size()),
          fmt::format("{}/{} · {:.1f} % to {:.1f} %", i + 1, set.items.size(),
                      100 * contenders_.front().report.all.accuracy(), 100 * contenders_.back().report.all.accuracy()));
    }
    progress.clear();
    return true;
  }

  Expected<void> print(Session& session) const {
    std::ostream& out = session.terminal.out;
    const auto rows = compare(contenders_);
    if (!plot_.empty()) {
      const std::string svg = accuracy_plot(rows, plot_axis(plot_x_), title_.empty() ? sets_.path() : title_);
      DLLM_CHECK_OK(write_result(session, plot_, svg, made_of(std::vector{sets_.path(), spec_path_})));
    }
    if (output_ == "json") {
      auto json = comparison_json(contenders_, rows);
      json.update(sets_.json(rows));
      for (std::size_t i = 0; i < runners_.size(); ++i)
        json["configurations"][i]["config"] =
            run_config(*runners_[i]->loaded, runners_[i]->model, runners_[i]->resolved, session.command);
      out << dump(json) << "\n";
      return {};
    }
    const TextTable table = comparison_table(rows);
    out << (output_ == "csv" ? table.csv() : output_ == "md" ? table.markdown() : table.aligned());
    if (by_task_ && output_ != "csv") {
      const TextTable tasks = task_table(contenders_);
      out << "\n" << (output_ == "md" ? tasks.markdown() : tasks.aligned());
    }
    if (const std::string notes = sets_.notes(rows); !notes.empty() && output_ != "csv") out << "\n" << notes;
    return {};
  }

  std::vector<std::string> words_;
  CompareSets sets_;
  std::string spec_path_, output_, plot_, plot_x_ = "tok/s", title_;
  bool by_task_ = false;
  std::int32_t repeat_ = 1;
  EvalFlags items_;
  MaskedComparison masked_;
  ModelFlags model_;
  GenerateOptions options_;
  std::vector<std::unique_ptr<Runner>> runners_;  // bound closures refer to them
  std::map<std::string, LanguageModel> models_;
  std::vector<Contender> contenders_;
};

}  // namespace

std::unique_ptr<Verb> make_compare() { return std::make_unique<Compare>(); }

}  // namespace dllm::app
