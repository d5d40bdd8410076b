#include "vulkan/device.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "vulkan/buffer.h"
#include "vulkan/commands.h"
#include "vulkan/self_test.h"
#include "vulkan/testing/test_device.h"

namespace dllm::vulkan {
namespace {

using test::OnDevice;
using test::test_device;

DeviceFacts facts(const char* name, VkPhysicalDeviceType type) {
  DeviceFacts one;
  one.name = name;
  one.type = type;
  return one;
}

std::vector<DeviceFacts> some_devices() {
  return {facts("llvmpipe", VK_PHYSICAL_DEVICE_TYPE_CPU), facts("Arc 140V", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU),
          facts("Arc B580", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU)};
}

TEST(ChooseDevice, TheBestKindByDefault) {
  auto devices = some_devices();
  EXPECT_EQ(*choose_device(devices, ""), 2U);
  devices[2].lacks = {"bufferDeviceAddress"};
  EXPECT_EQ(*choose_device(devices, ""), 1U);
}

TEST(ChooseDevice, ByIndexOrPartOfTheName) {
  const auto devices = some_devices();
  EXPECT_EQ(*choose_device(devices, "0"), 0U);
  EXPECT_EQ(*choose_device(devices, "b580"), 2U);
  const auto two = choose_device(devices, "arc");
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, ErrorCode::kUsage);
  EXPECT_EQ(two.error().message(),
            "--device: more than one of this machine's Vulkan devices is 'arc' (by index or name: 0 (llvmpipe), 1 (Arc "
            "140V), 2 (Arc B580))");
  EXPECT_EQ(choose_device(devices, "3").error().what, "none of this machine's Vulkan devices is '3'");
}

TEST(ChooseDevice, SaysWhatIsMissing) {
  EXPECT_EQ(choose_device({}, "").error().code, ErrorCode::kUnsupported);
  auto devices = some_devices();
  devices[0].lacks = {"bufferDeviceAddress", "shaderSignedZeroInfNanPreserveFloat32"};
  EXPECT_EQ(choose_device(devices, "0").error().what,
            "llvmpipe lacks bufferDeviceAddress, shaderSignedZeroInfNanPreserveFloat32");
}

/// A device that computes like this processor, but for what `damage` changes.
struct FakeDevice {
  DeviceFacts facts;
  std::function<void(const Arithmetic&, const SelfTestCases&, Observation&)> damage;

  Expected<Arithmetic> choose() const {
    return choose_arithmetic(facts, [&](const SelfTestCases& cases, const Arithmetic& arithmetic) {
      Observation seen = right_results(cases);
      if (damage) damage(arithmetic, cases, seen);
      return Expected<Observation>(std::move(seen));
    });
  }
  std::string refusal() const {
    const auto chosen = choose();
    if (chosen) return "";
    EXPECT_EQ(chosen.error().code, ErrorCode::kUnsupported);
    return chosen.error().what;
  }
};

FakeDevice fake(bool keeps_subnormals, bool has_float64,
                std::function<void(const Arithmetic&, const SelfTestCases&, Observation&)> damage = {}) {
  FakeDevice device;
  device.facts = facts("card", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU);
  device.facts.keeps_subnormals = keeps_subnormals;
  device.facts.has_float64 = has_float64;
  device.damage = std::move(damage);
  return device;
}

float& result(Observation& seen, std::size_t i, Tested tested) {
  return seen.results[i][static_cast<std::size_t>(tested)];
}

/// Rounds fused multiply-adds twice, unless they are computed by float64 or by integers.
void round_twice(const Arithmetic& arithmetic, const SelfTestCases& cases, Observation& seen) {
  if (arithmetic.form >= ShaderForm::kFloat64) return;
  for (std::size_t i = 0; i < cases.operands.size(); ++i) {
    const auto [a, b, c] = cases.operands[i];
    result(seen, i, Tested::kFused) = a * b + c;
  }
}

TEST(SelfTest, TheNativeFormWhereItIsRight) {
  const auto chosen = fake(true, true).choose();
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->form, ShaderForm::kNative);
  EXPECT_EQ(chosen->description(), "native fma");
  EXPECT_GE(chosen->most_rounds, 100'000U);
}

TEST(SelfTest, FmaByFloat64WhereTheDeviceRoundsTwice) {
  const auto chosen = fake(true, true, round_twice).choose();
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->form, ShaderForm::kFloat64);
  EXPECT_FALSE(chosen->correct_division);
}

