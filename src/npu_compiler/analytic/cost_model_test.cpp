#include "npu_compiler/analytic/cost_model.h"

#include <gtest/gtest.h>

#include "graph/builder.h"
#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/analytic/operator_work.h"
#include "npu_compiler/analytic/schedule_attention.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

struct Case {
  Device device;
  ModelShape shape;
  Workload workload;
  Graph warm, refine;
};

Case make_case(const std::string& device = "dart-2048", const std::string& model = "llada-8b", Workload workload = {}) {
  Case s;
  s.device = *load_device(device);
  s.shape = *load_model_shape(model);
  s.workload = workload;
  s.warm = s.shape.architecture->build(s.shape.desc, warm_shape(workload));
  s.refine = s.shape.architecture->build(s.shape.desc, refine_shape(workload));
  return s;
}

StepCost refine_cost(const Case& s, double gbps = 819.2) {
  auto model = CostModel::create(s.device, gbps);
  EXPECT_TRUE(model);
  auto cost = model->evaluate(s.refine, assumptions_of(s.workload));
  EXPECT_TRUE(cost) << cost.error().message();
  return *std::move(cost);
}

/// One refinement step computed by hand: LLaDA-8B, B = 16, L = 32, S = 256, 128 x 2048 PEs.
TEST(CostModel, WorkedRefinementStep) {
  const Case s = make_case();
  const StepCost cost = refine_cost(s);
  double linear = 0, head = 0, attention = 0, softmax = 0, other = 0;
  for (const OperatorCost& c : cost.operators) {
    const std::string_view name = op_name(s.refine.ops[static_cast<std::size_t>(c.op)]);
    if (name == "linear") linear += c.matrix;
    if (name == "score_head") head = c.matrix;
    if (name == "attention") attention += c.matrix, softmax += c.serial - c.matrix - c.memory;
    if (name == "rms_norm" || name == "rope" || name == "swiglu" || name == "add") other += c.serial - c.memory;
  }
  EXPECT_NEAR(linear, 13.6e6, 0.1e6);
  EXPECT_NEAR(head, 1.0e6, 0.02e6);
  EXPECT_NEAR(attention, 0.52e6, 0.01e6);
  EXPECT_NEAR(softmax, 13.6e6, 0.1e6);
  EXPECT_NEAR(other, 2.2e6, 0.1e6);
  // 7.15 TOP of linear layers, 0.53 of the head, and attention
  EXPECT_NEAR(2e-12 * static_cast<double>(cost.total.macs), 7.15 + 0.53 + 0.07, 0.03);
  // weights in MXINT4 and the head; KV
  EXPECT_NEAR(cost.total.weight_bytes, (6.98e9 + 0.518e9) * 4.25 / 8, 0.01e9);
  EXPECT_NEAR(cost.overlapped, 15.1e6, 0.2e6);
  EXPECT_EQ(cost.total.bound, Bound::kMatrix);
}

TEST(CostModel, BoundsHoldForEveryOperator) {
  for (const std::string& device : device_names())
    for (const char* model : {"llada-8b", "dream-7b"})
      for (const std::int64_t batch : {1, 16}) {
        const Case s =
            make_case(device, model, {.batch = batch, .block = 32, .context = 300, .steps = 8, .fused_head = true});
        const auto model_cost = CostModel::create(s.device, 0.88 * s.device.memory_gbps());
        for (const Graph* graph : {&s.warm, &s.refine}) {
          const auto cost = model_cost->evaluate(*graph, assumptions_of(s.workload));
          ASSERT_TRUE(cost) << cost.error().message();
          for (const OperatorCost& c : cost->operators) {
            ASSERT_LE(c.lower_bound, c.cycles * (1 + 1e-12)) << device << " op " << c.op;
            ASSERT_LE(c.cycles, c.matrix + c.vector + c.memory + c.host + 1e-6);
          }
          ASSERT_LE(cost->lower_bound, cost->overlapped * (1 + 1e-12));
          ASSERT_LE(cost->overlapped, cost->total.cycles * (1 + 1e-12));
        }
      }
}

TEST(CostModel, SmallBatchesAreMemoryBound) {
  const StepCost cost = refine_cost(
      make_case("dart-2048", "llada-8b", {.batch = 1, .block = 32, .context = 256, .steps = 32, .fused_head = true}));
  EXPECT_EQ(cost.total.bound, Bound::kMemory);
  EXPECT_NEAR(cost.overlapped, 4.9e6, 0.2e6);  // 3.98 GB of weights at 819 GB/s
}

