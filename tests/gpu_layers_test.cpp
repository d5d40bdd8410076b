// Models whose last layers are on a Vulkan device and whose first layers are not: -ngl. Logits and answers have the
// bits of this processor alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cpu/packed_weights.h"
#include "cut_models.h"
#include "dllm/model.h"
#include "engine/cut_backend.h"
#include "engine/generate.h"
#include "engine/load.h"
#include "engine/resolve.h"
#include "golden_model.h"
#include "random_model.h"
#include "vulkan/device.h"
#include "vulkan/on_device.h"
#include "vulkan/self_test.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

using test::cut_on_cpu;
using test::expect_same_scores;
using test::on_cpu;
using test::part_of;
using test::step_over;

const VulkanOptions device_options = [] {
  VulkanOptions options;
  options.threads = 1;
  return options;
}();

/// A device without an import of this processor's memory, so that bytes in use are all that it has.
class GpuLayers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto devices = vulkan_devices();
    if (!devices || devices->empty()) return;
    card_ = *vulkan::Device::open({.device = "", .validate = true, .as_card = true});
    arithmetic_ = *vulkan::test_device(card_);
  }
  static void TearDownTestSuite() {
    if (!card_) return;
    EXPECT_EQ(card_->messages(), "");
    EXPECT_EQ(card_->bytes_in_use(), 0);
    card_.reset();
  }
  void SetUp() override {
    if (!card_) GTEST_SKIP() << "this machine has no Vulkan device";
  }

  static std::unique_ptr<VulkanBackend> on_card(const Model& model, const GraphFactory& graph, CpuKvType kv) {
    VulkanOptions options = device_options;
    options.kv = kv;
    auto made = vulkan::make_backend_on(card_, *arithmetic_, model.desc(), graph, model.weights(), options);
    EXPECT_TRUE(made) << made.error().message();
    return *std::move(made);
  }

  static std::shared_ptr<vulkan::Device> card_;
  static std::optional<vulkan::Arithmetic> arithmetic_;
};

std::shared_ptr<vulkan::Device> GpuLayers::card_;
std::optional<vulkan::Arithmetic> GpuLayers::arithmetic_;

/// A model, whole and in two parts.
struct Parts {
  Parts(std::shared_ptr<const Model> loaded,
        const std::function<std::unique_ptr<VulkanBackend>(const Model&, const GraphFactory&, CpuKvType)>& on_card,
        std::int64_t last)
      : model(std::move(loaded)), whole(on_cpu(*model)) {
    auto back =
        on_card(*model, part_of(*model, last, false), whole->kv_type() == "f32" ? CpuKvType::kF32 : CpuKvType::kF16);
    device = back.get();
    cut = std::make_unique<CutBackend>(cut_on_cpu(*model, last, true), std::move(back));
  }
  std::shared_ptr<const Model> model;
  std::unique_ptr<CpuBackend> whole;
  VulkanBackend* device = nullptr;
  std::unique_ptr<CutBackend> cut;
};

/// Logits of a prompt and of a block over it, then a short answer.
void expect_same_model(Parts& parts) {
  const auto one = *parts.whole->make_cache(64), two = *parts.cut->make_cache(64);
  for (const auto& [begin, end] : {std::pair{0, 37}, {30, 41}}) {
    std::vector<SequenceStep> batch = {step_over(*parts.model, begin, end)};
    expect_same_scores(*parts.cut, *two, *parts.whole, *one, batch);
  }
  GenerateOptions options;
  options.length = 12;
  const auto resolved = resolve_options(options, parts.model->desc());
  ASSERT_TRUE(resolved) << resolved.error().message();
  const std::vector<TokenId> prompt = {5, 17, 40, 9};
  const auto expected = generate({*parts.whole}, prompt, *resolved), actual = generate({*parts.cut}, prompt, *resolved);
  ASSERT_TRUE(expected && actual) << actual.error().message();
  EXPECT_EQ(actual->ids, expected->ids);
  EXPECT_EQ(actual->confidence, expected->confidence);
  EXPECT_EQ(actual->stats.nfe, expected->stats.nfe);
}

