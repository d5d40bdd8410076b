// dllm experiment: figures of papers made anew on simulated devices and with small trained models.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <ostream>
#include <system_error>

#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "base/output_file.h"
#include "base/try.h"
#include "experiment/experiments.h"
#include "experiment/finished.h"

namespace dllm::app {
namespace {

std::vector<std::string> experiment_names() {
  std::vector<std::string> names = {"all"};
  for (const Experiment& one : experiments()) names.emplace_back(one.name);
  return names;
}

/// The page that compares every figure with its paper. `figures`: of all experiments, in their order.
std::string comparison(const std::vector<Figure>& figures, const std::string& command) {
  std::string text = fmt::format(
      "# Experiments\n\nFigures of papers on simulated devices and with small trained models, made by\n\n```sh\n{}\n"
      "```\n\nThe devices are models with assumed parameters (npu-answers.md, npu-energy.md in docs/design): none was "
      "measured.\n",
      command);
  for (const std::string_view paper : {kPhonePaper, kNpuPaper}) {
    text += fmt::format("\n## {}\n\n| figure | the paper | here |\n|---|---|---|\n", paper);
    for (std::size_t i = 0; i < figures.size(); ++i)
      if (experiments()[i].paper == paper)
        text += fmt::format("| [{}]({}.md) | {} | {} |\n", figures[i].title, figures[i].name, figures[i].claim,
                            figures[i].verdict);
  }
  return text +
         "\n## Not made here\n\nThe power of a real phone (cannot be: no phone), accuracy of the published checkpoints "
         "(cannot be: no\nweights), the share of sampling on a GPU with FP64 (cannot be: the rooflines have no "
         "FP64).\n";
}

class RunExperiment final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.positionals("NAME", "an experiment, or all", 1, words_);
    flags.add({.names = {"--out"},
               .value = "DIR",
               .help = "folder of NAME.csv, .json, .svg and .md; made if it does not exist",
               .default_text = out_,
               .takes_path = true,
               .apply = into(out_)});
    flags.add({.names = {"--shape"},
               .value = "NAME|FILE.toml",
               .help = "model whose steps are timed",
               .default_text = inputs_.shape,
               .takes_path = true,
               .apply = into(inputs_.shape)});
    flags.add({.names = {"-m", "--model"},
               .value = "PATH",
               .help = "trained model whose passes are timed",
               .default_text = inputs_.model,
               .takes_path = true,
               .apply = into(inputs_.model)});
    flags.add({.names = {"--items"},
               .value = "FILE.jsonl",
               .help = "its prompts; the first three are answered",
               .default_text = inputs_.items,
               .takes_path = true,
               .apply = into(inputs_.items)});
    flags.add({.names = {"--unseen"},
               .value = "FILE.jsonl",
               .help = "items that the trained model answers for its accuracy",
               .default_text = inputs_.unseen,
               .takes_path = true,
               .apply = into(inputs_.unseen)});
    flags.add({.names = {"--unseen-embedded"},
               .value = "FILE.jsonl",
               .help = "the same for the embedded model",
               .default_text = inputs_.unseen_embedded,
               .takes_path = true,
               .apply = into(inputs_.unseen_embedded)});
    flags.add({.names = {"--calibration"},
               .value = "FILE.jsonl",
               .help = "items that the trained model's quantization is calibrated with",
               .default_text = inputs_.calibration,
               .takes_path = true,
               .apply = into(inputs_.calibration)});
    flags.add({.names = {"--calibration-embedded"},
               .value = "FILE.jsonl",
               .help = "the same for the embedded model",
               .default_text = inputs_.calibration_embedded,
               .takes_path = true,
               .apply = into(inputs_.calibration_embedded)});
    flags.add({.names = {"--limit"},
               .value = "N",
               .help = "only the first N of these items",
               .default_text = fmt::format("{}", inputs_.limit),
               .apply = into(inputs_.limit, 1, 1 << 20)});
    flags.add({.names = {"--again"},
               .help = "compute every figure anew, also those that the folder has of the same inputs",
               .apply = into(again_)});
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    Terminal& terminal = session.terminal;
    if (words_.empty()) {
      for (const Experiment& one : experiments()) terminal.out << fmt::format("{:20} {}\n", one.name, one.meaning);
      return kExitOk;
    }
    const std::vector<std::string> names = experiment_names();
    if (std::ranges::find(names, words_.front()) == names.end())
      return Error{ErrorCode::kUsage, "unknown experiment", fmt::format("'{}'", words_.front()),
                   choice_hint(words_.front(), names)};
    std::error_code failure;
    std::filesystem::create_directories(out_, failure);
    if (failure) return Error{ErrorCode::kIo, "cannot make the folder: " + failure.message(), out_, ""};
    DLLM_TRY(const std::vector<Figure> figures, make(words_.front(), session));
    if (words_.front() == "all") DLLM_CHECK_OK(write_file(out_ + "/README.md", comparison(figures, session.command)));
    for (const Figure& figure : figures)
      terminal.out << fmt::format("{}/{}.md: {}\n", out_, figure.name, figure.verdict);
    return kExitOk;
  }

