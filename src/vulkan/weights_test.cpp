// How weights get to the device: read where they are, or copied in pieces. Either gives the CPU's logits.
#include "vulkan/weights.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temp_dir.h"
#include "cpu/packed_weights.h"
#include "cpu/testing/backend_logits.h"
#include "cpu/testing/tiny_model.h"
#include "vulkan/buffer.h"
#include "vulkan/commands.h"
#include "vulkan/on_device.h"
#include "vulkan/testing/operator_rig.h"
#include "vulkan/testing/test_device.h"

namespace dllm::vulkan {
namespace {

using cpu::test::TinyModel;
using test::difference;
using test::OperatorRig;
using test::test_device;

Expected<std::unique_ptr<VulkanBackend>> loaded_on(const std::shared_ptr<Device>& device, const TinyModel& model,
                                                   const std::string& cache = "") {
  VulkanOptions options;
  options.threads = 1;
  options.weight_cache.path = cache;
  return make_backend_on(device, OperatorRig::operators().arithmetic(), ModelDesc{}, model.factory(), model.weights(),
                         options);
}

std::vector<float> all_logits(Backend& backend) {
  auto cache = *backend.make_cache(64);
  SequenceStep step;
  step.cache = cache.get();
  for (Position p = 0; p < 20; ++p) {
    step.plan.rows.push_back({p, p * 37 % 150});
    step.plan.scored.push_back(p);
  }
  step.plan.visible = {{0, 20}};
  step.request.logits = true;
  return (*backend.forward({&step, 1}))[0].logits;
}

std::vector<float> logits_here(const TinyModel& model) {
  CpuOptions options;
  options.threads = 1;
  return all_logits(*cpu::test::make_backend(model, options));
}

TinyModel quantized_model() {
  cpu::test::TinyShape shape;
  shape.type = TensorType::kQ8_0;
  return TinyModel(shape);
}

class LoadedWeights : public test::OnDevice {};

TEST_F(LoadedWeights, AreReadWhereTheyAre) {
  if (!test_device()->facts().imports) GTEST_SKIP() << "the device has memory of its own";
  const TinyModel model = quantized_model();
  const dllm::test::TempDir directory;
  // Packed here, packed and stored, read from the store.
  for (const std::string& cache : {std::string(), directory / "cache", directory / "cache"}) {
    const std::int64_t before = test_device()->bytes_in_use();
    const auto backend = loaded_on(test_device(), model, cache);
    ASSERT_TRUE(backend) << backend.error().message();
    const std::int64_t panels = cpu::PackedWeights::bytes_needed(model.factory()({1, 1}), model.weights());
    EXPECT_GT((*backend)->imported_bytes(), panels / 2);
    EXPECT_LT((*backend)->device_bytes() - before, panels / 4) << "vectors only";
    EXPECT_EQ(difference(all_logits(**backend), logits_here(model)), "");
  }
  EXPECT_EQ(test_device()->bytes_in_use(), 0) << "all was given back";
}

TEST_F(LoadedWeights, AreCopiedInOnePieceOfMemory) {
  const auto card = *Device::open({.device = "", .validate = true, .as_card = true});
  ASSERT_FALSE(card->maps(Place::kDevice));
  const TinyModel model = quantized_model();
  const auto backend = loaded_on(card, model);
  ASSERT_TRUE(backend) << backend.error().message();
  EXPECT_EQ((*backend)->imported_bytes(), 0);
  std::int64_t matrices = 0;
  for (const WeightView& view : model.weights()) matrices += view.shape.size() > 1 ? 1 : 0;
  EXPECT_LE(card->allocations(), matrices + 2) << "a buffer each, the vectors, and a piece";
  EXPECT_EQ(difference(all_logits(**backend), logits_here(model)), "");
  EXPECT_EQ(card->messages(), "");
}

TEST_F(LoadedWeights, TakeSeveralPiecesEach) {
  const auto card = *Device::open({.device = "", .validate = true, .as_card = true});
  std::vector<std::uint32_t> numbers(std::size_t{9} << 20);  // 36 MB
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i * 2654435761U);
  const auto bytes = static_cast<std::int64_t>(numbers.size() * 4);
  const auto own = Buffer::make(card, bytes, Place::kDevice, "a test"),
             shared = Buffer::make(card, bytes, Place::kShared, "a test");
  ASSERT_TRUE(own && shared);
  Uploader uploader(card);
  ASSERT_TRUE(uploader.copy(*own, std::as_bytes(std::span(numbers))));
  auto commands = Commands::begin(card);
  ASSERT_TRUE(commands);
  commands->copy(*own, 0, *shared, 0, bytes);
  ASSERT_TRUE(commands->end());
  ASSERT_TRUE(commands->run("a test"));
  EXPECT_EQ(std::memcmp(shared->data(), numbers.data(), static_cast<std::size_t>(bytes)), 0);
}

TEST_F(LoadedWeights, ThatDoNotFitAreRefusedBeforeTheyArePacked) {
  const auto card = *Device::open({.device = "", .validate = false, .as_card = true});
  card->facts_for_faults().memory_bytes = 20'000;
  card->facts_for_faults().name = "small card";
  const TinyModel model = quantized_model();
  VulkanOptions options;
  bool began = false;
  options.progress = [&](double) { return began = true; };
  const auto refused = make_backend_on(card, OperatorRig::operators().arithmetic(), ModelDesc{}, model.factory(),
                                       model.weights(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResource);
  EXPECT_NE(refused.error().what.find("of small card's memory, which has 20.00 kB"), std::string::npos)
      << refused.error().what;
  EXPECT_FALSE(began);
  EXPECT_EQ(card->allocations(), 0);
}

/// A driver that takes no pages of this processor: they are copied.
TEST_F(LoadedWeights, WhoseImportFailsAreCopied) {
  const auto device = *Device::open({});
  const TinyModel model = quantized_model();
  static PFN_vkAllocateMemory allocate = nullptr;
  allocate = device->calls().AllocateMemory;
  device->calls_for_faults().AllocateMemory = [](VkDevice handle, const VkMemoryAllocateInfo* info,
                                                 const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
    for (const auto* next = static_cast<const VkBaseInStructure*>(info->pNext); next != nullptr; next = next->pNext)
      if (next->sType == VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    return allocate(handle, info, callbacks, memory);
  };
  const auto backend = loaded_on(device, model);
  ASSERT_TRUE(backend) << backend.error().message();
  EXPECT_EQ((*backend)->imported_bytes(), 0);
  EXPECT_EQ(difference(all_logits(**backend), logits_here(model)), "");
}

}  // namespace
}  // namespace dllm::vulkan
