// Instead of the folder npu/ and bench/answers.cpp in builds without simulated NPUs.
#include "app/bench/answers.h"
#include "app/npu/npu.h"
#include "engine/backend/no_npu.h"

namespace dllm::app {

const std::vector<VerbEntry>& npu_verbs() {
  static const std::vector<VerbEntry> none;
  return none;
}

Expected<void> bench_answers(const BackendEntry&, const std::string&, const BenchOptions&, const BenchWatch&,
                             const BenchSink&) {
  return no_npu("--backend npu");
}

}  // namespace dllm::app
