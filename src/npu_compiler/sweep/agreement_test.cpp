// Do analyze, sweep, step and hand arithmetic agree on one configuration, over the range of arrays?

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/integers.h"
#include "npu_compiler/analytic/schedule.h"
#include "npu_compiler/compiler/block_cost.h"
#include "npu_compiler/compiler/feasible.h"
#include "npu_compiler/compiler/make_step.h"
#include "npu_compiler/compiler/split_step.h"
#include "npu_compiler/sweep/run.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

/// A layer of LLaDA-8B's width with a third of its feed-forward layer and a short head.
constexpr const char* kModel =
    "name = \"layer\"\narchitecture = \"llada\"\nvocab = 2048\nwidth = 4096\nlayers = 1\nheads = 32\nkv_heads = 32\n"
    "head_dim = 128\nffn_width = 4096\n";
constexpr std::int64_t kVocab = 2048, kWidth = 4096;
const Workload kWork = {.batch = 2, .block = 32, .context = 64, .steps = 32, .fused_head = false};

struct Array {
  std::int64_t blen, mlen, vlen;
  std::int64_t hlen() const { return std::max<std::int64_t>(128, blen); }
  std::string name() const { return fmt::format("BLEN {} MLEN {} VLEN {}", blen, mlen, vlen); }
};

std::vector<Array> all_arrays() {
  std::vector<Array> arrays;
  for (const std::int64_t blen : {16, 32, 64, 128, 256})
    for (const std::int64_t mlen : {512, 1024, 2048, 4096})
      for (const std::int64_t vlen : {64, 512, 1024, 2048}) arrays.push_back({blen, mlen, vlen});
  return arrays;
}

Expected<Device> device_of(const Array& a) {
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  return load_device("dart-2048", {{"array.blen", text(a.blen)},
                                   {"array.mlen", text(a.mlen)},
                                   {"array.vlen", text(a.vlen)},
                                   {"array.hlen", text(a.hlen())}});
}

/// The refinement step as `dllm npu step` compiles it.
Expected<SplitStep> compile(const Device& device, const MachineConfig& machine, const ModelShape& shape) {
  const Graph any = shape.architecture->build(shape.desc, {1, 1});
  std::vector<bool> present;
  for (const WeightDecl& decl : any.weights) present.push_back(decl.required);
  const auto layout = make_layout(any, present, machine, kWork.context);
  if (!layout) return layout.error();
  const auto spec = make_step(any, *layout, {.sequences = kWork.batch, .rows = kWork.block, .keys = kWork.context});
  if (!spec) return spec.error();
  CompileOptions options;
  options.logits = *mx_format_from_name(device.numerics.logits);
  return compile_split([&](StepShape rows) { return shape.architecture->build(shape.desc, rows); }, *layout, *spec,
                       options);
}

/// All of analyze's figures for a configuration.
struct Analysis {
  double gbps = 0, cycles = 0;
  BlockCost block;
  MemoryNeed need;
};
Expected<Analysis> analyze(const Device& device, const ModelShape& shape) {
  Analysis a;
  const auto parts = check_feasible(device, shape, kWork);
  if (!parts) return parts.error();
  a.need = *memory_need(device, shape, kWork.context);
  static const double same_memory = *achieved_bandwidth(device);
  a.gbps = same_memory;
  StepTimes times(shape);
  a.block = *evaluate_block(times, *CostModel::create(device, a.gbps),
                            shape.architecture->build(shape.desc, warm_shape(kWork)),
                            shape.architecture->build(shape.desc, refine_shape(kWork)), kWork, *parts);
  EXPECT_EQ(a.block.refine.time.source, TimeSource::kPriced);
  a.cycles = a.block.refine.time.cycles();
  return a;
}

/// Cycles of the array for the step's products: rows, outputs and contraction in whole tiles of BLEN cycles each.
double products_by_hand(const Array& a) {
  const std::int64_t blocks = ceil_div(kWork.batch * kWork.block, a.blen);
  // If heads have more lanes than dimensions, the projections to and from them have as many outputs as lanes.
  const std::int64_t heads = 32 * a.hlen(), ffn = 4096;
  const auto tiles = [&](std::int64_t n, std::int64_t k) { return ceil_div(n, a.blen) * ceil_div(k, a.mlen); };
  return static_cast<double>(blocks * a.blen *
                             (3 * tiles(heads, kWidth) + tiles(kWidth, heads) + 2 * tiles(ffn, kWidth) +
                              tiles(kWidth, ffn) + tiles(kVocab, kWidth)));
}

class Agreement : public testing::Test {
 protected:
  std::filesystem::path stem_ =
      std::filesystem::temp_directory_path() / ("dllm_agreement_test_" + std::to_string(::getpid()));
  std::string model_ = stem_.string() + ".toml", database_ = stem_.string() + ".sqlite";
  ModelShape shape_;

  void SetUp() override {
    std::ofstream(model_) << kModel;
    auto shape = load_model_shape(model_);
    ASSERT_TRUE(shape) << shape.error().message();
    shape_ = *std::move(shape);
  }
  void TearDown() override {
    std::filesystem::remove(model_);
    std::filesystem::remove(database_);
  }

