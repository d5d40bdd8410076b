#include "npu_core/assembler/assembler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "npu_core/assembler/expander.h"
#include "npu_core/assembler/operand_parser.h"

namespace dllm::npu {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1] ? 1 : 0)});
      diagonal = std::exchange(row[j], next);
    }
  }
  return row[b.size()];
}

std::string nearest_mnemonic(std::string_view word) {
  std::string upper(word.substr(0, 32)), best;
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  std::size_t distance = 3;  // more than 2 edits are not a typing error
  for (const InstructionInfo& row : instruction_table())
    if (const std::size_t d = edit_distance(upper, row.mnemonic); d < distance) {
      distance = d;
      best = std::string(row.mnemonic);
    }
  return best;
}

bool is_register(OperandKind kind) {
  return kind == OperandKind::kGp || kind == OperandKind::kFp || kind == OperandKind::kAddr;
}

bool is_zero(std::string_view text) {
  const int number = parse_register(text);
  return text == "0" || number == 0 || number == kFpBase;
}

/// Removes what PLENA's generators write for fields that the instruction does not have: trailing zeros (S_EXP_FP f1,
/// f1, 0), and in a form with a register and a literal a zero between them (M_MV_WO gp1, gp0, 64).
void remove_unused(const InstructionInfo& row, std::vector<Part>& parts) {
  const std::size_t count = row.operand_count;
  if (count == 2 && row.operands[1].kind == OperandKind::kUint && parts.size() == 3) {
    // In M_MV_WO gp1, 64, 0 PLENA's assembler uses the 0: neither operand is unused, so the line is refused.
    if (is_zero(parts[1].text)) parts.erase(parts.begin() + 1);
    return;
  }
  while (parts.size() > count && is_zero(parts.back().text)) parts.pop_back();
}

/// A table entry with the source's operands in its order.
struct Match {
  const InstructionInfo* row = nullptr;
  std::vector<Part> parts;

  bool fits() const {
    bool all = parts.size() <= row->operand_count;
    for (std::size_t i = 0; all && i < parts.size(); ++i)
      all = (parse_register(parts[i].text) != -1) == is_register(row->operands[i].kind);
    return all;
  }
};

/// Entries with one mnemonic, and the operand orders of one entry, differ in whether an operand is a register or a
/// literal: takes the first that fits, else the first.
Match choose(std::span<const InstructionInfo* const> rows, const std::vector<Part>& parts) {
  const auto match = [&parts](const InstructionInfo* row) {
    Match result{row, parts};
    remove_unused(*row, result.parts);
    return result;
  };
  Match first = match(rows.front());
  if (rows.size() == 1 && rows.front()->other_order_count == 0) return first;
  for (const InstructionInfo* row : rows) {
    Match one = match(row);
    if (one.fits()) return one;
    if (row->other_order_count == 0 || parts.size() != row->other_order_count) continue;
    one.parts.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) one.parts[row->other_order[i]] = parts[i];
    if (one.fits()) return one;
  }
  return first;
}

class Assembler {
 public:
  explicit Assembler(const AssemblerOptions& options)
      : max_errors_(options.max_errors),
        half_scalars_(options.half_scalars),
        expander_(
            options.file, options.max_instructions, [this](const SourceLine& line) { return this->line(line); },
            [this](Error error) { return report(std::move(error)); }) {
    program_.name = options.file;
    program_.half_scalars = options.half_scalars;
  }

  Assembly run(std::string_view text) {
    expander_.run(text);
    for (const OpenBlock& block : open_)
      report(expander_.error(block.line, block.column, fmt::format("{} is never closed", block.kind)));
    for (const Fixup& fixup : fixups_)
      if (auto done = set_offset(fixup); !done) report(std::move(done).error());
    // Refused lines left no instruction, so errors about the remaining loops and branches would be wrong.
    if (errors_.empty())
      if (auto linked = link(program_); !linked) report(std::move(linked).error());
    return {std::move(program_), std::move(errors_)};
  }

 private:
  /// A macro's body or a repetition may fail in every expansion: each place is reported once.
  bool report(Error error) {
    for (const Error& earlier : errors_)
      if (earlier.where == error.where) return true;
    if (errors_.size() < max_errors_) errors_.push_back(std::move(error));
    return errors_.size() < max_errors_;
  }

  struct Fixup {
    std::uint32_t index;
    Field field;
    std::string label;
    SourceLine line;
    std::size_t column;
  };
  struct OpenBlock {
    std::string_view kind;
    std::uint32_t value;  ///< the loop's register, or the region's index
    SourceLine line;
    std::size_t column;
  };

