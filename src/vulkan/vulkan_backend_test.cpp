// The backend as a whole against the CPU's, on small models: 0 bits of the logits differ.
#include "vulkan/vulkan_backend.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cpu/testing/backend_logits.h"
#include "cpu/testing/tiny_model.h"
#include "vulkan/on_device.h"
#include "vulkan/testing/operator_rig.h"
#include "vulkan/testing/test_device.h"

namespace dllm::vulkan {
namespace {

using cpu::test::TinyModel;
using test::difference;
using test::OperatorRig;
using test::test_device;

Expected<std::unique_ptr<VulkanBackend>> on_device(const TinyModel& model, const VulkanOptions& options = {},
                                                   std::shared_ptr<Device> device = test_device()) {
  return make_backend_on(std::move(device), OperatorRig::operators().arithmetic(), ModelDesc{}, model.factory(),
                         model.weights(), options);
}

SequenceStep step_over(Position begin, Position end, TokenId seed = 0) {
  SequenceStep step;
  for (Position p = begin; p < end; ++p) {
    step.plan.rows.push_back({p, (p * 37 + seed) % 150});
    step.plan.scored.push_back(p - begin);
  }
  step.plan.visible = {{0, end}};
  step.request.logits = true;
  return step;
}

/// A model on both backends, with caches for some sequences.
struct Both {
  Both(const TinyModel& model, CpuKvType kv, int sequences = 1, std::shared_ptr<Device> device = test_device()) {
    CpuOptions options;
    options.threads = 1;
    options.kv = kv;
    here = cpu::test::make_backend(model, options);
    VulkanOptions vulkan;
    vulkan.threads = 1;
    vulkan.kv = kv;
    auto made = on_device(model, vulkan, std::move(device));
    EXPECT_TRUE(made) << made.error().message();
    there = std::move(*made);
    for (int s = 0; s < sequences; ++s) {
      here_caches.push_back(*here->make_cache(200));
      there_caches.push_back(*there->make_cache(200));
    }
  }

  /// Runs a pass on both; what differs.
  std::string compare(std::vector<SequenceStep> batch) {
    for (std::size_t s = 0; s < batch.size(); ++s) batch[s].cache = here_caches[s].get();
    const auto expected = here->forward(batch);
    for (std::size_t s = 0; s < batch.size(); ++s) batch[s].cache = there_caches[s].get();
    const auto actual = there->forward(batch);
    if (!expected || !actual) return actual ? "the CPU failed" : actual.error().message();
    std::string text;
    for (std::size_t s = 0; s < batch.size(); ++s) {
      text += difference((*actual)[s].logits, (*expected)[s].logits);
      for (std::size_t i = 0; i < (*expected)[s].rows.size(); ++i) {
        const RowScore &a = (*actual)[s].rows[i], &b = (*expected)[s].rows[i];
        if (a.token != b.token || a.confidence != b.confidence || a.entropy != b.entropy || a.log_odds != b.log_odds)
          text += " and the scores of a row";
      }
    }
    return text;
  }

  std::unique_ptr<CpuBackend> here;
  std::unique_ptr<VulkanBackend> there;
  std::vector<std::unique_ptr<KvCache>> here_caches, there_caches;
};

class Backends : public test::OnDevice {};

TEST_F(Backends, LogitsOfEveryType) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                TensorType::kQ4_0, TensorType::kQ5_1}) {
    cpu::test::TinyShape shape;
    shape.type = type;
    const TinyModel model(shape);
    Both both(model, CpuKvType::kAuto);
    EXPECT_EQ(both.compare({step_over(0, 70)}), "") << codec(type).name;
    // A block, over what is cached.
    EXPECT_EQ(both.compare({step_over(64, 80, 3)}), "") << codec(type).name;
    EXPECT_EQ(both.there->kv_type(), both.here->kv_type());
    EXPECT_EQ(both.there->arithmetic(), both.here->arithmetic());
  }
}

