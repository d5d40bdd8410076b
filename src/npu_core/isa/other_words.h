#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dllm::npu {

/// Whose opcodes the words of a program file have. Words do not tell, and two branches of one instruction set may give
/// the same opcode to different instructions.
enum class WordSource : std::uint8_t {
  kOurs,           ///< PLENA's main branch, and the extensions of docs/guide/isa.md
  kPlenaCompiler,  ///< PLENA's branch `plena-compiler`
};
inline constexpr std::string_view kWordSources[] = {"dllm", "plena-compiler"};

/// An instruction that the machine does not have, at an opcode that it uses for another one.
struct OtherInstruction {
  WordSource source;
  std::string_view mnemonic;
  std::uint8_t opcode;
};
std::span<const OtherInstruction> other_instructions();
/// By mnemonic, case-insensitive; nullptr: unknown.
const OtherInstruction* find_other(std::string_view mnemonic);
/// By opcode of a source's words; nullptr: it has no instruction there that the machine lacks.
const OtherInstruction* find_other(WordSource source, std::uint32_t word);

}  // namespace dllm::npu
