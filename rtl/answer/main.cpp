// Answers prompts on the core in simulation: make rtl-run.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answers.h"
#include "answer/programs.h"
#include "base/parse_text.h"
#include "base/try.h"
#include "dllm/model.h"
#include "engine/load.h"

namespace dllm::rtl {
namespace {

struct RunOptions {
  std::string model;  ///< file; empty: the embedded one
  std::vector<std::string> prompts;
  ProgramRun program;  ///< instead of prompts
  MemoryTiming timing;
  std::vector<npu::Override> device;  ///< of its memory
};

/// The first `count` prompts of a file with an object per line.
Expected<std::vector<std::string>> read_prompts(const std::string& path, std::size_t count) {
  std::ifstream file(path);
  std::vector<std::string> prompts;
  for (std::string line; prompts.size() < count && std::getline(file, line);) {
    const auto item = nlohmann::json::parse(line, nullptr, false);
    const auto prompt = item.is_object() ? item.find("prompt") : item.end();
    if (prompt == item.end() || !prompt->is_string())
      return Error{ErrorCode::kInvalidFile, fmt::format("line {} is no JSON object with a prompt", prompts.size() + 1),
                   path, "one object per line: {\"prompt\": \"text\"}"};
    prompts.push_back(prompt->get<std::string>());
  }
  if (prompts.empty()) return Error{ErrorCode::kIo, "no prompts", path, ""};
  return prompts;
}

constexpr const char* kUsage =
    "usage: dllm_rtl_run [--model FILE] [--prompts FILE COUNT] [--latency CYCLES --stall N] [--dram STANDARD STACKS]\n"
    "                    [PROMPT...] | --program FILE [--load PIECE=FILE]...\n"
    "Answers prompts on a device's core in simulation (make rtl-run DEVICE=...). Compares every program with the\n"
    "functional machine and the cycle simulator, and the answers with those of the device's profile. --dram: the\n"
    "memory has the times of this DRAM, command by command, in the core and in the simulator (dllm npu dram --list).\n"
    "--program: runs a program in assembler instead, after filling memories as dllm npu run --load.\n";

Expected<std::uint32_t> number(std::string_view text) {
  if (const auto value = parse_number<std::uint32_t>(text)) return *value;
  return Error{ErrorCode::kUsage, "'" + std::string(text) + "' is not a number", "", kUsage};
}

Expected<RunOptions> parse(int argc, char** argv) {
  RunOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const auto takes = [&](int values) { return i + values < argc; };
    if (flag == "--model" && takes(1)) {
      options.model = argv[++i];
    } else if (flag == "--prompts" && takes(2)) {
      DLLM_TRY(const std::uint32_t count, number(argv[i + 2]));
      DLLM_TRY(options.prompts, read_prompts(argv[i + 1], count));
      i += 2;
    } else if (flag == "--latency" && takes(1)) {
      DLLM_TRY(options.timing.latency, number(argv[++i]));
    } else if (flag == "--stall" && takes(1)) {
      DLLM_TRY(options.timing.stall, number(argv[++i]));
    } else if (flag == "--program" && takes(1)) {
      options.program.program = argv[++i];
    } else if (flag == "--load" && takes(1)) {
      options.program.loads.emplace_back(argv[++i]);
    } else if (flag == "--dram" && takes(2)) {
      options.timing.dram = true;
      options.device = {{"memory.standard", argv[i + 1]}, {"memory.stacks", argv[i + 2]}};
      i += 2;
    } else if (flag.starts_with("-")) {
      return Error{ErrorCode::kUsage, kUsage, "", ""};
    } else {
      options.prompts.emplace_back(flag);
    }
  }
  if (options.prompts.empty() == options.program.program.empty()) return Error{ErrorCode::kUsage, kUsage, "", ""};
  return options;
}

/// Errors: any difference between core and machine.
Expected<int> run_one_program(const RunOptions& options) {
  DLLM_TRY(const CoreShape shape, answer_device(options.device));
  DLLM_TRY(const CoreTotals totals, run_program(shape, options.program, options.timing));
  std::printf("%llu instructions, %lld cycles; %llu words and bytes compared, all equal\n%s",
              static_cast<unsigned long long>(totals.result.instructions), static_cast<long long>(totals.result.cycles),
              static_cast<unsigned long long>(totals.compared), cycle_table(totals).c_str());
  return 0;
}

/// Returns the number of answers that differ.
Expected<int> run(const RunOptions& options) {
  DLLM_TRY(ModelSource source, open_or_embedded(options.model));
  DLLM_TRY(const auto model, Model::load(std::move(source), Log([](LogLevel, const std::string&) {})));
  DLLM_TRY(const LanguageModel language, LanguageModel::load(options.model));
  DLLM_TRY(const CoreShape shape, answer_device(options.device));
  DLLM_TRY(const auto answers, CoreAnswers::create(model, shape, options.timing));
  DLLM_TRY(const ResolvedOptions resolved, language.resolve({}));
  int different = 0, passes = 0;
  for (const std::string& prompt : options.prompts) {
    DLLM_TRY(const std::vector<std::int32_t> ids, language.apply_template({{"user", prompt}}));
    const CoreTotals before = answers->totals();
    DLLM_TRY(const CoreAnswers::Answer answer, answers->answer(ids, resolved));
    const CoreTotals& now = answers->totals();
    passes += answer.core.stats.nfe;
    std::printf("> %s\n%s\n", prompt.c_str(), answer.core.text.c_str());
    std::printf("  %d passes, %zu prompt tokens, %lld cycles, %.0f s; %s\n", answer.core.stats.nfe, ids.size(),
                static_cast<long long>(now.result.cycles - before.result.cycles), now.seconds - before.seconds,
                answer.equal() ? "tokens and confidences equal the profile's" : "DIFFERS FROM THE PROFILE'S ANSWER");
    std::fflush(stdout);
    if (!answer.equal()) ++different;
  }
  const CoreTotals& totals = answers->totals();
  std::printf(
      "\n%zu answers, %d passes, %llu programs; %llu instructions; %llu words and bytes compared, all equal\n%s",
      options.prompts.size(), passes, static_cast<unsigned long long>(totals.programs),
      static_cast<unsigned long long>(totals.result.instructions), static_cast<unsigned long long>(totals.compared),
      cycle_table(totals).c_str());
  std::printf("%.0f s of simulation, %.0f cycles per second\n", totals.seconds,
              static_cast<double>(totals.result.cycles) / totals.seconds);
  return different;
}

}  // namespace
}  // namespace dllm::rtl

int main(int argc, char** argv) {
  const auto options = dllm::rtl::parse(argc, argv);
  if (!options) {
    std::fprintf(stderr, "%s\n", options.error().message().c_str());
    return 2;
  }
  const auto different =
      options->program.program.empty() ? dllm::rtl::run(*options) : dllm::rtl::run_one_program(*options);
  if (!different) {
    std::fprintf(stderr, "error: %s\n", different.error().message().c_str());
    return 1;
  }
  return *different == 0 ? 0 : 1;
}
