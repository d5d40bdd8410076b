// The kernels of cuda/ on this processor: what they do beside their operators, and those of experts. Their operators
// are compared by the tests of shaders, which run once more with DLLM_TEST_CUDA_ON_HOST.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"
#include "vulkan/cuda_kernels.h"
#include "vulkan/testing/cuda_on_host.h"
#include "vulkan/testing/operator_rig.h"
#include "vulkan/testing/test_device.h"

#include "vulkan/cuda/codes.cuh"
#include "vulkan/cuda/exact.cuh"
#include "vulkan/cuda/pairs.cuh"

namespace attention_module {
#include "vulkan/cuda/attention.cu"
}
namespace floats_module {
#include "vulkan/cuda/floats.cu"
}
namespace route_module {
#include "vulkan/cuda/route.cu"
}
namespace rows_module {
#include "vulkan/cuda/rows.cu"
}
#define DLLM_CODES kNibble
#define DLLM_MINIMUM false
namespace product_nibble {
#include "vulkan/cuda/product.cu"
}
#undef DLLM_PRODUCT
#undef DLLM_MINIMUM
#define DLLM_MINIMUM true
namespace product_nibble_minimum {
#include "vulkan/cuda/product.cu"
}
#undef DLLM_PRODUCT
#undef DLLM_CODES
#define DLLM_CODES kNibble5
namespace product_five_minimum {
#include "vulkan/cuda/product.cu"
}
#undef DLLM_PRODUCT
#undef DLLM_MINIMUM
#define DLLM_MINIMUM false
namespace product_five {
#include "vulkan/cuda/product.cu"
}
#undef DLLM_PRODUCT
#undef DLLM_CODES
#define DLLM_CODES kByte
namespace product_byte {
#include "vulkan/cuda/product.cu"
}
#undef DLLM_PRODUCT
#undef DLLM_CODES
#define DLLM_CODES kTable
namespace product_table {
#include "vulkan/cuda/product.cu"
}

