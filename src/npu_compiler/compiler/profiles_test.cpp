// The priced schedule of every shipped device against the simulation of the compiled step.

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "npu_compiler/analytic/schedule.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_core/device/profile.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

struct ShippedCase {
  std::string device;
  const char* model;
  StepSize size;
};
void PrintTo(const ShippedCase& c, std::ostream* out) {
  *out << c.device << " " << c.model << " " << c.size.sequences << "x" << c.size.rows << " of " << c.size.keys;
}

/// One layer of a model and a short head, narrow enough that the smallest device simulates it in a second.
ModelShape narrow(const char* model, const Device& device) {
  ModelShape shape = *load_model_shape(model);
  ModelDesc& d = shape.desc;
  const bool small = device.array.blen < 8;
  d.layers = d.experts.leading_dense + 1, d.vocab = 2048;
  d.width = d.ffn_width = small ? 512 : 2048;
  // The smallest array adds a head along its HLEN lanes only.
  d.head_dim = d.rope_dims = device.array.hlen < 32 ? device.array.hlen : 64;
  d.heads = d.kv_heads = d.width / d.head_dim;
  if (d.experts.count > 0) d.experts.count = 16, d.experts.used = 2, d.experts.width = d.width / 2;
  return shape;
}

class ShippedDevices : public testing::TestWithParam<ShippedCase> {};

TEST_P(ShippedDevices, AreScheduledAsTheySimulate) {
  const ShippedCase& c = GetParam();
  const auto device = load_device(c.device);
  ASSERT_TRUE(device) << device.error().message();
  StepRequest request{.size = c.size};
  if (c.size.rows == c.size.keys) request.size.rows = 32, request.cache = CacheKind::kNone;
  const auto step = compile_step(narrow(c.model, *device), *device, request);
  ASSERT_TRUE(step) << step.error().message();
  TimingOptions options;
  options.repeat = true;
  const auto simulated = simulate(*device, step->machine, step->step.program, options);
  ASSERT_TRUE(simulated) << simulated.error().message();
  double scheduled = 0;
  for (const StepPart& part : step->step.parts) {
    const auto schedule = schedule_step(*device, part.graph,
                                        {.sequences = static_cast<std::int64_t>(part.spec.sequences.size()),
                                         .keys = c.size.keys,
                                         .logits = true,
                                         .logit_bytes = device->numerics.logit_bytes,
                                         .gbps = *achieved_bandwidth(*device),
                                         .segment = part.segment});
    ASSERT_TRUE(schedule) << schedule.error().message();
    scheduled += schedule->total;
  }
  const auto cycles = static_cast<double>(simulated->total);
  EXPECT_NEAR(scheduled, cycles, 0.05 * cycles);
}

/// Refinement steps of one and, of dense models, four sequences, and a warm step.
std::vector<ShippedCase> shipped_cases() {
  std::vector<ShippedCase> cases;
  for (const std::string& name : device_names())
    for (const char* model : {"llada-8b", "llada-moe"})
      for (const StepSize& size : {StepSize{.sequences = 1, .rows = 32, .keys = 64},
                                   {.sequences = 4, .rows = 32, .keys = 64},
                                   {.sequences = 2, .rows = 64, .keys = 64}})
        if (size.sequences < 4 || std::string_view(model) == "llada-8b") cases.push_back({name, model, size});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, ShippedDevices, testing::ValuesIn(shipped_cases()));

}  // namespace
}  // namespace dllm::npu
