#include "npu_core/device/energy.h"

#include <gtest/gtest.h>

#include "npu_core/device/format_costs.h"
#include "npu_core/device/profile.h"
#include "npu_core/device/unit_costs.h"
#include "npu_core/dram/streams.h"

namespace dllm::npu {
namespace {

TEST(Energy, FitsThePublishedSynthesisPoints) {
  EXPECT_LT(vector_area_fit().worst_residual, 0.001);
  EXPECT_LT(vector_power_fit().worst_residual, 0.001);
  EXPECT_NEAR(vector_area_fit().slope, 1.43229e-3, 1e-7);  // fit to d-PLENA, Table IV
  EXPECT_NEAR(vector_power_fit().slope, 0.744017, 1e-5);
  // The default of the profiles is the slope: mW per lane at 1 GHz is pJ per lane and cycle.
  EXPECT_NEAR(load_device("dart-2048")->energy.vector_lane_pj, vector_power_fit().slope, 1e-3);
}

TEST(Energy, FitOfALineIsExact) {
  const LinearFit fit = fit_line({1, 2, 5}, {5, 7, 13});
  EXPECT_NEAR(fit.slope, 2, 1e-12);
  EXPECT_NEAR(fit.offset, 3, 1e-12);
  EXPECT_NEAR(fit.worst_residual, 0, 1e-12);
}

TEST(Energy, AreaOfTheArray) {
  // 166.3 um2 per PE, and 25 flip-flops of 0.292 in the cut of a path of 1.39 ns; converters of MLEN lanes.
  const double pe = 166.3 + 0.39 * 64 * 0.292;
  EXPECT_NEAR(area(*load_device("dart-1024")).matrix, (64 * pe + 20.8) * 1024e-6, 0.01);
  EXPECT_NEAR(area(*load_device("dart-2048")).matrix, (128 * pe + 20.8) * 2048e-6, 0.04);
  // The fit and square roots; the adder has more time than it needs.
  EXPECT_NEAR(area(*load_device("dart-2048")).vector, 2.931 + 2048 * 160e-6, 0.02);
}

/// Each part of a machine costs area or energy, and a faster one costs more.
TEST(Energy, NothingIsFree) {
  const auto with = [](std::vector<std::string> sets) {
    std::vector<Override> overrides;
    for (const std::string& set : sets) overrides.push_back(*parse_override(set));
    auto device = load_device("dart-2048", overrides);
    EXPECT_TRUE(device) << device.error().message();
    return *device;
  };
  const Device plain = with({});
  for (const char* less : {"issue.width=1", "issue.vector_starts=1", "issue.chaining=0", "issue.accumulators=1",
                           "issue.queue=1", "sram.vector_ports=1", "sram.matrix_ports=1", "memory.stacks=1",
                           "sram.instruction_words=1024", "array.blen=64", "array.vlen=2048"})
    EXPECT_LE(area(with({less})).total(), area(plain).total() - (std::string(less) == "array.vlen=2048" ? 0 : 1e-4))
        << less;
  EXPECT_GT(area(with({"clock.ghz=1.4"})).matrix, 1.1 * area(plain).matrix);
  const Work work{.macs = 1e12, .matrix_cycles = 4e6, .lane_ops = 1e10, .read_bytes = 1e9, .instructions = 2e5};
  // The same work in the time that the clock allows.
  double last = 1e9;
  for (const char* clock : {"clock.ghz=1.8", "clock.ghz=1.4", "clock.ghz=1", "clock.ghz=0.8"}) {
    const Device device = with({clock});
    const double joules = step_energy(device, work, 4e-3 / device.clock.ghz).total();
    EXPECT_LT(joules, last) << clock;
    last = joules;
  }
  const double idle = step_energy(plain, {}, 1).total();
  EXPECT_GT(step_energy(with({"memory.stacks=4"}), {}, 1).total(), 1.2 * idle);
  EXPECT_GT(step_energy(plain, {.instructions = 1e9}, 1).total(), idle);
  EXPECT_GT(step_energy(with({"array.blen=128", "sram.matrix_tiles=32"}), {}, 1).total(), idle);
}

TEST(Energy, AStepsPartsSumAndScale) {
  const Device device = *load_device("dart-2048");
  Work cost;
  cost.macs = 1e9;
  cost.read_bytes = 1e9;
  const StepEnergy one = step_energy(device, cost, 1e-3);
  EXPECT_NEAR(one.matrix, 1e9 * 0.276e-12, 1e-12);
  EXPECT_NEAR(one.dram_background, 0.033 * 32 * 1e-3, 1e-9);
  EXPECT_NEAR(one.dram_core + one.dram_io, 1e9 * 8 * 3.7e-12, 1e9 * 8 * 0.2e-12);  // pJ per bit
  cost.macs *= 2;
  EXPECT_NEAR(step_energy(device, cost, 1e-3).total() - one.total(), one.matrix, 1e-12);
}

FormatCosts costs_of(const char* weight, const char* activation, const char* kv) {
  return format_costs(weight, activation, kv);
}

/// Points that were synthesised, and those between them that were synthesised too but are not points of the lines.
TEST(FormatCosts, FollowTheSynthesis) {
  const char *int4 = "mxint4:32:plena", *int8 = "mxint8:32:ocp", *fp8 = "mxfp8_e4m3:32:ocp";
  EXPECT_NEAR(costs_of(int4, int8, int4).pe_um2, 166.3, 1e-9);
  EXPECT_NEAR(costs_of(int4, int8, int4).mac_ratio, 1, 1e-12);
  EXPECT_NEAR(costs_of(int8, int8, int8).pe_um2, 194.8, 1e-9);
  EXPECT_NEAR(costs_of(fp8, fp8, fp8).pe_um2, 509.8, 1e-9);
  EXPECT_NEAR(costs_of("bf16", "bf16", "bf16").pe_um2, 179.6, 1e-9);
  EXPECT_NEAR(costs_of("fp16", "fp16", "fp16").pe_um2, 211.4, 1e-9);
  EXPECT_NEAR(costs_of(int4, int4, int4).pe_um2, unit_costs::int_pe_4_4.um2, 0.05 * unit_costs::int_pe_4_4.um2);
  const FormatCosts six = costs_of("mxfp4_e2m1:32:ocp", "mxfp6_e3m2:32:ocp", "mxfp4_e2m1:32:ocp");
  EXPECT_NEAR(six.pe_um2, 182.3, 0.5);  // 10 x 5 bits in a window of 32, of which only the one of 64 was synthesised
}

/// Keys that are multiplied in FP32 need adders of their own beside the integer window.
TEST(FormatCosts, TwoKindsOfSumsAreTwoAdders) {
  const char *int4 = "mxint4:32:plena", *int8 = "mxint8:32:ocp";
  EXPECT_NEAR(costs_of(int4, int8, "bf16").pe_um2,
              costs_of(int4, int8, int4).pe_um2 + costs_of("bf16", int8, "bf16").pe_um2, 1e-9);
  EXPECT_NEAR(costs_of(int4, int8, int8).pe_um2, costs_of(int8, int8, int4).pe_um2, 1e-9);
  EXPECT_GT(costs_of("bf16", "bf16", int4).mac_ratio, costs_of(int4, int8, int4).mac_ratio);
}

TEST(FormatCosts, ConvertersAndSram) {
  const FormatCosts blocks = costs_of("mxint4:32:plena", "mxint8:32:ocp", "mxint4:32:plena");
  EXPECT_GT(blocks.input_um2, blocks.store_um2);  // eight bits and four
  EXPECT_GT(blocks.load_um2, 0);
  EXPECT_EQ(blocks.matrix_bytes, 4.25 / 8);
  const FormatCosts moved = costs_of("q4_0", "fp16", "fp16");
  EXPECT_EQ(moved.input_um2 + moved.store_um2 + moved.load_um2, 0);
  EXPECT_EQ(moved.matrix_bytes, 2);  // packed weights are unpacked before they get there
  EXPECT_EQ(costs_of("mxint4:32:plena", "mxint8:32:ocp", "bf16").matrix_bytes, 2);
}

/// Keys that are 0 are the standard's; others are the profile's.
TEST(Energy, MemoryCostsAreTheStandardsUnlessAProfileGivesThem) {
  EXPECT_EQ(load_device("dart-2048")->memory_costs().io_pj_per_byte, 16);
  EXPECT_EQ(load_device("mobile-v79")->memory_costs().io_pj_per_byte, 24);
  const Device own = *load_device("dart-2048", {{"energy.dram_io_pj_per_byte", "11"}, {"memory.phy_mm2", "7"}});
  EXPECT_EQ(own.memory_costs().io_pj_per_byte, 11);
  EXPECT_EQ(own.memory_costs().read_pj_per_byte, 12.6);
  EXPECT_NEAR(area(own).phy, 14, 1e-12);
  const Device newer = *load_device("dart-2048", {{"memory.standard", "hbm3-6400"}});
  EXPECT_NEAR(area(newer).phy, 32, 1e-12);
  EXPECT_GT(step_energy(newer, {}, 1).phy, step_energy(*load_device("dart-2048"), {}, 1).phy);
}

/// The closed form for whole rows against the simulated counts of a sequential stream.
TEST(Energy, SimulatedTrafficAgreesWithTheClosedForm) {
  Device device = *load_device("dart-2048");
  device.memory_config.channels = 1;
  auto memory = dram::MemorySystem::create(device.memory_config, device.period_fs());
  dram::StreamSpec spec;
  spec.requests = 40000;
  const auto result = dram::run_stream(*memory, spec);
  ASSERT_TRUE(result);
  memory->advance(memory->cycle_of(memory->finished()));
  const double simulated = dram_energy(device, memory->stats(0, 0)) + dram_energy(device, memory->stats(0, 1));
  Work cost;
  cost.read_bytes = static_cast<double>(result->bytes);
  const StepEnergy expected = step_energy(device, cost, result->seconds);
  EXPECT_NEAR(simulated, expected.total() - expected.fixed - expected.phy, 0.05 * simulated);
}

}  // namespace
}  // namespace dllm::npu
