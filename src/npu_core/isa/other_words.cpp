#include "npu_core/isa/other_words.h"

#include <algorithm>
#include <cctype>

namespace dllm::npu {

std::span<const OtherInstruction> other_instructions() {
  static constexpr OtherInstruction kAll[] = {
      {WordSource::kPlenaCompiler, "M_TMM_A", 0x3C},
      {WordSource::kPlenaCompiler, "S_MAP_FP_V", 0x35},
  };
  return kAll;
}

const OtherInstruction* find_other(std::string_view mnemonic) {
  const auto same = [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
  };
  for (const OtherInstruction& one : other_instructions())
    if (std::ranges::equal(one.mnemonic, mnemonic, same)) return &one;
  return nullptr;
}

const OtherInstruction* find_other(WordSource source, std::uint32_t word) {
  for (const OtherInstruction& one : other_instructions())
    if (one.source == source && one.opcode == (word & 0x3fu)) return &one;
  return nullptr;
}

}  // namespace dllm::npu