/// Whatever the device does with fused multiply-adds and subnormal numbers.
TEST(SelfTest, FmaByIntegersWhereThereIsNoFloat64) {
  for (const bool keeps : {false, true}) {
    const auto chosen = fake(keeps, false, round_twice).choose();
    ASSERT_TRUE(chosen) << chosen.error().message();
    EXPECT_EQ(chosen->form, ShaderForm::kIntegers);
    EXPECT_EQ(chosen->description(), "fma by integers, subnormal numbers by their bits");
  }
  EXPECT_EQ(fake(true, false).choose()->form, ShaderForm::kNative) << "it is right, and faster";
  EXPECT_EQ(fake(false, false).choose()->form, ShaderForm::kIntegers) << "it asks for nothing";
}

/// A driver that drops conversions between float64 and float32 has right integers.
TEST(SelfTest, FmaByIntegersWhereFloat64IsWrong) {
  const auto wrong = [](const Arithmetic& arithmetic, const SelfTestCases& cases, Observation& seen) {
    if (arithmetic.form != ShaderForm::kIntegers) round_twice({ShaderForm::kNative}, cases, seen);
  };
  for (const bool keeps : {false, true}) EXPECT_EQ(fake(keeps, true, wrong).choose()->form, ShaderForm::kIntegers);
}

/// What NVIDIA's driver does: subnormal results of fused multiply-adds are zeros, unless the form guards against it.
TEST(SelfTest, GuardsWhereFusedMultiplyAddsFlush) {
  const auto flushed = [](const Arithmetic& arithmetic, const SelfTestCases&, Observation& seen) {
    if (arithmetic.form != ShaderForm::kNative) return;
    for (std::size_t i = 0; i < seen.results.size(); ++i)
      for (const Tested tested : {Tested::kFused, Tested::kChain})
        if (std::fpclassify(result(seen, i, tested)) == FP_SUBNORMAL) result(seen, i, tested) = 0;
  };
  const auto chosen = fake(true, true, flushed).choose();
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->form, ShaderForm::kGuarded);
  EXPECT_EQ(chosen->description(), "native fma, by float64 near subnormal numbers");
  EXPECT_EQ(fake(true, false, flushed).choose()->form, ShaderForm::kIntegers);
}

/// Subnormal numbers are zeros unless a shader asks for them, which the device grants without announcing it.
TEST(SelfTest, AsksForWhatIsNotAnnouncedWhereNothingElseIsRight) {
  const auto flushed = [](const Arithmetic& arithmetic, const SelfTestCases&, Observation& seen) {
    if (arithmetic.form == ShaderForm::kGuarded) return;
    float& last = result(seen, seen.results.size() - 1, Tested::kSum);
    last = std::nextafter(last, 1e30f);
  };
  FakeDevice device = fake(false, true, flushed);
  const auto chosen = device.choose();
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->form, ShaderForm::kGuarded);
  EXPECT_EQ(fake(false, true).choose()->form, ShaderForm::kFloat64);
  const auto refusing = [&](const SelfTestCases& cases, const Arithmetic& arithmetic) -> Expected<Observation> {
    if (arithmetic.form < ShaderForm::kFloat64) return Error{ErrorCode::kResource, "no", "", ""};
    Observation seen = right_results(cases);
    flushed(arithmetic, cases, seen);
    return seen;
  };
  const auto refused = choose_arithmetic(device.facts, refusing);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().what, "card failed the self-test in sums");
}

/// Forms that fail in different ways are named.
TEST(SelfTest, SaysWhatIsWrongInEachForm) {
  const auto damaged = [](const Arithmetic& arithmetic, const SelfTestCases&, Observation& seen) {
    const Tested tested = arithmetic.form == ShaderForm::kFloat64 ? Tested::kSum : Tested::kProduct;
    float& last = result(seen, seen.results.size() - 1, tested);
    last = std::nextafter(last, 1e30f);
  };
  EXPECT_EQ(fake(true, true, damaged).refusal(),
            "card failed the self-test in products (native fma); products (native fma, by float64 near subnormal "
            "numbers); sums (fma by float64); products (fma by integers, subnormal numbers by their bits)");
}

/// A quotient or a root that is off by a unit, until it is corrected.
TEST(SelfTest, DivisionAndRootsAreCorrected) {
  for (const Tested tested : {Tested::kDivision, Tested::kRoot}) {
    const auto off = [&](bool always) {
      return [=](const Arithmetic& arithmetic, const SelfTestCases&, Observation& seen) {
        if (!always && (arithmetic.correct_division && arithmetic.correct_roots)) return;
        float& last = result(seen, seen.results.size() - 1, tested);
        last = std::nextafter(last, 0.f);
      };
    };
    const auto chosen = fake(true, true, off(false)).choose();
    ASSERT_TRUE(chosen);
    EXPECT_EQ(chosen->description(), "native fma, corrected division, corrected square roots");
    EXPECT_EQ(chosen->constants()[0], 1U);
    EXPECT_EQ(chosen->constants()[1], 1U);
    EXPECT_EQ(fake(true, true, off(true)).refusal(), tested == Tested::kDivision
                                                         ? "card failed the self-test in division"
                                                         : "card failed the self-test in square roots");
  }
}

