#include "test/core.h"

namespace dllm::rtl {

void CoreResult::add(const CoreResult& other) {
  if (first.empty()) first = other.first;
  instructions += other.instructions;
  products += other.products;
  write_outs += other.write_outs;
  transfers += other.transfers;
  wrong += other.wrong;
  times_apart += other.times_apart;
  values += other.values;
  cycles += other.cycles;
  loops_alone += other.loops_alone;
  fills += other.fills;
  for (std::size_t i = 0; i < kParts; ++i) {
    parts[i].instructions += other.parts[i].instructions;
    parts[i].core += other.parts[i].core;
    parts[i].simulator += other.parts[i].simulator;
  }
  executed |= other.executed;
  if (trap == 0) trap = other.trap;
}

}  // namespace dllm::rtl