TEST_F(Backends, LayoutsBiasesAndCaches) {
  cpu::test::TinyShape shape;
  shape.layout = RopeLayout::kInterleaved;
  shape.heads = 2;
  for (const CpuKvType kv : {CpuKvType::kF32, CpuKvType::kF16, CpuKvType::kBF16}) {
    const TinyModel model(shape, 3, kv != CpuKvType::kF16);
    Both both(model, kv);
    EXPECT_EQ(both.compare({step_over(0, 20)}), "");
    SequenceStep causal = step_over(10, 30);
    causal.plan.causal_block = 4;
    causal.plan.scored = {0, 7, 19};
    EXPECT_EQ(both.compare({causal}), "");
  }
}

TEST_F(Backends, QuantizedCaches) {
  cpu::test::TinyShape shape;
  shape.head_dim = 32;
  for (const CpuKvType kv : {CpuKvType::kQ8_0, CpuKvType::kQ4_0}) {
    const TinyModel model(shape);
    Both both(model, kv);
    EXPECT_EQ(both.compare({step_over(0, 70)}), "");
    EXPECT_EQ(both.compare({step_over(64, 80, 3)}), "");
    EXPECT_EQ(both.there->kv_type(), both.here->kv_type());
  }
}

/// A model that rotates queries and keys itself has its keys stored as they are.
TEST_F(Backends, ModelsThatRotateKeys) {
  cpu::test::TinyShape shape;
  shape.head_dim = 32;
  const TinyModel model(shape);
  ModelDesc desc;
  desc.online.query_key = 32;
  Both both(model, CpuKvType::kQ4_0);
  CpuOptions options;
  options.threads = 1;
  options.kv = CpuKvType::kQ4_0;
  both.here = std::move(*CpuBackend::create(desc, model.factory(), model.weights(), options));
  both.here_caches.clear();
  both.here_caches.push_back(*both.here->make_cache(200));
  EXPECT_NE(both.compare({step_over(0, 20)}), "") << "they differ";
  VulkanOptions vulkan;
  vulkan.kv = CpuKvType::kQ4_0;
  both.there = std::move(*make_backend_on(test_device(), OperatorRig::operators().arithmetic(), desc, model.factory(),
                                          model.weights(), vulkan));
  both.there_caches.clear();
  both.there_caches.push_back(*both.there->make_cache(200));
  EXPECT_EQ(both.compare({step_over(0, 20)}), "");
}

TEST_F(Backends, BatchesMixturesAndRequests) {
  const TinyModel model({});
  Both both(model, CpuKvType::kF16, 3);
  SequenceStep second = step_over(0, 20, 5), third = step_over(0, 33, 7);
  second.plan.mixtures = {{2, {{5, 0.3f}, {61, 0.02f}}}};
  second.request.temperature = 0.7;
  second.request.rng = {.seed = 3, .request = 1};
  second.request.top_k = 9;
  third.plan.scored = {};
  EXPECT_EQ(both.compare({step_over(0, 20), second, third}), "");
  // A guided pair: the second sequence has no scores of its own.
  SequenceStep guided = step_over(20, 24);
  guided.guidance = Guidance{1, 1.5f};
  EXPECT_EQ(both.compare({guided, step_over(20, 24, 9)}), "");
}

TEST_F(Backends, RecordsOncePerRoom) {
  const TinyModel model({});
  Both both(model, CpuKvType::kF16);
  EXPECT_EQ(both.there->recordings(), 0);
  for (const Position end : {30, 32, 5, 31}) ASSERT_EQ(both.compare({step_over(0, end)}), "");
  EXPECT_EQ(both.there->recordings(), 1);
  const std::int64_t bytes = both.there->device_bytes();
  ASSERT_EQ(both.compare({step_over(0, 100)}), "");
  EXPECT_EQ(both.there->recordings(), 2) << "more rows";
  EXPECT_GT(both.there->device_bytes(), bytes);
  ASSERT_EQ(both.compare({step_over(90, 92)}), "");
  EXPECT_EQ(both.there->recordings(), 2);
}

