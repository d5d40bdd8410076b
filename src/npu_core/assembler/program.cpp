#include "npu_core/assembler/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/try.h"

namespace dllm::npu {
namespace {

Error fault(const Program& program, std::size_t index, std::string what, std::string hint = "") {
  return {ErrorCode::kInvalidFile, std::move(what), program.where(index), std::move(hint)};
}

Expected<void> match_loops(Program& program) {
  std::vector<std::uint32_t> open;
  program.loop_partner.assign(program.size(), 0);
  program.loop_depth = 0;
  for (std::uint32_t i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (instruction.op == Op::C_LOOP_START) {
      if (instruction.get(Field::kRd) == 0)
        return fault(program, i, "a loop cannot count in gp0, which is always 0", "use gp1 to gp15");
      open.push_back(i);
      program.loop_depth = std::max(program.loop_depth, static_cast<int>(open.size()));
    } else if (instruction.op == Op::C_LOOP_END) {
      if (open.empty()) return fault(program, i, "no C_LOOP_START is open here");
      const std::uint32_t start = open.back();
      const std::uint32_t counter = program.code[start].get(Field::kRd);
      if (counter != instruction.get(Field::kRd))
        return fault(program, i, fmt::format("the innermost open loop counts in gp{}", counter),
                     "loops nest: close the inner one first");
      open.pop_back();
      program.loop_partner[start] = i;
      program.loop_partner[i] = start;
    }
  }
  if (!open.empty()) return fault(program, open.back(), "this loop has no C_LOOP_END");
  return {};
}

/// C_LOOP_START of the innermost loop whose body contains the instruction, + 1; 0: none. The body is (start, end].
std::vector<std::uint32_t> enclosing_loops(const Program& program) {
  std::vector<std::uint32_t> result(program.size() + 1, 0), open;
  for (std::uint32_t i = 0; i < program.size(); ++i) {
    result[i] = open.empty() ? 0 : open.back() + 1;
    if (program.code[i].op == Op::C_LOOP_START) open.push_back(i);
    if (program.code[i].op == Op::C_LOOP_END) open.pop_back();
  }
  return result;
}

Expected<void> check_branches(const Program& program) {
  std::vector<std::uint32_t> enclosing;
  for (std::uint32_t i = 0; i < program.size(); ++i) {
    if (program.code[i].op != Op::C_BNZ) continue;
    if (enclosing.empty()) enclosing = enclosing_loops(program);
    const std::int64_t target = std::int64_t{i} + program.code[i].get_signed(Field::kImm18);
    if (target < 0 || target > static_cast<std::int64_t>(program.size()))
      return fault(program, i, fmt::format("its target, instruction {}, is outside the program", target));
    // Every loop around the target must also be around the branch.
    for (std::uint32_t loop = enclosing[static_cast<std::size_t>(target)]; loop != 0; loop = enclosing[loop - 1]) {
      const std::uint32_t start = loop - 1, end = program.loop_partner[start];
      if (i <= start || i > end)
        return fault(program, i, fmt::format("it jumps into the loop that starts at instruction {}", start),
                     "branches may leave loops, not enter them");
    }
  }
  return {};
}

bool is_hex_text(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && bytes.substr(first, 2) == "0x";
}

Expected<std::vector<std::uint32_t>> words_of_text(std::string_view text, const std::string& name) {
  std::vector<std::uint32_t> words;
  std::size_t line = 1;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!word.empty() && std::strchr(" \t\r", word.back()) != nullptr) word.remove_suffix(1);
    while (!word.empty() && std::strchr(" \t\r", word.front()) != nullptr) word.remove_prefix(1);
    if (!word.empty()) {
      const bool prefixed = word.starts_with("0x") || word.starts_with("0X");
      std::uint64_t value = 0;
      bool good = prefixed && word.size() > 2 && word.size() <= 10;
      for (const char c : word.substr(std::min<std::size_t>(2, word.size()))) {
        const char* digits = "0123456789abcdef";
        const char* found = c != '\0' ? std::strchr(digits, c | 0x20) : nullptr;
        good = good && found != nullptr && ((c >= '0' && c <= '9') || (c | 0x20) >= 'a');
        if (good) value = value * 16 + static_cast<std::uint64_t>(found - digits);
      }
      if (!good)
        return Error{ErrorCode::kInvalidFile, "expected one word 0x........ per line", fmt::format("{}:{}", name, line),
                     ""};
      words.push_back(static_cast<std::uint32_t>(value));
    }
    ++line;
  }
  return words;
}

}  // namespace

std::string Program::where(std::size_t index) const {
  std::string text = name.empty() ? "program" : name;
  if (index < lines.size() && lines[index] != 0) text += fmt::format(":{}", lines[index]);
  text += fmt::format(" (instruction {})", index);
  if (index < code.size()) text += ": " + to_text(code[index], half_scalars);
  return text;
}

Expected<void> link(Program& program) {
  program.words.clear();
  program.words.reserve(program.size());
  for (std::size_t i = 0; i < program.size(); ++i) {
    auto word = encode(program.code[i]);
    if (!word) return fault(program, i, word.error().what, word.error().hint);
    program.words.push_back(*word);
  }
  DLLM_CHECK_OK(match_loops(program));
  return check_branches(program);
}

Expected<Program> program_from_words(std::vector<std::uint32_t> words, std::string name, WordSource source) {
  Program program;
  program.name = std::move(name);
  program.code.reserve(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (const OtherInstruction* other = find_other(source, words[i]))
      return fault(program, i,
                   fmt::format("word 0x{:08x} is {} of {}, which this machine does not have", words[i], other->mnemonic,
                               kWordSources[static_cast<std::size_t>(source)]),
                   "docs/guide/npu.md, Words of other branches");
    auto instruction = decode(words[i]);
    if (!instruction) return fault(program, i, instruction.error().what, instruction.error().hint);
    program.code.push_back(*instruction);
  }
  DLLM_CHECK_OK(link(program));
  return program;
}

Expected<Program> program_from_bytes(std::string_view bytes, std::string name, WordSource source) {
  std::vector<std::uint32_t> words;
  if (is_hex_text(bytes)) {
    DLLM_TRY(words, words_of_text(bytes, name));
  } else {
    if (bytes.size() % 4 != 0)
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("{} bytes are not a whole number of 32-bit words", bytes.size()), name,
                   "assembly text is given as .asm"};
    words.resize(bytes.size() / 4);
    for (std::size_t i = 0; i < words.size(); ++i)
      for (std::size_t b = 0; b < 4; ++b)
        words[i] |= std::uint32_t{static_cast<unsigned char>(bytes[4 * i + b])} << (8 * b);
  }
  return program_from_words(std::move(words), std::move(name), source);
}

std::string to_binary(const Program& program) {
  std::string bytes;
  bytes.reserve(4 * program.size());
  for (const std::uint32_t word : program.words)
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((word >> shift) & 0xff);
  return bytes;
}

std::string to_hex_text(const Program& program) {
  std::string text;
  for (const std::uint32_t word : program.words) text += fmt::format("0x{:08X}\n", word);
  return text;
}

std::string disassemble(const Program& program, bool annotate) {
  std::string text;
  std::size_t depth = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (instruction.op == Op::C_LOOP_END && depth > 0) --depth;
    std::string line = std::string(annotate ? 2 * depth : 0, ' ') + to_text(instruction, program.half_scalars);
    if (annotate) line = fmt::format("{:<48}; {:5}  0x{:08x}", line, i, program.words[i]);
    text += line + "\n";
    if (instruction.op == Op::C_LOOP_START) ++depth;
  }
  return text;
}

}  // namespace dllm::npu