TEST_F(GpuLayers, EveryArchitecture) {
  int last = 1;
  for (const char* architecture : {"llada", "dream", "llama", "llada-moe", "llada2", "rnd1", "sdar", "sdar-moe",
                                   "fast-dllm-v2", "qwen2", "qwen3", "qwen3moe", "mdlm"}) {
    last = 3 - last;  // operators differ by architecture, and places by number
    SCOPED_TRACE(std::string(architecture) + ", " + std::to_string(last));
    const bool experts = std::string(architecture).find("moe") != std::string::npos;
    const auto source = test::random_source({.architecture = architecture,
                                             .layers = 3,
                                             .kv_heads = 2,
                                             .type = experts ? TensorType::kQ8_0 : TensorType::kF32});
    Parts parts(*Model::load(source), on_card, last);
    expect_same_model(parts);
  }
}

/// Checkpoints with what random models lack: modes, a region of its own and mixtures, routes by block.
TEST_F(GpuLayers, Checkpoints) {
  for (const auto& [name, layers] : {std::pair{"nemotron", 2}, {"llada2.2", 3}, {"diffusion-gemma", 4}}) {
    const test::GoldenModel golden(name);
    for (int last = 1; last < layers; last += 2) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(last));
      Parts parts(*Model::load(golden.path()), on_card, last);
      expect_same_model(parts);
    }
  }
}

TEST_F(GpuLayers, ADeviceHasFewerBytesWithFewerLayers) {
  const auto model = *Model::load(test::random_source({.layers = 5, .type = TensorType::kQ8_0}));
  std::int64_t weights_before = 0, cache_before = 0;
  for (const int last : {1, 2, 3, 4, 5}) {
    const auto backend =
        on_card(*model, last == 5 ? [&](StepShape s) { return model->build(s); } : part_of(*model, last, false),
                CpuKvType::kF16);
    const std::int64_t weights = backend->device_bytes();
    const auto cache = *backend->make_cache(512);
    const std::int64_t rows = backend->device_bytes() - weights;
    EXPECT_GT(weights, weights_before) << last;
    EXPECT_EQ(rows, cache->bytes());
    EXPECT_EQ(rows, last * (last == 1 ? rows : cache_before / (last - 1))) << "K and V of a layer are where it is";
    weights_before = weights, cache_before = rows;
  }
}

TEST_F(GpuLayers, AGenerationRecordsItsStepOnce) {
  Parts parts(*Model::load(*open_or_embedded("")), on_card, 2);
  std::uint64_t passes = 0;
  for (const char* cache : {"none", "dual"}) {
    GenerateOptions options;
    options.length = 32;
    options.block_length = 16;
    options.cache.name = cache;
    options.decoder.name = "low-confidence";
    options.decoder.options["steps"] = std::int64_t{4};
    options.exact_length = true;
    const auto resolved = resolve_options(options, parts.model->desc());
    ASSERT_TRUE(resolved);
    const auto answer = generate({*parts.cut}, {5, 17, 200, 9}, *resolved);
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_GE(answer->stats.nfe, 4);
    passes += static_cast<std::uint64_t>(answer->stats.nfe);
  }
  EXPECT_EQ(parts.device->recordings(), 1) << "every pass of two generations replays one recording";
  EXPECT_EQ(parts.device->passes(), passes) << "one pass of the model is one of the device";
  EXPECT_EQ(parts.device->logit_bytes(), 0);
}

TEST_F(GpuLayers, ACardThatIsTooSmallSaysHowManyLayersFit) {
  const auto small = *vulkan::Device::open({.device = "", .validate = false, .as_card = true});
  const auto model = *Model::load(test::random_source({.layers = 4, .type = TensorType::kQ8_0}));
  const auto bytes = [&](std::int64_t last) {
    return cpu::PackedWeights::bytes_needed(part_of(*model, last, false)({1, 1}), model->weights());
  };
  small->facts_for_faults().memory_bytes = bytes(2) * 10 / 9 + 10;
  const auto refused = vulkan::make_backend_on(
      small, *arithmetic_, model->desc(), [&](StepShape s) { return model->build(s); }, model->weights(),
      device_options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResource);
  EXPECT_EQ(refused.error().hint.substr(0, 42), "give --gpu-layers 2 for its last layers, q") << refused.error().hint;
  const auto fits = vulkan::make_backend_on(small, *arithmetic_, model->desc(), part_of(*model, 2, false),
                                            model->weights(), device_options);
  EXPECT_TRUE(fits) << fits.error().message();
}

}  // namespace
}  // namespace dllm
