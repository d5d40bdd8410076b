#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/model_file.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/program.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/try.h"
#include "npu_core/assembler/assembler.h"
#include "npu_core/assembler/hazards.h"

namespace dllm::app {
namespace {

/// Prints all errors if there are several, and returns their number.
Expected<npu::Program> assemble_source(const std::string& text, const std::string& path, Terminal& terminal,
                                       bool half_scalars = false) {
  const std::string name = path == "-" ? "<stdin>" : path;
  npu::Assembly assembly = npu::assemble_all(text, {.file = name, .half_scalars = half_scalars});
  if (assembly.errors.empty()) return std::move(assembly.program);
  if (assembly.errors.size() == 1) return std::move(assembly.errors.front());
  for (const Error& error : assembly.errors) terminal.err << sanitize(error.message()) << "\n";
  const bool all = assembly.errors.size() < npu::AssemblerOptions{}.max_errors;
  return Error{ErrorCode::kInvalidFile, fmt::format("{}{} errors", all ? "" : "at least ", assembly.errors.size()),
               name, ""};
}

class NpuAsm final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("FILE.asm", "assembly; - is standard input", 1, words_);
    flags.group("Output");
    flags.add({.names = {"-o", "--output"},
               .value = "FILE",
               .help = "output file; without it, the program is checked and summarised",
               .takes_path = true,
               .written = true,
               .apply = into(output_)});
    flags.add({.names = {"--format"},
               .value = "FORMAT",
               .help = "bin: little-endian words; hex: one 0x........ per line, PLENA's .mem",
               .default_text = "bin",
               .choices = {"bin", "hex"},
               .apply = into(format_, {"bin", "hex"}),
               .needs = {"--output"}});
    flags.add({.names = {"--report"},
               .value = "FORMAT",
               .help = "how the summary is printed",
               .default_text = "text",
               .choices = {"text", "json"},
               .apply = into(report_, {"text", "json"})});
    flags.add({.names = {"--strict"}, .help = "hazards are an error (exit code 5)", .apply = into(strict_)});
    flags.add({.names = {"--fp16"}, .help = "numbers of S_LI_FP are FP16, as the phones' lanes", .apply = into(half_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (words_.empty()) return Error{ErrorCode::kUsage, "there is no file", "dllm npu asm", "dllm npu asm FILE.asm"};
    DLLM_TRY(const std::string text, read_text(words_.front(), session.terminal));
    DLLM_TRY(const npu::Program program, assemble_source(text, words_.front(), session.terminal, half_));
    const std::vector<npu::Hazard> hazards = npu::check_hazards(program);
    if (strict_ && !hazards.empty())
      return Error{ErrorCode::kMismatch, hazards.front().what, program.where(hazards.front().index),
                   fmt::format("{} hazards", hazards.size())};
    if (!output_.empty())
      DLLM_CHECK_OK(write_result(
          session, output_, format_ == "hex" ? npu::to_hex_text(program) : npu::to_binary(program), made_of(words_)));
    print(session.terminal, program, hazards);
    return kExitOk;
  }

 private:
  void print(Terminal& terminal, const npu::Program& program, const std::vector<npu::Hazard>& hazards) const {
    if (report_ == "json") {
      nlohmann::ordered_json found = nlohmann::ordered_json::array();
      for (const npu::Hazard& hazard : hazards)
        found.push_back({{"instruction", hazard.index}, {"line", program.lines[hazard.index]}, {"what", hazard.what}});
      nlohmann::ordered_json regions = nlohmann::ordered_json::array();
      for (const npu::Region& region : program.regions)
        regions.push_back({{"name", region.name}, {"begin", region.begin}, {"end", region.end}});
      terminal.out << dump({{"file", program.name},
                            {"instructions", program.size()},
                            {"bytes", 4 * program.size()},
                            {"loop_depth", program.loop_depth},
                            {"regions", regions},
                            {"hazards", found}})
                   << "\n";
      return;
    }
    terminal.out << fmt::format("{}: {} instructions, {} bytes, loops {} deep\n", program.name, program.size(),
                                4 * program.size(), program.loop_depth);
    for (const npu::Hazard& hazard : hazards)
      terminal.err << fmt::format("warning: {}: {}\n", program.where(hazard.index), hazard.what);
  }

  std::vector<std::string> words_;
  std::string output_, format_ = "bin", report_ = "text";
  bool strict_ = false, half_ = false;
};

class NpuDisasm final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("FILE", "words as bytes or hexadecimal text", 1, words_);
    words_flag_.add(flags);
    flags.group("Output");
    flags.add({.names = {"--annotate"},
               .help = "indent loops; add each instruction's index and word",
               .apply = into(annotate_)});
    flags.add({.names = {"--fp16"}, .help = "numbers of S_LI_FP are FP16, as the phones' lanes", .apply = into(half_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (words_.empty()) return Error{ErrorCode::kUsage, "there is no file", "dllm npu disasm", "dllm npu disasm FILE"};
    DLLM_TRY(const npu::Program program,
             open_npu_program(words_.front(), session.terminal, words_flag_.source(), half_));
    session.terminal.out << npu::disassemble(program, annotate_);
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
  WordsFlag words_flag_;
  bool annotate_ = false, half_ = false;
};

}  // namespace

void WordsFlag::add(Flags& flags) {
  const std::vector<std::string> known(std::begin(npu::kWordSources), std::end(npu::kWordSources));
  flags.add({.names = {"--words"},
             .value = "SOURCE",
             .help = "whose opcodes the file's words have (docs/guide/npu.md, Words of other branches)",
             .default_text = known.front(),
             .choices = known,
             .apply = into(name_, known)});
}

npu::WordSource WordsFlag::source() const {
  return static_cast<npu::WordSource>(std::ranges::find(npu::kWordSources, name_) - std::begin(npu::kWordSources));
}

Expected<npu::Program> open_npu_program(const std::string& path, Terminal& terminal, npu::WordSource source,
                                        bool half_scalars) {
  if (path == "-" || path.ends_with(".asm") || path.ends_with(".s")) {
    if (source != npu::WordSource::kOurs)
      return Error{ErrorCode::kUsage, "assembly has names and no opcodes", "--words", "give a file of words"};
    DLLM_TRY(const std::string text, read_text(path, terminal));
    return assemble_source(text, path, terminal, half_scalars);
  }
  DLLM_TRY(const std::string bytes, read_input(path));
  DLLM_TRY(npu::Program program, npu::program_from_bytes(bytes, path, source));
  program.half_scalars = half_scalars;
  return program;
}

std::unique_ptr<Verb> make_npu_asm() { return std::make_unique<NpuAsm>(); }
std::unique_ptr<Verb> make_npu_disasm() { return std::make_unique<NpuDisasm>(); }

}  // namespace dllm::app
