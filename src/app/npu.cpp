#include "app/npu.h"

namespace dllm::app {

std::unique_ptr<Verb> make_npu_isa();
std::unique_ptr<Verb> make_npu_asm();
std::unique_ptr<Verb> make_npu_disasm();
std::unique_ptr<Verb> make_npu_run();

const std::vector<VerbEntry>& npu_verbs() {
  static const std::vector<VerbEntry> entries = {
      {"npu isa", "[OPTIONS] [MNEMONIC...]", "Print the instruction set", make_npu_isa},
      {"npu asm", "[OPTIONS] FILE.asm", "Assemble a program", make_npu_asm},
      {"npu disasm", "[OPTIONS] FILE", "Turn a program back into assembly", make_npu_disasm},
      {"npu run", "[OPTIONS] FILE", "Run a program on the functional machine", make_npu_run},
  };
  return entries;
}

}  // namespace dllm::app