 private:
  /// `name`: of an experiment, or all. Each figure is written when it is made, so that an interrupted run continues.
  Expected<std::vector<Figure>> make(const std::string& name, Session& session) {
    std::vector<const Experiment*> wanted;
    double total = 0, done = 0;
    for (const Experiment& one : experiments())
      if (name == "all" || one.name == name) {
        wanted.push_back(&one);
        total += one.seconds;
      }
    for (const Experiment* one : wanted)
      for (const char* ending : {"csv", "svg", "md", "json"})
        DLLM_CHECK_OK(check_output(fmt::format("{}/{}.{}", out_, one->name, ending)));
    ProgressLine progress(session.terminal);
    const Experiment* now = nullptr;
    Lab lab(
        inputs_, [&](double part) { progress.show((done + part * now->seconds) / total, std::string(now->name)); },
        session.interrupt.arm());
    std::vector<Figure> figures;
    std::string kept;
    for (const Experiment* one : wanted) {
      now = one;
      DLLM_CHECK_OK(lab.begin_part(0, 1));
      DLLM_TRY(const std::string key, figure_key(*one, inputs_));
      std::optional<Figure> figure;
      if (!again_) {
        DLLM_TRY(figure, finished_figure(out_, *one, key));
      }
      if (figure) {
        kept += fmt::format("{}{}", kept.empty() ? "" : ", ", one->name);
      } else {
        DLLM_TRY(figure, one->make(lab));
        figure->key = key;
        DLLM_CHECK_OK(write_figure(*figure, out_, session.command));
      }
      figures.push_back(*std::move(figure));
      done += one->seconds;
    }
    progress.clear();
    session.interrupt.disarm();
    if (!kept.empty()) session.terminal.err << fmt::format("unchanged, not computed again (--again does): {}\n", kept);
    return figures;
  }

  std::vector<std::string> words_;
  std::string out_ = "research/figures";
  LabInputs inputs_;
  bool again_ = false;
};

}  // namespace

const std::vector<Experiment>& experiments() {
  constexpr unsigned kSteps = kReadsShape | kReadsPhones, kAnswers = kSteps | kReadsAnswers;
  constexpr unsigned kQuality = kSteps | kReadsUnseen;
  static const std::vector<Experiment> all = {
      {"step-latency", "a step of 8 to 128 rows, host against NPU", step_latency, kSteps},
      {"gemm-stairs", "one product by its rows, and in sparse groups", gemm_stairs, kSteps},
      {"weight-budget", "waiting for weights as the address window shrinks", weight_budget, kSteps},
      {"memory-boundary", "large steps with and without the memory runtime", memory_boundary, kSteps, 2},
      {"answer-latency", "32, 64 and 128 tokens on three phones in seven modes", answer_latency, kAnswers, 20},
      {"dream-latency", "the same for the shape of Dream-7B, on one phone", dream_latency, kAnswers, 10},
      {"lookahead-trigger", "128 tokens by the masks left at which drafts begin", lookahead_trigger, kAnswers, 10},
      {"answer-energy", "joules of 128 tokens in the same modes", answer_energy, kAnswers, 5},
      {"answer-sensitivity", "which parameter decides the ratios", answer_sensitivity, kAnswers, 40},
      {"quality", "accuracy of two trained models in the same modes", quality, kQuality, 1300},
      {"sampling-share", "sampling in a step on DART's and PLENA's NPUs, by the format of logits", sampling_share,
       kReadsShape | kReadsNpus, 20, kNpuPaper},
      {"block-phases", "warm step, refinement steps and sampling of a block on the same NPUs", block_phases,
       kReadsShape | kReadsNpus, 10, kNpuPaper},
      {"block-tail", "dynamics: passes with few masks, unsure commits, by the threshold", block_tail, kQuality, 120},
      {"commit-order", "dynamics: when the positions of a block are committed", commit_order, kQuality, 120},
      {"quant", "accuracy of two trained models in number formats and with quantized weights", quant,
       kReadsUnseen | kReadsCalibration, 900, kNpuPaper},
      {"smoothing-alpha", "four-bit K and V by the power of smoothing", smoothing_alpha, kReadsUnseen, 120, kNpuPaper},
      {"outlier-persistence", "whether channels with outliers remain the same", outlier_persistence, kReadsUnseen, 60,
       kNpuPaper}};
  return all;
}

[[maybe_unused]] const bool registered =
    add_verb({"experiment", "[OPTIONS] [NAME]", "Make figures of papers anew on simulated devices",
              []() -> std::unique_ptr<Verb> { return std::make_unique<RunExperiment>(); }});

}  // namespace dllm::app
