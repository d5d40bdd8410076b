#include "npu_core/assembler/testing/fuzz_entry.h"

#include <cstdlib>
#include <string_view>

#include "npu_core/assembler/assembler.h"
#include "npu_core/assembler/hazards.h"

namespace dllm::npu {
namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void check_round_trip(const Program& program) {
  for (const bool annotate : {false, true}) {
    const auto again = assemble(disassemble(program, annotate), {});
    check(again.has_value() && again->words == program.words);
  }
  const auto binary = program_from_bytes(to_binary(program), "fuzz");
  check(binary.has_value() && binary->words == program.words);
  const auto hex = program_from_bytes(to_hex_text(program), "fuzz");
  check(program.words.empty() || (hex.has_value() && hex->words == program.words));
  for (const Hazard& hazard : check_hazards(program)) check(hazard.index < program.size() && !hazard.what.empty());
}

}  // namespace

void fuzz_assembler(const std::uint8_t* data, std::size_t size, std::size_t max_instructions) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto program = assemble(text, {.file = "fuzz.asm", .max_instructions = max_instructions});
  if (program)
    check_round_trip(*program);
  else
    check(!program.error().what.empty() && program.error().where.starts_with("fuzz.asm"));
}

void fuzz_program(const std::uint8_t* data, std::size_t size) {
  const auto program = program_from_bytes({reinterpret_cast<const char*>(data), size}, "fuzz.bin");
  if (program) check_round_trip(*program);
}

}  // namespace dllm::npu