TEST(CostModel, UnfusedHeadMovesTheLogitsTwice) {
  Case s = make_case();
  const double fused = refine_cost(s).total.read_bytes;
  s.workload.fused_head = false;
  EXPECT_NEAR(refine_cost(s).total.read_bytes - fused, 512.0 * 126464 * 8.25 / 8, 1);
}

/// ceil(M/32): 1 to 32 rows cost the same on the phone's tiles.
TEST(CostModel, Stairs) {
  const Device device = *load_device("mobile-v79");
  EXPECT_EQ(gemm_cycles(device, 1, 2048, 2048), gemm_cycles(device, 32, 2048, 2048));
  EXPECT_EQ(gemm_cycles(device, 33, 2048, 2048), 2 * gemm_cycles(device, 32, 2048, 2048));
  // The published product: 2048 x 6144 x 742 in 891 us.
  EXPECT_NEAR(gemm_cycles(device, 742, 6144, 2048) / 2.114e3, 891, 9);
}

TEST(CostModel, AttentionAtArrayGranularity) {
  const Device device = *load_device("dart-2048");
  EXPECT_EQ(attention_cycles(device, 16, 32, 256, 32, 32, 128), 16384);  // 8,192 for each of the two products
}

/// Vector code unpacks packed weights only: the rate is nothing to others.
TEST(CostModel, UnpackingIsChargedForPackedWeights) {
  const auto vector = [](const char* device, const char* model, const char* weight, const char* rate) {
    Case s = make_case(device, model, {.batch = 1, .block = 32, .context = 256, .steps = 8, .fused_head = true});
    s.device = *load_device(device, {{"numerics.weight", weight}, {"host.dequantize_gbps", rate}});
    return refine_cost(s, 50).total.vector;
  };
  for (const char* model : {"llada-8b", "llada-moe"}) {
    for (const char* packed : {"q4_0", "q8_0"})
      EXPECT_GT(vector("mobile-v79", model, packed, "13"), 1.5 * vector("mobile-v79", model, packed, "26")) << packed;
    for (const char* other : {"mxint4:32:plena", "mxfp8_e4m3:32:ocp", "bf16", "fp16"})
      EXPECT_EQ(vector("mobile-v79", model, other, "13"), vector("mobile-v79", model, other, "0")) << other;
  }
}

/// 32 transfers of which 16 wait in the queue keep the front end for half of their time, less what the array has to do.
TEST(KvStores, KeepTheFrontEndWhileTheyDoNotFitItsQueue) {
  const KvStores stores{.keys = 1000, .values = 1000, .key_slabs = 4, .streamed = true};
  EXPECT_EQ(stores.front_end_wait(16, 8, 100), 400);
  EXPECT_EQ(stores.front_end_wait(16, 8, 600), 0);
  EXPECT_EQ(stores.front_end_wait(16, 2, 0), 0);
  KvStores before = stores;
  before.streamed = false;
  EXPECT_EQ(before.front_end_wait(16, 8, 0), 0);
}

TEST(CostModel, AchievedBandwidthIsTheDramModels) {
  const auto gbps = achieved_bandwidth(*load_device("dart-2048"));
  ASSERT_TRUE(gbps);
  EXPECT_NEAR(*gbps, 717, 0.03 * 717);  // measured with Ramulator 2.1: 22.4 GB/s x 32
  EXPECT_NEAR(*achieved_bandwidth(*load_device("mobile-v79")), 60, 1e-9);
}

/// A front end that the models do not know would be free in a sweep.
TEST(CostModel, KnowsTheShippedFrontEndOnly) {
  for (const std::string& name : device_names()) EXPECT_TRUE(check_modelled(*load_device(name))) << name;
  for (const char* key : {"issue.width", "issue.queue", "issue.vector_starts", "issue.accumulators"}) {
    const auto known = check_modelled(*load_device("dart-2048", {{key, "4"}}));
    ASSERT_FALSE(known) << key;
    EXPECT_NE(known.error().message().find(key), std::string::npos);
    EXPECT_NE(known.error().message().find("dllm npu step"), std::string::npos);
    EXPECT_FALSE(is_modelled(key));
  }
  EXPECT_FALSE(check_modelled(*load_device("dart-2048", {{"issue.chaining", "0"}})));
  for (const char* key : {"latency.scalar_int", "prefetch.outstanding"}) {
    EXPECT_TRUE(check_modelled(*load_device("dart-2048", {{key, "4"}}))) << key;
    EXPECT_FALSE(is_modelled(key));
  }
  EXPECT_TRUE(is_modelled("sram.vector_ports"));
}