TEST_F(Backends, RefuseByName) {
  const TinyModel model({});
  VulkanOptions options;
  options.kv = CpuKvType::kQ8_0;
  const auto cache = on_device(model, options);
  ASSERT_FALSE(cache) << "heads of 16";
  EXPECT_EQ(cache.error().where, "--cache-type");

  const GraphFactory factory = [&](StepShape shape) {
    Graph graph = model.factory()(shape);
    for (Op& op : graph.ops)
      if (auto* attention = std::get_if<op::Attention>(&op)) attention->head_dim = 17;
    return graph;
  };
  const auto odd =
      make_backend_on(test_device(), OperatorRig::operators().arithmetic(), ModelDesc{}, factory, model.weights(), {});
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(odd.error().what, "the Vulkan backend does not run a head_dim of 17, which is odd (operator attention)");
}

TEST_F(Backends, LimitedLoopsLimitTheContext) {
  const TinyModel model({});
  Arithmetic limited = OperatorRig::operators().arithmetic();
  limited.most_rounds = 65'535;
  const auto made = make_backend_on(test_device(), limited, ModelDesc{}, model.factory(), model.weights(), {});
  ASSERT_TRUE(made);
  EXPECT_TRUE((*made)->make_cache(8000));
  const auto refused = (*made)->make_cache(100'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResource);
  EXPECT_EQ(refused.error().where, "--context");
}

/// Before anything is packed.
TEST_F(Backends, RefusePassesInARowAtOnce) {
  const TinyModel model({});
  Arithmetic none = OperatorRig::operators().arithmetic();
  none.fused64 = Fused64::kNone;
  bool began = false;
  VulkanOptions options;
  options.unroll = 2;
  options.progress = [&](double) { return began = true; };
  const auto refused = make_backend_on(test_device(), none, ModelDesc{}, model.factory(), model.weights(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().where, "--unroll");
  EXPECT_FALSE(began);
  options.unroll = 1;
  EXPECT_TRUE(make_backend_on(test_device(), none, ModelDesc{}, model.factory(), model.weights(), options));
  EXPECT_TRUE(began);
}

TEST_F(Backends, SayWhatFindsNoRoom) {
  auto device = *Device::open({});
  device->calls_for_faults().AllocateMemory = [](VkDevice, const VkMemoryAllocateInfo*, const VkAllocationCallbacks*,
                                                 VkDeviceMemory*) { return VK_ERROR_OUT_OF_DEVICE_MEMORY; };
  const TinyModel model({});
  const auto refused = on_device(model, {}, device);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResource);
  EXPECT_NE(refused.error().what.find("the tensor 'blk.0.q'"), std::string::npos) << refused.error().what;
}

TEST_F(Backends, LoseTheirDeviceWithAnError) {
  auto device = *Device::open({});
  const TinyModel model({});
  auto backend = on_device(model, {}, device);
  ASSERT_TRUE(backend);
  auto cache = *(*backend)->make_cache(64);
  SequenceStep step = step_over(0, 8);
  step.cache = cache.get();
  ASSERT_TRUE((*backend)->forward({&step, 1}));
  EXPECT_TRUE(cache->holds(PositionRange{0, 8}));
  device->calls_for_faults().WaitForFences = [](VkDevice, std::uint32_t, const VkFence*, VkBool32, std::uint64_t) {
    return VK_ERROR_DEVICE_LOST;
  };
  const auto lost = (*backend)->forward({&step, 1});
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kResource);
  EXPECT_EQ(lost.error().what, "the Vulkan device was lost in a pass");
  EXPECT_FALSE(cache->holds(PositionRange{0, 1})) << "some layers have new rows, others old ones";
  EXPECT_FALSE((*backend)->forward({&step, 1}));
}

}  // namespace
}  // namespace dllm::vulkan
