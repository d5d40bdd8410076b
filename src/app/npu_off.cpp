// Instead of the folder npu/, bench/answers.cpp and tile_layout.cpp in builds without simulated NPUs.
#include "app/bench/answers.h"
#include "app/npu/npu.h"
#include "app/tile_layout.h"
#include "engine/no_npu.h"

namespace dllm::app {

const std::vector<VerbEntry>& npu_verbs() {
  static const std::vector<VerbEntry> none;
  return none;
}

Expected<void> bench_answers(const std::string&, const BenchOptions&, const BenchWatch&, const BenchSink&) {
  return no_npu("--backend npu");
}

Expected<TileLayout> TileLayout::of(const std::string&) { return no_npu("--layout"); }
Expected<std::string> TileLayout::apply(const std::string&) const { return no_npu("--layout"); }

}  // namespace dllm::app