  Expected<void> set_offset(const Fixup& fixup) {
    const auto label = labels_.find(fixup.label);
    if (label == labels_.end())
      return expander_.error(fixup.line, fixup.column, fmt::format("there is no label '{}'", fixup.label));
    const std::int64_t offset = std::int64_t{label->second} - std::int64_t{fixup.index};
    const std::int64_t bound = std::int64_t{1} << (field_info(fixup.field).width - 1);
    if (offset < -bound || offset >= bound)
      return expander_.error(fixup.line, fixup.column,
                             fmt::format("label '{}' is {} instructions away", fixup.label, offset));
    program_.code[fixup.index].set(fixup.field,
                                   static_cast<std::uint32_t>(offset) & static_cast<std::uint32_t>(2 * bound - 1));
    return {};
  }

  Expected<void> line(const SourceLine& source) {
    const std::string_view text = source.text;
    std::size_t at = text.find_first_not_of(kBlanks);
    // Labels: any number of "name:" before an instruction.
    for (std::size_t end; at < text.size(); at = std::min(text.find_first_not_of(kBlanks, end + 1), text.size())) {
      end = text.find_first_of(" \t:", at);
      if (end == std::string_view::npos || text[end] != ':') break;
      const std::string_view label = text.substr(at, end - at);
      if (!is_identifier(label)) return expander_.error(source, at, fmt::format("'{}' is not a valid label", label));
      if (!labels_.emplace(label, static_cast<std::uint32_t>(program_.size())).second)
        return expander_.error(source, at, fmt::format("label '{}' is defined twice", label));
    }
    if (at >= text.size()) return {};
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    const std::size_t rest = std::min(text.find_first_not_of(kBlanks, end), text.size());
    return statement(source, text.substr(at, end - at), at, text.substr(rest), rest);
  }

  Expected<void> statement(const SourceLine& source, std::string_view word, std::size_t column, std::string_view rest,
                           std::size_t rest_column) {
    if (word == ".loop") return open_loop(source, column, rest, rest_column);
    if (word == ".endloop") return close_loop(source, column);
    if (word == ".profile") return open_region(source, column, rest, rest_column);
    if (word == ".endprofile") return close_region(source, column);
    if (word.front() == '.')
      return expander_.error(source, column, fmt::format("unknown directive '{}'", word),
                             "known: .const .assert .macro .endm .rep .endr .loop .endloop .profile .endprofile");
    if (word == "li" || word == "LI") return load_immediate(source, rest, rest_column);
    return instruction(source, word, column, rest, rest_column);
  }