  /// The arrays, in one sweep each for HLEN 128 and 256; calls check(array, row, its error).
  template <class Check>
  void sweep(const Check& check) {
    auto store = *SweepStore::open(database_);
    for (const bool large : {false, true}) {
      const std::string text = fmt::format(
          "name = \"a\"\nmodel = \"{}\"\n[device]\nbase = \"dart-2048\"\n\"array.hlen\" = [{}]\n\"array.blen\" = {}\n"
          "\"array.mlen\" = [512, 1024, 2048, 4096]\n\"array.vlen\" = [64, 512, 1024, 2048]\n[workload]\nbatch = [2]\n"
          "context = [64]\n",
          model_, large ? 256 : 128, large ? "[256]" : "[16, 32, 64, 128]");
      const auto spec = parse_sweep(text, "s.toml");
      ASSERT_TRUE(spec) << spec.error().message();
      const auto report = run_sweep(*spec, store, 1, {});
      ASSERT_TRUE(report) << report.error().message();
      for (const SweepRow& row : report->rows) {
        const std::vector<std::string> at = spec->at(row.point);
        check(Array{std::stol(at[1]), std::stol(at[2]), std::stol(at[3])}, row, report->errors[row.error]);
      }
    }
  }
};

TEST_F(Agreement, TimeBandwidthAndCapacityHaveTheirBounds) {
  int checked = 0;
  for (const Array& array : all_arrays()) {
    const auto device = device_of(array);
    if (!device) continue;
    const auto found = analyze(*device, shape_);
    if (!found) continue;
    SCOPED_TRACE(array.name());
    const double hertz = device->clock.ghz * 1e9, seconds = found->block.refine.seconds;
    const OperatorCost& sum = found->block.refine.cost.total;
    const double peak = 2 * static_cast<double>(array.blen * array.mlen) * hertz;
    EXPECT_NEAR(device->peak_tops(), peak * 1e-12, 1e-9 * peak * 1e-12);
    EXPECT_LE(2 * static_cast<double>(sum.macs) / seconds, peak);
    // The step writes logits; sampling reads them later.
    const double logits = static_cast<double>(kWork.batch * kWork.block * kVocab) * device->numerics.logit_bytes;
    EXPECT_LE((sum.read_bytes + sum.write_bytes - logits) / seconds, found->gbps * 1e9);
    EXPECT_LE(found->gbps, device->memory_gbps());
    EXPECT_LE(found->need.weights + 2 * found->need.cache, device->memory_config.bytes());
    const double hand = products_by_hand(array);
    EXPECT_GE(found->cycles, hand);
    EXPECT_GE(found->cycles, sum.weight_bytes / found->gbps * device->clock.ghz);
    double products = 0;
    const auto schedule = schedule_step(*device, shape_.architecture->build(shape_.desc, refine_shape(kWork)),
                                        {.sequences = kWork.batch,
                                         .keys = kWork.context,
                                         .logits = true,
                                         .logit_bytes = device->numerics.logit_bytes,
                                         .gbps = found->gbps});
    for (const ScheduledPhase& phase : schedule->phases)
      if (phase.name != "blk.0.attn_mix") products += phase.array;
    EXPECT_NEAR(products, hand, 0.02 * hand);
    // Tokens per second, from the cycles of both kinds of steps.
    const double block = found->block.warm.seconds + 31 * found->cycles / hertz;
    EXPECT_NEAR(found->block.tokens_per_second, 2 * 32 / block, 0.02 * 2 * 32 / block);
    ++checked;
  }
  EXPECT_EQ(checked, 26);
}

TEST_F(Agreement, WhatCannotBeIsRefusedWithTheSameWords) {
  int refused = 0;
  sweep([&](const Array& array, const SweepRow& row, const std::string& words) {
    SCOPED_TRACE(array.name());
    const auto device = device_of(array);
    std::optional<Error> error;
    if (!device) {
      error = device.error();
      EXPECT_NE(words.find(error->what), std::string::npos) << words;
    } else {
      const auto found = analyze(*device, shape_);
      const auto step = compile(*device, *machine_config(*device), shape_);
      ASSERT_EQ(static_cast<bool>(found), static_cast<bool>(step));
      if (found) {
        EXPECT_EQ(row.error, 0u) << words;
        EXPECT_NEAR(row.metrics[metric_index("peak_tops")], device->peak_tops(), 1e-9 * device->peak_tops());
        return;
      }
      error = step.error();
      EXPECT_EQ(found.error().message(), error->message());
      EXPECT_EQ(words, error->message());
    }
    ++refused;
    EXPECT_NE(row.error, 0u);
    EXPECT_NE(words.find(error->hint), std::string::npos) << words;
  });
  EXPECT_EQ(refused, 54);
}

/// Points of the range: its corners and some in between. `npu step` simulates what analyze and sweep compute.
TEST_F(Agreement, StepSimulatesWhatAnalyzeSays) {
  for (const Array& array : {Array{16, 512, 512}, Array{16, 2048, 2048}, Array{64, 512, 2048}, Array{64, 1024, 1024},
                             Array{128, 1024, 2048}, Array{256, 2048, 2048}}) {
    SCOPED_TRACE(array.name());
    const Device device = *device_of(array);
    const MachineConfig machine = *machine_config(device);
    const auto found = analyze(device, shape_);
    ASSERT_TRUE(found) << found.error().message();
    const auto step = compile(device, machine, shape_);
    ASSERT_TRUE(step) << step.error().message();
    const auto simulated = simulate(device, machine, step->program, {});
    ASSERT_TRUE(simulated) << simulated.error().message();
    const auto cycles = static_cast<double>(simulated->total);
    EXPECT_NEAR(found->cycles, cycles, 0.02 * cycles);
    const double seconds = simulated->seconds(device);
    EXPECT_NEAR(found->block.refine.seconds, seconds, 0.02 * seconds);
    EXPECT_LE(2 * simulated->macs / seconds, device.peak_tops() * 1e12);
    EXPECT_LE(static_cast<double>(simulated->read_bytes + simulated->write_bytes) / seconds,
              device.memory_gbps() * 1e9);
    EXPECT_GE(static_cast<double>(simulated->engines[index_of(Engine::kMatrix)].busy), products_by_hand(array));
  }
}

}  // namespace
}  // namespace dllm::npu
