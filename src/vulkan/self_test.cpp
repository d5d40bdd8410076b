#include "vulkan/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "base/rng.h"
#include "base/try.h"
#include "numerics/half.h"

namespace dllm::vulkan {
namespace {

/// More than Mesa 22.3 permits; a loop of a few additions takes less than a millisecond.
constexpr std::uint32_t kTestedRounds = 200'000;
/// A device that ends loops earlier runs no attention over some thousand positions.
constexpr std::uint32_t kLeastRounds = 32'768;

struct SelfTestPush {
  VkDeviceAddress cases, halves, results, loops;
  std::uint32_t count, rounds, zero;
};

bool subnormal(float x) { return x != 0 && std::abs(x) < std::numeric_limits<float>::min(); }

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

float& of(std::array<float, kTestedCount>& results, Tested tested) { return results[static_cast<std::size_t>(tested)]; }

/// Whether a case's result needs subnormal numbers on its way.
bool needs_subnormals(const std::array<float, 3>& x, Tested tested, float right) {
  const float fused = std::fma(x[0], x[1], x[2]);
  if (subnormal(right) || subnormal(x[0])) return true;
  if (tested == Tested::kRoot) return false;
  if (subnormal(x[1])) return true;
  if (tested == Tested::kTwice) return subnormal(x[0] * x[1]) || subnormal(x[2]);
  return (tested == Tested::kFused || tested == Tested::kChain) && (subnormal(x[2]) || subnormal(fused));
}

constexpr std::string_view kTestedNames[] = {"fused multiply-adds",
                                             "division",
                                             "square roots",
                                             "products",
                                             "sums",
                                             "a product and a sum apart",
                                             "chains of fused multiply-adds",
                                             "conversion of float16"};
constexpr std::string_view kSubnormals = "subnormal numbers";

Expected<Observation> observe_on(const std::shared_ptr<Device>& device, const SelfTestCases& cases,
                                 const Arithmetic& arithmetic, std::string_view shader) {
  const auto count = static_cast<std::int64_t>(cases.operands.size());
  DLLM_TRY(const Pipeline pipeline, Pipeline::make(device, shader, arithmetic.form, arithmetic.constants()));
  const auto shared = [&](std::int64_t bytes) { return Buffer::make(device, bytes, Place::kShared, "the self-test"); };
  DLLM_TRY(const Buffer operands, shared(count * 12));
  DLLM_TRY(const Buffer halves, shared(count * 2 + 2));
  DLLM_TRY(const Buffer results, shared(count * static_cast<std::int64_t>(kTestedCount) * 4));
  DLLM_TRY(const Buffer loops, shared(4));
  std::memcpy(operands.data(), cases.operands.data(), cases.operands.size() * 12);
  std::memcpy(halves.data(), cases.halves.data(), cases.halves.size() * 2);
  DLLM_TRY(Commands commands, Commands::begin(device));
  commands.dispatch(pipeline,
                    SelfTestPush{operands.address(), halves.address(), results.address(), loops.address(),
                                 static_cast<std::uint32_t>(count), cases.rounds, 0},
                    GroupCounts{static_cast<std::uint32_t>((count + 63) / 64)});
  DLLM_CHECK_OK(commands.end());
  DLLM_CHECK_OK(commands.run("the self-test"));
  Observation seen;
  seen.results.resize(cases.operands.size());
  std::memcpy(seen.results.data(), results.data(), static_cast<std::size_t>(results.bytes()));
  seen.rounds = *loops.as<std::uint32_t>();
  return seen;
}

struct Fused64Push {
  VkDeviceAddress cases, results;
  std::uint32_t count, zero;
};

Expected<Cases64> observe64_on(const std::shared_ptr<Device>& device, const Cases64& cases, Arithmetic arithmetic,
                               Fused64 form) {
  PipelineConstants constants = arithmetic.constants();
  constants[2] = form == Fused64::kNative ? 1 : 0;
  DLLM_TRY(const Pipeline pipeline, Pipeline::make(device, "fused64", arithmetic.form, constants));
  const auto bytes = static_cast<std::int64_t>(cases.size() * sizeof cases[0]);
  DLLM_TRY(const Buffer operands, Buffer::make(device, bytes, Place::kShared, "the self-test"));
  DLLM_TRY(const Buffer results, Buffer::make(device, bytes, Place::kShared, "the self-test"));
  std::memcpy(operands.data(), cases.data(), static_cast<std::size_t>(bytes));
  DLLM_TRY(Commands commands, Commands::begin(device));
  const auto count = static_cast<std::uint32_t>(cases.size());
  commands.dispatch(pipeline, Fused64Push{operands.address(), results.address(), count, 0},
                    GroupCounts{(count + 63) / 64});
  DLLM_CHECK_OK(commands.end());
  DLLM_CHECK_OK(commands.run("the self-test"));
  Cases64 seen(cases.size());
  std::memcpy(seen.data(), results.data(), static_cast<std::size_t>(bytes));
  return seen;
}

std::string_view name_of(ShaderForm form) {
  switch (form) {
    case ShaderForm::kNative:
      return "native fma";
    case ShaderForm::kGuarded:
      return "native fma, by float64 near subnormal numbers";
    case ShaderForm::kSubnormals:
      return "fma by float64, subnormal numbers by their bits";
    case ShaderForm::kIntegers:
      return "fma by integers, subnormal numbers by their bits";
    default:
      return "fma by float64";
  }
}

/// Each form's faults, with its name where forms differ.
std::string described(const std::vector<std::pair<ShaderForm, std::string>>& wrong) {
  const bool alike = std::ranges::all_of(wrong, [&](const auto& one) { return one.second == wrong.front().second; });
  if (alike) return wrong.empty() ? "" : wrong.front().second;
  std::vector<std::string> all;
  for (const auto& [form, faults] : wrong) all.push_back(fmt::format("{} ({})", faults, name_of(form)));
  return fmt::format("{}", fmt::join(all, "; "));
}

}  // namespace

std::string Arithmetic::description() const {
  std::string text(name_of(form));
  if (correct_division) text += ", corrected division";
  if (correct_roots) text += ", corrected square roots";
  if (kernels) text += ", CUDA kernels";
  if (!kernels_fault.empty()) text += ", no CUDA kernels: " + kernels_fault;
  return text;
}

SelfTestCases self_test_cases() {
  SelfTestCases cases;
  cases.rounds = kTestedRounds;
  constexpr float kMax = std::numeric_limits<float>::max(), kInf = std::numeric_limits<float>::infinity();
  constexpr float kLimits[] = {0.f,  -0.f,  1.f,  -1.f,  0x1.fffffep0f, 0x1p-126f, -0x1.8p-126f, 0x1p-149f, 0x1.8p-140f,
                               kMax, -kMax, kInf, -kInf, 0x1.000002p0f, 0x1p-60f,  3.f,          127.f};
  for (const float a : kLimits)
    for (const float b : kLimits)
      for (const float c : {0.f, 1.f, -1.f, 0x1p-149f, -0x1p-126f, kMax}) cases.operands.push_back({a, b, c});
  // Numbers of a model's size, then of every exponent. A third operand near the product makes a second rounding
  // visible.
  for (std::uint32_t i = 0; i < 6000; ++i) {
    const auto random = philox4x32({i, 0, 0, 0}, {38, 0});
    std::array<float, 3> x;
    for (std::size_t j = 0; j < 3; ++j) {
      const std::uint32_t exponent = i % 2 == 0 ? 117 + (random[j] >> 23) % 20 : (random[j] >> 23) % 255;
      x[j] = std::bit_cast<float>((random[j] & 0x807f'ffffU) | exponent << 23);
    }
    if (i % 4 == 2) x[2] *= x[0] * x[1] * 0x1p-23f;
    cases.operands.push_back(x);
  }
  for (std::uint32_t i = 0; i < cases.operands.size(); ++i) cases.halves.push_back(static_cast<std::uint16_t>(i * 9));
  return cases;
}

Observation right_results(const SelfTestCases& cases) {
  Observation right;
  right.rounds = cases.rounds;
  right.results.resize(cases.operands.size());
  for (std::size_t i = 0; i < cases.operands.size(); ++i) {
    const auto [a, b, c] = cases.operands[i];
    std::array<float, kTestedCount>& to = right.results[i];
    of(to, Tested::kFused) = std::fma(a, b, c);
    of(to, Tested::kDivision) = a / b;
    of(to, Tested::kRoot) = std::sqrt(std::abs(a));
    of(to, Tested::kProduct) = a * b;
    of(to, Tested::kSum) = a + b;
    of(to, Tested::kTwice) = a * b + c;
    of(to, Tested::kChain) = std::fma(std::fma(a, b, c), a, b);
    of(to, Tested::kHalf) = f16_to_f32(cases.halves[i]);
  }
  return right;
}

std::vector<std::string> faults_of(const SelfTestCases& cases, const Observation& seen) {
  const Observation right = right_results(cases);
  bool wrong[kTestedCount] = {}, subnormals = false;
  for (std::size_t i = 0; i < cases.operands.size(); ++i)
    for (std::size_t t = 0; t < kTestedCount; ++t) {
      const auto tested = static_cast<Tested>(t);
      const float expected = right.results[i][t];
      if (same(expected, seen.results[i][t])) continue;
      const bool small = tested != Tested::kHalf && needs_subnormals(cases.operands[i], tested, expected);
      (small ? subnormals : wrong[t]) = true;
    }
  std::vector<std::string> faults;
  for (std::size_t t = 0; t < kTestedCount; ++t)
    if (wrong[t]) faults.emplace_back(kTestedNames[t]);
  if (subnormals) faults.emplace_back(kSubnormals);
  return faults;
}

Expected<Arithmetic> choose_arithmetic(const DeviceFacts& facts, const Observe& observe) {
  const SelfTestCases cases = self_test_cases();
  std::vector<std::pair<ShaderForm, std::string>> wrong;
  // NVIDIA's driver 580 keeps subnormal numbers where a shader asks for it, and does not announce it. So on devices
  // that do not announce it the forms that ask are tried only after float64.
  const auto asks = [](ShaderForm form) { return form < ShaderForm::kFloat64; };
  std::vector<ShaderForm> forms{ShaderForm::kNative, ShaderForm::kGuarded, ShaderForm::kFloat64};
  if (!facts.has_float64) forms = {ShaderForm::kNative};
  if (!facts.keeps_subnormals) std::ranges::stable_partition(forms, std::not_fn(asks));
  // Mesa says what its drivers for processors can.
  if (!facts.keeps_subnormals && facts.type == VK_PHYSICAL_DEVICE_TYPE_CPU) std::erase_if(forms, asks);
  // Integers ask for nothing, and are slow: last, but first on devices that announce neither float64 nor subnormal
  // numbers.
  const bool last = facts.has_float64 || facts.keeps_subnormals;
  forms.insert(last ? forms.end() : forms.begin(), ShaderForm::kIntegers);
  for (std::size_t f = 0; f < forms.size(); ++f) {
    const ShaderForm form = forms[f];
    wrong.emplace_back(form, "");
    // Corrections cost a little: only where they are needed.
    for (const bool corrected : {false, true}) {
      Arithmetic arithmetic{form, corrected, corrected};
      const Expected<Observation> seen = observe(cases, arithmetic);
      if (!seen && asks(form) && !facts.keeps_subnormals) {  // the driver has the right to refuse it
        wrong.pop_back();
        break;
      }
      if (!seen) return seen.error();
      std::vector<std::string> faults = faults_of(cases, *seen);
      arithmetic.most_rounds = seen->rounds;
      if (faults.empty() && seen->rounds >= kLeastRounds) return arithmetic;
      if (faults.empty())
        faults.push_back(fmt::format("loops, which end after {} of {} iterations", seen->rounds, cases.rounds));
      wrong.back().second = fmt::format("{}", fmt::join(faults, ", "));
    }
    // Slower, and only where it may help.
    if (form == ShaderForm::kFloat64 && wrong.back().second == kSubnormals)
      forms.insert(forms.begin() + static_cast<std::ptrdiff_t>(f) + 1, ShaderForm::kSubnormals);
  }
  return Error{ErrorCode::kUnsupported, fmt::format("{} failed the self-test in {}", facts.name, described(wrong)),
               "--backend vulkan", "choose another device with --device; a newer driver may help"};
}

Observe observer_of(std::shared_ptr<Device> device, std::string_view shader) {
  return [device = std::move(device), shader](const SelfTestCases& cases, const Arithmetic& arithmetic) {
    return observe_on(device, cases, arithmetic, shader);
  };
}

/// Of the sizes that the reduction has: exponents up to 200 away from 0. A third operand near the product, or near half
/// a unit of it, makes a second rounding visible.
Cases64 self_test_cases64() {
  Cases64 cases;
  for (std::uint32_t i = 0; i < 4000; ++i) {
    const auto random = philox4x32({i, 1, 0, 0}, {38, 0}), more = philox4x32({i, 2, 0, 0}, {38, 0});
    std::array<double, 3> x;
    for (std::size_t j = 0; j < 3; ++j) {
      const std::uint64_t bits = std::uint64_t{random[j]} << 32 | more[j];
      const std::uint64_t exponent = 1023 - 20 + bits % (i % 2 == 0 ? 30 : 1) - (i % 8 == 1 ? 180 : 0);
      x[j] = std::bit_cast<double>((bits & 0x800f'ffff'ffff'ffffU) | exponent << 52);
    }
    const double product = x[0] * x[1];
    if (i % 4 == 2) x[2] = -product * (1 + std::ldexp(static_cast<double>(random[3] % 8), -52));
    // Of twice the product's size: every other product is half a unit too long, and its low part decides.
    if (i % 4 == 3)
      x[2] = std::copysign(std::ldexp(1 + static_cast<double>(random[3]) * 0x1p-34, std::ilogb(product) + 1), product);
    if (i % 16 == 15) x[1] = std::ldexp(1, static_cast<int>(random[3] % 7));  // products without a low part
    cases.push_back(x);
  }
  // 1 - 2^-54, whose rounded product is half a unit of the third operand: only the part beyond float64 decides.
  for (int i = 0; i < 64; ++i) cases.push_back({1 + 0x1p-27, 1 - 0x1p-27, 0x1p53 + 2 * i});
  cases.push_back({0, 1, 0});
  cases.push_back({0, -1, -2.5});
  return cases;
}

Cases64 right_results64(const Cases64& cases) {
  Cases64 right;
  for (const auto& [a, b, c] : cases) right.push_back({std::fma(a, b, c), a * b, a + c});
  return right;
}

Expected<Fused64> choose_fused64(const DeviceFacts& facts, ShaderForm form, const Observe64& observe) {
  if (!facts.has_float64 || form == ShaderForm::kIntegers) return Fused64::kNone;
  const Cases64 cases = self_test_cases64(), right = right_results64(cases);
  for (const Fused64 fused : {Fused64::kNative, Fused64::kExact}) {
    DLLM_TRY(const Cases64 seen, observe(cases, fused));
    if (seen.size() == right.size() && std::memcmp(seen.data(), right.data(), right.size() * sizeof right[0]) == 0)
      return fused;
  }
  return Fused64::kNone;
}

Expected<Arithmetic> test_device(const std::shared_ptr<Device>& device) {
  DLLM_TRY(Arithmetic arithmetic, choose_arithmetic(device->facts(), observer_of(device)));
  const auto observe64 = [&](const Cases64& cases, Fused64 fused) {
    return observe64_on(device, cases, arithmetic, fused);
  };
  DLLM_TRY(arithmetic.fused64, choose_fused64(device->facts(), arithmetic.form, observe64));
  DLLM_CHECK_OK(test_kernels(device, arithmetic));
  return arithmetic;
}

}  // namespace dllm::vulkan