/// Layers repeat: one operator of each kind gives the sums, to the last bit.
TEST(CostModel, KindsOfOperatorsStandForAll) {
  for (const char* name : {"llada-8b", "dream-7b", "llada-moe-7b", "llada2-mini", "nemotron-labs-diffusion-8b"}) {
    const Case s = make_case("dart-2048", name, {.batch = 3, .block = 32, .context = 256});
    const auto model = CostModel::create(s.device, 717);
    GraphTemplate graph(s.shape);
    const StepCost all = *model->evaluate(s.refine, assumptions_of(s.workload));
    const StepCost few =
        *model->evaluate(graph.with(refine_shape(s.workload)), assumptions_of(s.workload), graph.alike());
    EXPECT_LT(few.operators.size(), 40u) << name;
    EXPECT_EQ(few.overlapped, all.overlapped) << name;
    EXPECT_EQ(few.lower_bound, all.lower_bound) << name;
    EXPECT_EQ(few.total.serial, all.total.serial) << name;
    EXPECT_EQ(few.total.macs, all.total.macs) << name;
    EXPECT_EQ(few.total.read_bytes, all.total.read_bytes) << name;
  }
}

TEST(CostModel, EveryPublishedShapeIsKnown) {
  for (const std::string& name : model_shape_names()) {
    EXPECT_TRUE(is_model_shape(name)) << name;
    EXPECT_EQ(load_model_shape(name)->desc.name, name);
  }
  EXPECT_EQ(load_model_shape("llada-moe")->desc.experts.count, 64);
  EXPECT_EQ(load_model_shape("llada-1.5")->architecture, load_model_shape("llada-8b")->architecture);
  EXPECT_FALSE(is_model_shape("llada-9b"));
  EXPECT_EQ(load_model_shape("llada-9b").error().hint, "did you mean 'llada-8b'?");
}

/// A step that runs in two parts reads its weights twice.
TEST(CostModel, PartsReadWeightsAgain) {
  const Case s = make_case();
  const auto model = CostModel::create(s.device, 717);
  CostAssumptions load = assumptions_of(s.workload);
  load.parts = 1;
  const double once = model->evaluate(s.refine, load)->total.read_bytes;
  load.parts = 2;
  const StepCost twice = *model->evaluate(s.refine, load);
  EXPECT_NEAR(twice.total.read_bytes - once, twice.total.weight_bytes, 1);
}

/// FP16 lanes are scaled before both sums of a layer norm: 9 instructions per slab instead of 7, as the compiler emits.
TEST(CostModel, LayerNormsOfHalfLanes) {
  Device device = *load_device("mobile-v79");
  const std::int64_t width = 2 * device.array.vlen;
  GraphBuilder b({.rows = 3, .scored = 3});
  const ValueId x = b.hidden_in(width, "x");
  b.hidden_out(b.layer_norm(x, b.weight("gain", {width}), b.weight("bias", {width}), 1e-5f, "n"));
  const Graph graph = b.take();
  const auto norm_of = [&](const char* activation) {
    device.numerics.activation = activation;
    return CostModel::create(device, 50)
        ->evaluate(graph, {.sequences = 1, .keys = 3, .fused_head = true})
        ->operators[1];
  };
  const OperatorCost half = norm_of("fp16"), brain = norm_of("bf16");
  const double slabs = 3 * 2, lanes = slabs * static_cast<double>(device.array.vlen);
  EXPECT_EQ(half.lane_ops, 9 * lanes);
  EXPECT_EQ(brain.lane_ops, 7 * lanes);
  EXPECT_EQ(half.serial - brain.serial, slabs * static_cast<double>(2 * device.latency.vector_mul));
}

TEST(Workload, Errors) {
  const Case s = make_case();
  const auto model = CostModel::create(s.device, 717);
  EXPECT_FALSE(check(Workload{.batch = 1, .block = 64, .context = 32, .steps = 1, .fused_head = true}));
  EXPECT_FALSE(check(Workload{.batch = 0, .block = 64, .context = 128, .steps = 1, .fused_head = true}));
  EXPECT_FALSE(load_model_shape("gpt-5"));
  EXPECT_FALSE(model->evaluate(s.refine, {.sequences = 0, .keys = 1, .fused_head = true}));
}

}  // namespace
}  // namespace dllm::npu