namespace dllm::vulkan {
namespace {

using HostKernel = void (*)(const void* push);

template <auto kKernel, class Push>
void call(const void* push) {
  kKernel(*static_cast<const Push*>(push));
}

const std::map<std::string, HostKernel, std::less<>>& host_kernels() {
#define DLLM_HOST(space, kernel, Push) {#kernel, call<space::kernel, space::Push>}
#define DLLM_HOST_PRODUCTS(space)                                           \
  {#space "/product_r8p4", call<space::product_r8p4, space::Push>},         \
      {#space "/product_r32p2", call<space::product_r32p2, space::Push>},   \
      {#space "/product_r32p4", call<space::product_r32p4, space::Push>},   \
      {#space "/product_r32w2", call<space::product_r32w2, space::Push>}, { \
    #space "/product_pairs", call<space::product_pairs, space::Push>        \
  }
  static const std::map<std::string, HostKernel, std::less<>> kernels = {
      DLLM_HOST(attention_module, attention_f16, AttentionPush),
      DLLM_HOST(attention_module, attention_bf16, AttentionPush),
      DLLM_HOST(floats_module, floats_f32, FloatsPush),
      DLLM_HOST(floats_module, floats_f16, FloatsPush),
      DLLM_HOST(floats_module, floats_bf16, FloatsPush),
      DLLM_HOST(floats_module, floats_f32_pairs, FloatsPush),
      DLLM_HOST(floats_module, floats_f16_pairs, FloatsPush),
      DLLM_HOST(floats_module, floats_bf16_pairs, FloatsPush),
      DLLM_HOST(route_module, route, RoutePush),
      DLLM_HOST(rows_module, rms_norm, NormPush),
      DLLM_HOST(rows_module, quantize_rows, QuantizePush),
      DLLM_HOST(rows_module, glu_silu, GluPush),
      DLLM_HOST(rows_module, glu_gelu, GluPush),
      DLLM_HOST_PRODUCTS(product_nibble),
      DLLM_HOST_PRODUCTS(product_nibble_minimum),
      DLLM_HOST_PRODUCTS(product_five),
      DLLM_HOST_PRODUCTS(product_five_minimum),
      DLLM_HOST_PRODUCTS(product_byte),
      DLLM_HOST_PRODUCTS(product_table),
  };
  return kernels;
}

// Modules and kernels of a device that has none: a module is the name of its source, a kernel the function.
VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice, const VkCuModuleCreateInfoNVX* info,
                                             const VkAllocationCallbacks*, VkCuModuleNVX* module) {
  for (const CudaSource& source : cuda_sources())
    if (source.ptx.data() == info->pData) *module = std::bit_cast<VkCuModuleNVX>(&source);
  return VK_SUCCESS;
}
VKAPI_ATTR VkResult VKAPI_CALL create_function(VkDevice, const VkCuFunctionCreateInfoNVX* info,
                                               const VkAllocationCallbacks*, VkCuFunctionNVX* function) {
  const auto* const module = reinterpret_cast<const CudaSource*>(info->module);
  const auto& kernels = host_kernels();
  auto found = kernels.find(std::string(module->name) + "/" + info->pName);
  if (found == kernels.end()) found = kernels.find(info->pName);
  if (found == kernels.end()) return VK_ERROR_INITIALIZATION_FAILED;
  *function = std::bit_cast<VkCuFunctionNVX>(&found->second);
  return VK_SUCCESS;
}
VKAPI_ATTR void VKAPI_CALL destroy_module(VkDevice, VkCuModuleNVX, const VkAllocationCallbacks*) {}
VKAPI_ATTR void VKAPI_CALL destroy_function(VkDevice, VkCuFunctionNVX, const VkAllocationCallbacks*) {}

bool on_host = false;

}  // namespace

namespace test {

void run_cuda_on_host(Device& device) {
  on_host = true;
  CudaCalls calls;
  calls.CreateCuModuleNVX = create_module;
  calls.CreateCuFunctionNVX = create_function;
  calls.DestroyCuModuleNVX = destroy_module;
  calls.DestroyCuFunctionNVX = destroy_function;
  device.cuda_calls_for_tests() = calls;
}

void stop_cuda_on_host(Device& device) {
  on_host = false;
  device.cuda_calls_for_tests().reset();
}

bool launched_on_host(const Launch& launch, std::int64_t rows) {
  if (!on_host || launch.pipeline->kernel() == VK_NULL_HANDLE) return false;
  const GroupCounts groups = launch.groups(rows);
  const auto kernel = *reinterpret_cast<const HostKernel*>(launch.pipeline->kernel());
  host_cuda::run(kernel, launch.push.data(), launch.pipeline->threads(), {groups.x, groups.y, groups.z});
  return true;
}

}  // namespace test

namespace {

using cpu::test::random_floats;
using test::difference;
using test::OperatorRig;
using test::test_device;

/// Operators with and without kernels, on memory of this process.
class KernelsOnHost : public test::OnOperators {
 protected:
  void SetUp() override {
    OnOperators::SetUp();
    if (IsSkipped()) return;
#ifdef DLLM_SANITIZED
    GTEST_SKIP() << "sanitizers do not know threads that take turns";
#endif
    if (test_device()->facts().type != VK_PHYSICAL_DEVICE_TYPE_CPU) GTEST_SKIP() << "the device has memory of its own";
    Arithmetic arithmetic = OperatorRig::operators().arithmetic();
    arithmetic.kernels = false;
    shaders_.emplace(test_device(), arithmetic);
    test::run_cuda_on_host(*test_device());
    arithmetic.kernels = true;
    kernels_.emplace(test_device(), arithmetic);
  }
  void TearDown() override {
    if (kernels_) {
      kernels_.reset();
      test::stop_cuda_on_host(*test_device());
    }
    OnOperators::TearDown();
  }

  DeviceCodes codes(std::int64_t numbers) {
    return {rig_.room(numbers / 4), rig_.room(numbers / 32), rig_.room(numbers / 16)};
  }
  void expect_same(const DeviceCodes& a, const DeviceCodes& b, std::int64_t numbers) {
    EXPECT_EQ(difference(rig_.get<std::int8_t>(a.values, numbers), rig_.get<std::int8_t>(b.values, numbers)), "");
    EXPECT_EQ(difference(rig_.get(a.scales, numbers / 32), rig_.get(b.scales, numbers / 32)), "");
    EXPECT_EQ(difference(rig_.get<std::int32_t>(a.sums, numbers / 16), rig_.get<std::int32_t>(b.sums, numbers / 16)),
              "");
  }

  std::optional<Operators> shaders_, kernels_;
};

TEST_F(KernelsOnHost, ANormWithTheSumBeforeItAndTheCodesAfterIt) {
  const std::int64_t rows = 3;
  for (const std::int64_t width : {64, 1088, 4128})
    for (const bool exact : {false, true}) {
      const op::RmsNorm norm{0, 0, 1e-5f, 1, 1};
      const auto a = rig_.put(random_floats(random_, rows * width)), b = rig_.put(random_floats(random_, rows * width)),
                 gain = rig_.put(random_floats(random_, width));
      const auto sum = rig_.room(rows * width), out = rig_.room(rows * width), sum2 = rig_.room(rows * width);
      const DeviceCodes right = codes(rows * width);
      rig_.run(shaders_->add(width, a, b, sum), rows);
      rig_.run(shaders_->rms_norm(norm, width, sum, gain, out), rows);
      rig_.run(shaders_->quantize(width, exact, out, right), rows);
      KernelPart part;
      part.other = b, part.sum = sum2, part.codes = codes(rows * width), part.exact = exact;
      // In the place of an operand, as plans may have it.
      ASSERT_TRUE(kernels_->fuses(width));
      rig_.run(kernels_->rms_norm(norm, width, a, gain, b, part), rows);
      EXPECT_EQ(difference(rig_.get(sum2, rows * width), rig_.get(sum, rows * width)), "") << width;
      EXPECT_EQ(difference(rig_.get(b, rows * width), rig_.get(out, rows * width)), "") << width;
      expect_same(part.codes, right, rows * width);
    }
}

TEST_F(KernelsOnHost, AGatedUnitWithItsCodes) {
  const std::int64_t rows = 2, width = 1120, pairs = 3;
  const auto gate = rig_.put(random_floats(random_, rows * pairs * width, 4.f)),
             up = rig_.put(random_floats(random_, rows * pairs * width));
  const auto out = rig_.room(rows * pairs * width), out2 = rig_.room((rows * pairs + 1) * width);
  const op::Glu glu{0, 1, 2, Activation::kSilu};
  const DeviceCodes right = codes(rows * pairs * width);
  rig_.run(shaders_->glu(glu, width, gate, up, out), rows * pairs);
  rig_.run(shaders_->quantize(width, false, out, right), rows * pairs);
  KernelPart part;
  part.count = rig_.put(std::vector<std::int32_t>{static_cast<std::int32_t>(rows)});
  part.pairs = pairs, part.codes = codes(rows * pairs * width);
  // A recording has room for more rows: those beyond the count end at once.
  rig_.run(kernels_->glu(glu, width, gate, up, out2, part), rows * pairs + 1);
  auto expected = rig_.get(out, rows * pairs * width);
  expected.resize(expected.size() + static_cast<std::size_t>(width), OperatorRig::kUntouched);
  EXPECT_EQ(difference(rig_.get(out2, (rows * pairs + 1) * width), expected), "");
  expect_same(part.codes, right, rows * pairs * width);
}

TEST_F(KernelsOnHost, RoutesOfScoresAndBiases) {
  for (const std::int64_t experts : {5, 64, 130})
    for (const GateScore score : {GateScore::kSoftmax, GateScore::kSigmoid})
      for (const bool biased : {false, true}) {
        const std::int64_t rows = 7;
        op::Route route{};
        route.used = 3, route.score = score, route.normalize = biased, route.scale = 1.5f;
        auto numbers = random_floats(random_, rows * experts, 3.f);
        for (std::int64_t e = 1; e < experts; e += 2) numbers[static_cast<std::size_t>(e)] = numbers[0];  // equal ones
        const auto logits = rig_.put(numbers), bias = biased ? rig_.put(random_floats(random_, experts)) : 0,
                   scale = biased ? rig_.put(random_floats(random_, experts)) : 0;
        const auto count = rig_.put(std::vector<std::int32_t>{static_cast<std::int32_t>(rows)});
        const RouteScratch scratch{rig_.room(rows * experts), rig_.room(rows * experts)};
        const auto out = rig_.room(rows * 6), out2 = rig_.room(rows * 6);
        const auto plan = rig_.put(std::vector<RowArgument>(rows));
        rig_.run(shaders_->route_scores(route, experts, logits, bias, scratch), rows);
        rig_.run(shaders_->route_choice(route, experts, scratch, scale, plan, count, out), rows);
        ASSERT_TRUE(kernels_->fuses(route, experts));
        rig_.run(kernels_->route(route, experts, logits, bias, scale, count, out2), rows);
        EXPECT_EQ(difference(rig_.get(out2, rows * 6), rig_.get(out, rows * 6)), "") << experts << ' ' << biased;
      }
}

/// Every expert's pairs together: more of them than a block has rows, and experts without any.
TEST_F(KernelsOnHost, ProductsOfPairs) {
  const std::int64_t rows = 21, used = 2, experts = 5, k = 288, n = 70;
  std::vector<float> route;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto first = static_cast<float>(r % 3 == 0 ? 1 : 0);
    route.insert(route.end(), {first, r % 2 == 0 ? 4.f : 2.f, 0.5f, 0.5f});
  }
  const auto places = rig_.put(route), count = rig_.put(std::vector<std::int32_t>{static_cast<std::int32_t>(rows)});
  for (const TensorType type :
       {TensorType::kQ4_0, TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kF32, TensorType::kBF16})
    for (const bool shared : {true, false}) {
      const cpu::PackedFormat& format = *cpu::packed_format(type);
      const cpu::PackedLayout layout = cpu::packed_layout(format, k);
      const std::int64_t bytes = (n + 15) / 16 * layout.bytes, of_x = shared ? rows : rows * used;
      auto words = cpu::test::random_words(random_, TensorType::kF16, experts * bytes / 2);
      const auto panels = rig_.put(std::span<const std::byte>(words));
      const auto x = rig_.put(random_floats(random_, of_x * k));
      const DeviceCodes rows_of_x = codes(of_x * k);
      rig_.run(shaders_->quantize(k, false, x, rows_of_x), of_x);
      const DeviceMatrix matrix{panels, &format, layout, k, n, bytes};
      const auto out = rig_.room(rows * used * n), out2 = rig_.room(rows * used * n);
      ExpertPairs pairs{places, used, shared, 0};
      rig_.run(shaders_->linear(matrix, x, rows_of_x, 0, {count, rows}, out, pairs), rows * used);
      pairs.experts = experts;
      rig_.run(kernels_->linear(matrix, x, rows_of_x, 0, {count, rows}, out2, pairs), rows * used);
      EXPECT_EQ(difference(rig_.get(out2, rows * used * n), rig_.get(out, rows * used * n)), "")
          << codec(type).name << ' ' << shared;
    }
}

}  // namespace
}  // namespace dllm::vulkan
