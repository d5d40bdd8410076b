#pragma once
// Runs kernels of several sets on the same input and compares their results with the oracle's, bit for bit.

#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu::test {

struct Tested {
  const KernelSet* set;
  bool only_super;
  int cases = 0;
  int failures = 0;
};

/// Every case runs the oracle once, and all sets against its result: the oracle, without vectors, takes most of the
/// time.
class AgainstOracle {
 public:
  AgainstOracle(const KernelSet& oracle, std::vector<Tested> sets) : oracle_(oracle), sets_(std::move(sets)) {}

  const std::vector<Tested>& sets() const { return sets_; }

 protected:
  template <class T>
  void same(Tested& tested, const char* what, const std::vector<T>& expected, const std::vector<T>& actual) {
    ++tested.cases;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::memcmp(&expected[i], &actual[i], sizeof(T)) == 0) continue;
      if (expected[i] != expected[i] && actual[i] != actual[i]) continue;  // payloads of NaN may differ
      if (++tested.failures <= 20)
        std::printf("%s: %s differs at %zu of %zu: %.9g, not %.9g\n", tested.set->name, what, i, expected.size(),
                    static_cast<double>(actual[i]), static_cast<double>(expected[i]));
      return;
    }
  }

  /// Runs `body(set, out)` with the oracle and each set, and compares `size` floats.
  template <class Body>
  void compare(const char* what, std::int64_t size, Body body) {
    std::vector<float> expected(static_cast<std::size_t>(size), 7.f);
    body(oracle_, expected.data());
    for (Tested& tested : sets_) {
      if (tested.only_super) continue;
      std::vector<float> actual(static_cast<std::size_t>(size), 7.f);
      body(*tested.set, actual.data());
      same(tested, what, expected, actual);
    }
  }

  /// Runs `body(set)`, which returns a vector, with the oracle and each set.
  template <class Body>
  void compare_result(const char* what, Body body) {
    const auto expected = body(oracle_);
    for (Tested& tested : sets_)
      if (!tested.only_super) same(tested, what, expected, body(*tested.set));
  }

  const KernelSet& oracle_;
  std::vector<Tested> sets_;
};

}  // namespace dllm::cpu::test