  Expected<void> instruction(const SourceLine& source, std::string_view word, std::size_t column, std::string_view rest,
                             std::size_t rest_column) {
    const auto rows = find_mnemonic(word);
    if (rows.empty()) {
      if (const OtherInstruction* other = find_other(word))
        return expander_.error(
            source, column,
            fmt::format("{} is an instruction of PLENA's branch {}, which this machine does not have", other->mnemonic,
                        kWordSources[static_cast<std::size_t>(other->source)]),
            fmt::format("its opcode 0x{:02X} is another instruction here: docs/guide/npu.md", other->opcode));
      const std::string near = nearest_mnemonic(word);
      return expander_.error(
          source, column, fmt::format("unknown instruction '{}'", word.substr(0, 64)),
          near.empty() ? "docs/guide/isa.md lists the instructions" : fmt::format("did you mean {}?", near));
    }
    const Match match = choose(rows, split_operands(rest));
    const InstructionInfo& row = *match.row;
    const std::vector<Part>& parts = match.parts;
    std::size_t required = 0;
    for (const Operand& operand : row.operand_list()) required += operand.optional ? 0 : 1;
    if (parts.size() < required || parts.size() > row.operand_count)
      return count_error(source, column, row, parts.size(), required);
    Instruction result;
    result.op = row.op;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Operand& operand = row.operands[i];
      std::string label;
      DLLM_TRY(const std::uint32_t value, parse_operand(expander_, source, rest_column + parts[i].offset, parts[i].text,
                                                        operand, half_scalars_, label));
      result.set(operand.field, value);
      if (!label.empty())
        fixups_.push_back(
            {static_cast<std::uint32_t>(program_.size()), operand.field, label, source, rest_column + parts[i].offset});
    }
    emit(source, result);
    return {};
  }

  Expected<void> count_error(const SourceLine& source, std::size_t column, const InstructionInfo& row,
                             std::size_t given, std::size_t required) const {
    std::string form(row.mnemonic);
    for (std::size_t i = 0; i < row.operand_count; ++i)
      form += fmt::format("{}{}", i == 0 ? " " : ", ", row.operands[i].name);
    const std::string count =
        required == row.operand_count ? std::to_string(required) : fmt::format("{} to {}", required, row.operand_count);
    return expander_.error(source, column, fmt::format("{} takes {} operands, not {}", row.mnemonic, count, given),
                           "its form is " + form);
  }

  void emit(const SourceLine& source, const Instruction& instruction) {
    program_.code.push_back(instruction);
    program_.lines.push_back(source.invoked != 0 ? source.invoked : source.line);
  }

  Expected<std::uint32_t> general_register(const SourceLine& source, std::size_t column, std::string_view text) const {
    const int number = parse_register(text);
    if (number <= 0 || number >= kGpRegisters)
      return expander_.error(source, column, fmt::format("expected a register gp1 to gp15, not '{}'", text));
    return static_cast<std::uint32_t>(number);
  }

  /// li gpN, VALUE: one instruction up to 18 bits, else S_LUI_INT and, if the low 12 bits are not 0, S_ADDI_INT.
  Expected<void> load_immediate(const SourceLine& source, std::string_view rest, std::size_t column) {
    const std::vector<Part> parts = split_operands(rest);
    if (parts.size() != 2) return expander_.error(source, column, "expected li gpN, VALUE");
    DLLM_TRY(const std::uint32_t target, general_register(source, column + parts[0].offset, parts[0].text));
    DLLM_TRY(const std::int64_t value, expander_.value(source, column + parts[1].offset, parts[1].text));
    if (value < -(std::int64_t{1} << 31) || value > 0xffffffff)
      return expander_.error(source, column + parts[1].offset, fmt::format("{} does not fit into 32 bits", value));
    const auto bits = static_cast<std::uint32_t>(value);
    Instruction add{Op::S_ADDI_INT, {}};
    add.set(Field::kRd, target);
    if (bits < (1u << 18)) {
      add.set(Field::kImm18, bits);
      emit(source, add);
      return {};
    }
    Instruction high{Op::S_LUI_INT, {}};
    high.set(Field::kRd, target);
    high.set(Field::kImm22, bits >> 12);
    emit(source, high);
    if ((bits & 0xfff) == 0) return {};
    add.set(Field::kRs1, target);
    add.set(Field::kImm18, bits & 0xfff);
    emit(source, add);
    return {};
  }

  Expected<void> open_loop(const SourceLine& source, std::size_t column, std::string_view rest,
                           std::size_t rest_column) {
    // The block is opened even if the line is wrong, so that its end is not reported too.
    open_.push_back({".loop", 0, source, column});
    const std::vector<Part> parts = split_operands(rest);
    if (parts.size() != 2) return expander_.error(source, rest_column, "expected .loop gpN, COUNT");
    DLLM_TRY(const std::uint32_t counter, general_register(source, rest_column + parts[0].offset, parts[0].text));
    DLLM_TRY(const std::int64_t count, expander_.value(source, rest_column + parts[1].offset, parts[1].text));
    if (count < 1 || count >= (1 << 22))
      return expander_.error(source, rest_column + parts[1].offset, fmt::format("the count is {}", count),
                             "1 to 4194303");
    open_.back().value = counter;
    Instruction start{Op::C_LOOP_START, {}};
    start.set(Field::kRd, counter);
    start.set(Field::kImm22, static_cast<std::uint32_t>(count));
    emit(source, start);
    return {};
  }

  Expected<void> close_loop(const SourceLine& source, std::size_t column) {
    DLLM_TRY(const OpenBlock block, close(source, column, ".loop", ".endloop"));
    Instruction end{Op::C_LOOP_END, {}};
    end.set(Field::kRd, block.value);
    emit(source, end);
    return {};
  }

  Expected<void> open_region(const SourceLine& source, std::size_t column, std::string_view rest,
                             std::size_t rest_column) {
    open_.push_back({".profile", static_cast<std::uint32_t>(program_.regions.size()), source, column});
    if (!is_identifier(rest)) return expander_.error(source, rest_column, "expected .profile NAME");
    program_.regions.push_back({std::string(rest), static_cast<std::uint32_t>(program_.size()), 0});
    return {};
  }

  Expected<void> close_region(const SourceLine& source, std::size_t column) {
    DLLM_TRY(const OpenBlock block, close(source, column, ".profile", ".endprofile"));
    if (block.value < program_.regions.size())
      program_.regions[block.value].end = static_cast<std::uint32_t>(program_.size());
    return {};
  }

  Expected<OpenBlock> close(const SourceLine& source, std::size_t column, std::string_view kind,
                            std::string_view closer) {
    if (open_.empty() || open_.back().kind != kind)
      return expander_.error(
          source, column, fmt::format("{} closes nothing", closer),
          open_.empty() ? "" : fmt::format("{} of line {} is open", open_.back().kind, open_.back().line.line));
    OpenBlock block = std::move(open_.back());
    open_.pop_back();
    return block;
  }

  std::size_t max_errors_;
  bool half_scalars_;
  Program program_;
  std::vector<Error> errors_;
  Expander expander_;
  std::map<std::string, std::uint32_t, std::less<>> labels_;
  std::vector<Fixup> fixups_;
  std::vector<OpenBlock> open_;
};

}  // namespace

Assembly assemble_all(std::string_view text, const AssemblerOptions& options) { return Assembler(options).run(text); }

Expected<Program> assemble(std::string_view text, const AssemblerOptions& options) {
  Assembly assembly = assemble_all(text, options);
  if (!assembly.errors.empty()) return std::move(assembly.errors.front());
  return std::move(assembly.program);
}

}  // namespace dllm::npu
