#pragma once

#include <cstddef>
#include <cstdint>

namespace dllm::npu {

/// The body of fuzz/fuzz_npu_assembler.cpp, which a test runs over its corpus: assembles `data`; a program must
/// disassemble and assemble again to the same words, and every error must name a place. Aborts otherwise.
/// `max_instructions`: few, so that a short text that repeats itself takes no time.
void fuzz_assembler(const std::uint8_t* data, std::size_t size, std::size_t max_instructions = 4096);

/// The same for a program file (words or hexadecimal text).
void fuzz_program(const std::uint8_t* data, std::size_t size);

}  // namespace dllm::npu
