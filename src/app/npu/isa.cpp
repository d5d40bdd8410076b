#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/try.h"
#include "npu_core/isa/generate.h"
#include "npu_core/isa/isa.h"

namespace dllm::app {
namespace {

class NpuIsa final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("[MNEMONIC...]", "only these instructions", 64, words_);
    flags.group("Output");
    flags.add({.names = {"--format"},
               .value = "FORMAT",
               .help = "md: docs/guide/isa.md; sv: rtl/dllm_isa_pkg.sv",
               .default_text = "md",
               .choices = {"md", "sv", "json"},
               .apply = into(format_, {"md", "sv", "json"})});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    std::ostream& out = session.terminal.out;
    if (!words_.empty()) return print_some(out);
    out << (format_ == "json" ? dump(npu::isa_json()) + "\n"
            : format_ == "sv" ? npu::isa_systemverilog()
                              : npu::isa_markdown());
    return kExitOk;
  }

 private:
  Expected<ExitCode> print_some(std::ostream& out) const {
    nlohmann::ordered_json found = nlohmann::ordered_json::array();
    const nlohmann::ordered_json all = npu::isa_json();
    for (const std::string& word : words_) {
      const auto rows = npu::find_mnemonic(word);
      if (rows.empty()) {
        std::vector<std::string> names;
        for (const npu::InstructionInfo& row : npu::instruction_table()) names.emplace_back(row.mnemonic);
        return Error{ErrorCode::kUsage, fmt::format("unknown instruction '{}'", word), "", choice_hint(word, names)};
      }
      for (const auto& row : all["instructions"])
        if (row["mnemonic"] == rows.front()->mnemonic) found.push_back(row);
    }
    if (format_ == "json") {
      out << dump(found) << "\n";
      return kExitOk;
    }
    if (format_ == "sv")
      return Error{ErrorCode::kUsage, "the package holds all instructions", "", "leave the mnemonics out"};
    for (const auto& row : found) {
      std::string operands;
      for (const auto& operand : row["operands"])
        operands += (operands.empty() ? " " : ", ") + operand["name"].get<std::string>();
      out << fmt::format("{}{}\n  opcode 0x{:02x}, class {}, unit {}, latency rule {}\n  {}\n",
                         row["mnemonic"].get<std::string>(), operands, row["opcode"].get<int>(),
                         row["class"].get<std::string>(), row["unit"].get<std::string>(),
                         row["latency"].get<std::string>(), row["effect"].get<std::string>());
      if (const auto note = row["note"].get<std::string>(); !note.empty()) out << "  " << note << "\n";
    }
    return kExitOk;
  }

  std::vector<std::string> words_;
  std::string format_ = "md";
};

}  // namespace

std::unique_ptr<Verb> make_npu_isa() { return std::make_unique<NpuIsa>(); }

}  // namespace dllm::app
