// Steps that are only placed, against the same steps compiled; and what no device has a program for.

#include "npu_compiler/compiler/feasible.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "npu_compiler/compiler/device_step.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

using Build = std::function<Graph(StepShape)>;

Build builder(const ModelShape& shape) {
  return [&shape](StepShape rows) { return shape.architecture->build(shape.desc, rows); };
}

/// How often each way to fit was seen.
struct WaysToFit {
  int whole = 0, plain = 0, cut = 0, turns = 0, refused = 0;
};

void compare_places(const Device& device, const ModelShape& shape, const StepSize& size, WaysToFit& seen) {
  CompileOptions places;
  places.places_only = true;
  const auto compiled = compile_graph(builder(shape), device, size, {}),
             placed = compile_graph(builder(shape), device, size, places);
  ASSERT_EQ(static_cast<bool>(compiled), static_cast<bool>(placed));
  if (!compiled) {
    EXPECT_EQ(compiled.error().message(), placed.error().message());
    ++seen.refused;
    return;
  }
  EXPECT_GT(compiled->step.program.size(), 0u);
  EXPECT_EQ(placed->step.program.size(), 0u);
  EXPECT_EQ(placed->step.row_parts, compiled->step.row_parts);
  ASSERT_EQ(placed->step.parts.size(), compiled->step.parts.size());
  for (std::size_t i = 0; i < compiled->step.parts.size(); ++i) {
    const StepProgram &a = placed->step.parts[i].step, &b = compiled->step.parts[i].step;
    EXPECT_EQ(a.vram_rows, b.vram_rows) << i;
    EXPECT_EQ(a.overlapped, b.overlapped) << i;
    EXPECT_EQ(a.step_bytes, b.step_bytes) << i;
    EXPECT_EQ(a.logits, b.logits) << i;
  }
  const bool turns = compiled->step.row_parts.front().rows > 0;
  ++(turns ? seen.turns : compiled->step.parts.size() > 1 ? seen.cut : seen.whole);
  seen.plain += compiled->step.parts.front().step.overlapped ? 0 : 1;
  // The parts of a step are joined as linked programs.
  Program again = compiled->step.program;
  ASSERT_TRUE(link(again));
  EXPECT_EQ(again.words, compiled->step.program.words);
  EXPECT_EQ(again.loop_partner, compiled->step.program.loop_partner);
  EXPECT_EQ(again.loop_depth, compiled->step.program.loop_depth);
}

/// Vector SRAM from too little for anything to more than is needed.
TEST(FeasibleSteps, ArePlacedAsTheyAreCompiled) {
  const std::pair<const char*, std::vector<Override>> devices[] = {
      {"dart-512", {}},
      {"dart-512", {{"numerics.smooth_keys", "mean"}, {"numerics.smooth_values", "minmax"}}},
      {"mobile-v79-mx", {}},
      {"plena-64", {{"array.hlen", "16"}}},
      {"plena-64-wide", {}}};
  WaysToFit seen;
  for (const auto& [name, changes] : devices)
    for (const char* model : {"llada-tiny", "dream-tiny", "llada-moe-tiny", "llada2-tiny", "nemotron-tiny"})
      for (const char* rows : {"192", "384", "768", "1536", "3072", "16384"})
        for (const StepSize& size : {StepSize{.sequences = 3, .rows = 16, .keys = 48, .scored = 16},
                                     {.sequences = 1, .rows = 96, .keys = 96, .scored = 32}}) {
          SCOPED_TRACE(std::string(name) + " " + model + " " + rows + " rows, batch " + std::to_string(size.sequences));
          std::vector<Override> all = changes;
          all.push_back({"sram.vector_rows", rows});
          compare_places(*load_device(name, all), *load_model_shape(model), size, seen);
        }
  EXPECT_GT(seen.whole, 20);
  EXPECT_GT(seen.plain, 3);
  EXPECT_GT(seen.cut, 3);
  EXPECT_GT(seen.turns, 3);
  EXPECT_GT(seen.refused, 20);
}

/// Named by every operator that is missing, or by what the device has too little of.
TEST(FeasibleSteps, UnknownOperatorsAreNamed) {
  const Workload w{.batch = 1, .block = 32, .context = 64};
  for (const char* name : {"dart-2048", "mobile-v79"}) {
    const auto gemma = check_feasible(*load_device(name), *load_model_shape("diffusion-gemma-tiny"), w);
    ASSERT_FALSE(gemma);
    EXPECT_EQ(gemma.error().code, ErrorCode::kUnsupported);
    for (const char* word :
         {"two regions", "window of attention", "norm without gain", "scale per expert", "GELU", "soft-capped logits"})
      EXPECT_NE(gemma.error().message().find(word), std::string::npos) << word;
  }
  EXPECT_TRUE(check_feasible(*load_device("dart-512"), *load_model_shape("mdlm-owt"), w));
  // 128 and 256 experts need as many lanes.
  for (const auto& [model, experts] : {std::pair{"rnd1-30b", "128 experts"}, {"llada2-mini", "256 experts"}}) {
    ModelShape shape = *load_model_shape(model);
    shape.desc.layers = shape.desc.experts.leading_dense + 1;
    EXPECT_TRUE(check_feasible(*load_device("dart-512"), shape, w)) << model;
    for (const char* narrow : {"mobile-v79", "mobile-v81-mx", "plena-64-wide"}) {
      const auto refused = check_feasible(*load_device(narrow), shape, w);
      ASSERT_FALSE(refused) << model;
      EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(refused.error().message().find(experts), std::string::npos) << refused.error().message();
      EXPECT_NE(refused.error().message().find("64 lanes"), std::string::npos) << refused.error().message();
    }
  }
}

}  // namespace
}  // namespace dllm::npu
