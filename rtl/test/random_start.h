#pragma once

#include <verilated.h>

#include <memory>

namespace dllm::rtl {

/// A model whose registers and memories have random values at first, others in every model of a run: hardware that
/// depends on what nobody wrote differs from the machine, or fails an assertion. The inputs are random too.
template <class Model>
std::unique_ptr<Model> with_random_start() {
  constexpr int kZero = 0, kRandom = 2;
  static int seed = 0;
  Verilated::randReset(kRandom);
  Verilated::randSeed(++seed);
  auto model = std::make_unique<Model>();
  Verilated::randReset(kZero);
  return model;
}

}  // namespace dllm::rtl