TEST(SelfTest, RefusesWhatNothingCorrects) {
  // Sums of products that a compiler contracts, conversions that it drops, numbers of the cache that it misreads.
  const std::pair<Tested, const char*> traps[] = {{Tested::kProduct, "products"},
                                                  {Tested::kSum, "sums"},
                                                  {Tested::kTwice, "a product and a sum apart"},
                                                  {Tested::kChain, "chains of fused multiply-adds"},
                                                  {Tested::kHalf, "conversion of float16"}};
  for (const auto& [tested, name] : traps) {
    const auto damaged = fake(true, true, [&, t = tested](const Arithmetic&, const SelfTestCases&, Observation& seen) {
      float& last = result(seen, seen.results.size() - 1, t);
      last = std::nextafter(last, 1e30f);
    });
    EXPECT_EQ(damaged.refusal(), std::string("card failed the self-test in ") + name);
  }
}

TEST(SelfTest, RefusesZerosForSubnormalNumbers) {
  const auto flushed = fake(true, true, [](const Arithmetic&, const SelfTestCases&, Observation& seen) {
    for (auto& results : seen.results)
      for (float& one : results)
        if (std::fpclassify(one) == FP_SUBNORMAL) one = 0;
  });
  EXPECT_EQ(flushed.refusal(), "card failed the self-test in subnormal numbers");
}

/// What Mesa 26.1's driver for processors does: subnormal numbers are zeros, whatever a shader asks for.
TEST(SelfTest, SubnormalNumbersByTheirBitsWhereNothingElseKeepsThem) {
  const auto flushed = [](bool cured) {
    return [=](const Arithmetic& arithmetic, const SelfTestCases&, Observation& seen) {
      if (cured && arithmetic.form == ShaderForm::kSubnormals && arithmetic.correct_division) return;
      for (auto& results : seen.results)
        for (float& one : results)
          if (std::fpclassify(one) == FP_SUBNORMAL) one = 0;
    };
  };
  for (const bool announced : {false, true}) {
    const auto chosen = fake(announced, true, flushed(true)).choose();
    ASSERT_TRUE(chosen) << chosen.error().message();
    EXPECT_EQ(chosen->form, ShaderForm::kSubnormals);
    EXPECT_EQ(chosen->description(),
              "fma by float64, subnormal numbers by their bits, corrected division, corrected square roots");
  }
  EXPECT_FALSE(fake(false, true, flushed(false)).choose());
}

