// dllm experiment: figures of llada.cpp (arXiv 2606.13740) made anew on simulated phones.
#include <fmt/format.h>

#include <filesystem>
#include <ostream>
#include <system_error>

#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "app/experiment/experiments.h"
#include "base/output_file.h"
#include "base/try.h"

namespace dllm::app {
namespace {

std::vector<std::string> experiment_names() {
  std::vector<std::string> names = {"all"};
  for (const Experiment& one : experiments()) names.emplace_back(one.name);
  return names;
}

/// The page that compares every figure with the paper.
std::string comparison(const std::vector<Figure>& figures, const std::string& command) {
  std::string text =
      "# Experiments\n\nFigures of llada.cpp (arXiv 2606.13740) on simulated phones, made by\n\n```sh\n" + command +
      "\n```\n\nThe phones are models with assumed parameters (npu-answers.md in docs/design): none was measured.\n\n"
      "| figure | the paper | here |\n|---|---|---|\n";
  for (const Figure& figure : figures)
    text += fmt::format("| [{}]({}.md) | {} | {} |\n", figure.title, figure.name, figure.claim, figure.verdict);
  text +=
      "\nNot made here: the power of a real phone (cannot be: no phone), accuracy of the published checkpoints (cannot "
      "be: no\nweights), Dream on one device (not yet).\n";
  return text;
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
               .default_text = shape_,
               .takes_path = true,
               .apply = into(shape_)});
    flags.add({.names = {"-m", "--model"},
               .value = "PATH",
               .help = "trained model whose passes are timed",
               .default_text = model_,
               .takes_path = true,
               .apply = into(model_)});
    flags.add({.names = {"--items"},
               .value = "FILE.jsonl",
               .help = "its prompts; the first three are answered",
               .default_text = items_,
               .takes_path = true,
               .apply = into(items_)});
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
    Lab lab(shape_, model_, items_, session.interrupt.arm());
    const bool all = words_.front() == "all";
    std::vector<Figure> figures;
    ProgressLine progress(terminal);
    for (const Experiment& one : experiments()) {
      if (!all && one.name != words_.front()) continue;
      progress.show(static_cast<double>(figures.size()) / static_cast<double>(experiments().size()),
                    std::string(one.name));
      DLLM_TRY(Figure figure, one.make(lab));
      DLLM_CHECK_OK(write_figure(figure, out_, session.command));
      figures.push_back(std::move(figure));
    }
    progress.clear();
    session.interrupt.disarm();
    if (all) DLLM_CHECK_OK(write_file(out_ + "/README.md", comparison(figures, session.command)));
    for (const Figure& figure : figures)
      terminal.out << fmt::format("{}/{}.md: {}\n", out_, figure.name, figure.verdict);
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
  std::string out_ = "docs/experiments", shape_ = "llada-8b", model_ = "models/harder-llada-f16.gguf",
              items_ = "tests/golden/harder/validation.jsonl";
};

}  // namespace

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> all = {
      {"step-latency", "a step of 8 to 128 rows, host against NPU", step_latency},
      {"gemm-stairs", "one product by its rows, and in sparse groups", gemm_stairs},
      {"weight-budget", "waiting for weights as the address window shrinks", weight_budget},
      {"memory-boundary", "large steps with and without the memory runtime", memory_boundary},
      {"answer-latency", "32, 64 and 128 tokens on three phones in seven modes", answer_latency},
      {"lookahead-trigger", "128 tokens by the masks left at which drafts begin", lookahead_trigger},
      {"answer-energy", "joules of 128 tokens in the same modes", answer_energy},
      {"answer-sensitivity", "which parameter decides the ratios", answer_sensitivity}};
  return all;
}

std::unique_ptr<Verb> make_experiment() { return std::make_unique<RunExperiment>(); }

}  // namespace dllm::app
