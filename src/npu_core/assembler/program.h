#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/assembler/choices.h"
#include "npu_core/isa/encoding.h"
#include "npu_core/isa/other_words.h"

namespace dllm::npu {

/// Instructions [begin, end) under one name: `.profile` of the assembler, operators of the compiler.
struct Region {
  std::string name;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// A decoded program with matched loops and valid branches. Immutable after link().
struct Program {
  std::string name;  ///< file name, for messages
  std::vector<Instruction> code;
  std::vector<std::uint32_t> words;  ///< as encoded, same length
  std::vector<std::uint32_t> lines;  ///< source line of each instruction, from 1; empty for binaries
  std::vector<Region> regions;       ///< in order of `begin`; may nest
  /// C_LOOP_START: index of its C_LOOP_END; C_LOOP_END: index of its C_LOOP_START; else 0.
  std::vector<std::uint32_t> loop_partner;
  int loop_depth = 0;  ///< deepest nesting
  ProgramChoices choices;
  bool half_scalars = false;  ///< numbers of S_LI_FP are FP16, for machines whose lanes are; else BF16

  std::size_t size() const { return code.size(); }
  /// "gemm.asm:12 (instruction 7): M_MM 0, gp1, gp2", for messages.
  std::string where(std::size_t index) const;
};

/// Encodes, matches loops, checks branches. Fills words, loop_partner and loop_depth.
/// Errors: kInvalidFile, with Program::where() of the offending instruction.
Expected<void> link(Program& program);

/// Decodes words (and links); `half_scalars`, which words do not tell, is false. Errors: kInvalidFile with the index of
/// the bad word.
/// Words of another `source` are refused where it has an instruction that the machine lacks.
Expected<Program> program_from_words(std::vector<std::uint32_t> words, std::string name,
                                     WordSource source = WordSource::kOurs);

/// A program file: raw little-endian words, or text with one hexadecimal word per line (PLENA's .mem files).
Expected<Program> program_from_bytes(std::string_view bytes, std::string name, WordSource source = WordSource::kOurs);

std::string to_binary(const Program& program);    ///< little-endian words
std::string to_hex_text(const Program& program);  ///< "0x%08X" per line

/// Assembly source that gives the same words. `annotate`: index and word in a comment, loops indented.
std::string disassemble(const Program& program, bool annotate);

}  // namespace dllm::npu