TEST(SelfTest, KnowsWhereLoopsEnd) {
  const auto ending = [](std::uint32_t after) {
    return fake(false, true, [=](const Arithmetic&, const SelfTestCases&, Observation& seen) { seen.rounds = after; });
  };
  EXPECT_EQ(ending(65'535).choose()->most_rounds, 65'535U);
  EXPECT_EQ(ending(20'000).refusal(), "card failed the self-test in loops, which end after 20000 of 200000 iterations");
}

TEST_F(OnDevice, PassesTheSelfTest) {
  const auto chosen = vulkan::test_device(test_device());
  ASSERT_TRUE(chosen) << chosen.error().message();
  RecordProperty("arithmetic", chosen->description());
}

/// Whatever this device's own form is, the one by integers is right.
TEST_F(OnDevice, IntegersGiveRightResults) {
  const SelfTestCases cases = self_test_cases();
  const auto seen = observer_of(test_device())(cases, {ShaderForm::kIntegers, true, true});
  ASSERT_TRUE(seen) << seen.error().message();
  EXPECT_EQ(faults_of(cases, *seen), std::vector<std::string>());
}

/// Quotients and roots are right over all exponents with corrections too, which a device may not need.
TEST_F(OnDevice, CorrectionsGiveRightResults) {
  const SelfTestCases cases = self_test_cases();
  const auto chosen = vulkan::test_device(test_device());
  ASSERT_TRUE(chosen);
  const auto seen = observer_of(test_device())(cases, {chosen->form, true, true});
  ASSERT_TRUE(seen) << seen.error().message();
  const Observation right = right_results(cases);
  for (std::size_t i = 0; i < cases.operands.size(); ++i)
    for (const Tested tested : {Tested::kDivision, Tested::kRoot}) {
      const float expected = right.results[i][static_cast<std::size_t>(tested)];
      const float given = seen->results[i][static_cast<std::size_t>(tested)];
      if (std::isnan(expected) && std::isnan(given)) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(given), std::bit_cast<std::uint32_t>(expected))
          << cases.operands[i][0] << " and " << cases.operands[i][1];
    }
}

/// The guarded form computes what a flushing device computes wrong.
TEST_F(OnDevice, TheGuardedFormMeetsNoSubnormalNumber) {
  const SelfTestCases cases = self_test_cases();
  auto arithmetic = vulkan::test_device(test_device());
  ASSERT_TRUE(arithmetic);
  if (arithmetic->form == ShaderForm::kNative) arithmetic->form = ShaderForm::kGuarded;
  const auto seen = observer_of(test_device(), "self_test_flushing")(cases, *arithmetic);
  ASSERT_TRUE(seen) << seen.error().message();
  EXPECT_EQ(faults_of(cases, *seen), std::vector<std::string>());
}

TEST_F(OnDevice, CopiesBetweenItsMemories) {
  std::vector<std::int32_t> numbers(5000);
  std::iota(numbers.begin(), numbers.end(), -7);
  const auto own = Buffer::make(test_device(), 20000, Place::kDevice, "a test");
  const auto shared = Buffer::make(test_device(), 20000, Place::kShared, "a test");
  ASSERT_TRUE(own && shared);
  ASSERT_TRUE(Uploader(test_device()).copy(*own, std::as_bytes(std::span(numbers))));
  auto commands = Commands::begin(test_device());
  ASSERT_TRUE(commands);
  commands->copy(*own, 4, *shared, 8, 19000);
  ASSERT_TRUE(commands->end());
  for (int run = 0; run < 2; ++run) {
    std::memset(shared->data(), 0, 20000);
    ASSERT_TRUE(commands->run("a test"));
    EXPECT_EQ(std::memcmp(shared->data() + 8, numbers.data() + 1, 19000), 0);
  }
}

TEST_F(OnDevice, CountsItsMemory) {
  const std::int64_t before = test_device()->bytes_in_use();
  {
    const auto one = Buffer::make(test_device(), 4096, Place::kDevice, "a test");
    ASSERT_TRUE(one);
    EXPECT_EQ(test_device()->bytes_in_use(), before + 4096);
  }
  EXPECT_EQ(test_device()->bytes_in_use(), before);
}

TEST_F(OnDevice, BytesAfterABufferMayBeRead) {
  auto device = *Device::open({});
  static VkDeviceSize created = 0;
  device->calls_for_faults().CreateBuffer = [](VkDevice, const VkBufferCreateInfo* info, const VkAllocationCallbacks*,
                                               VkBuffer*) {
    created = info->size;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
  };
  EXPECT_FALSE(Buffer::make(device, 8192, Place::kDevice, "a test"));
  EXPECT_EQ(created, 8192U + 256);
}

TEST_F(OnDevice, RefusedMemoryIsAnErrorWithItsSize) {
  auto device = *Device::open({});
  device->calls_for_faults().AllocateMemory = [](VkDevice, const VkMemoryAllocateInfo*, const VkAllocationCallbacks*,
                                                 VkDeviceMemory*) { return VK_ERROR_OUT_OF_DEVICE_MEMORY; };
  const auto refused = Buffer::make(device, 12'300'000, Place::kDevice, "the weights");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResource);
  EXPECT_EQ(refused.error().what.find("the Vulkan device has no memory left for the weights (12.30 MB)"), 0U)
      << refused.error().what;
  EXPECT_EQ(device->bytes_in_use(), 0);
  const auto large = Buffer::make(device, std::int64_t{1} << 60, Place::kDevice, "the weights");
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().what.find("at a time"), std::string::npos);
}

TEST_F(OnDevice, ALostDeviceStaysLost) {
  auto device = *Device::open({});
  auto commands = Commands::begin(device);
  ASSERT_TRUE(commands);
  ASSERT_TRUE(commands->end());
  ASSERT_TRUE(commands->run("a pass"));
  const auto submit = device->calls().QueueSubmit;
  device->calls_for_faults().QueueSubmit = [](VkQueue, std::uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  const auto lost = commands->run("a pass");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kResource);
  EXPECT_EQ(lost.error().what, "the Vulkan device was lost in a pass");
  device->calls_for_faults().QueueSubmit = submit;
  EXPECT_FALSE(commands->run("a pass"));
}

TEST_F(OnDevice, UnknownShadersAreErrors) {
  const auto missing = Pipeline::make(test_device(), "no_such", ShaderForm::kFloat64, {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().what, "this build has no shader 'no_such'");
}

}  // namespace
}  // namespace dllm::vulkan
