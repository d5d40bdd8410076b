#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "vulkan/commands.h"
#include "vulkan/device.h"

// Vulkan promises less than IEEE 754: a fused multiply-add may round twice, quotients and roots may be off, subnormal
// numbers may count as zero, and drivers have bugs. Results that shall have the bits of the CPU's kernels need a device
// that was asked. The test at the start computes known cases by the operators of shaders/exact.glsl, chooses the
// corrections that make them right, and refuses a device for which none does.

namespace dllm::vulkan {

/// How shaders compute fused multiply-adds of float64.
enum class Fused64 : std::uint8_t {
  kNone,    ///< not at all: logits are reduced by this processor
  kNative,  ///< by the device's own instruction
  kExact,   ///< by exact products and sums, rounded to odd
};

/// How shaders compute on a device so that every operator rounds as IEEE 754 says.
struct Arithmetic {
  ShaderForm form = ShaderForm::kFloat64;
  bool correct_division = false;
  bool correct_roots = false;
  /// Iterations that all loops of one invocation may have together: Mesa 22.3 ends them after 65,535, without a word.
  std::uint32_t most_rounds = 0;
  Fused64 fused64 = Fused64::kNone;
  /// The kernels of cuda/ run on the device, with the bits of the shaders.
  bool kernels = false;
  /// Why they do not, on a device that lists what they need.
  std::string kernels_fault{};
  /// Products with F16 and BF16 weights run in F16 on matrix units: the arithmetic `f16`.
  bool halves = false;

  /// With the constants of shaders/exact.glsl in front; the others are 0.
  PipelineConstants constants() const { return {correct_division ? 1U : 0U, correct_roots ? 1U : 0U}; }
  /// "fma by float64", "native fma, corrected division": for logs.
  std::string description() const;
};

/// Operands, and what a device made of them.
struct SelfTestCases {
  std::vector<std::array<float, 3>> operands;
  std::vector<std::uint16_t> halves;  ///< as many
  std::uint32_t rounds = 0;           ///< of the long loop
};
/// Results of one case, in the order of shaders/self_test.comp.
enum class Tested : std::uint8_t { kFused, kDivision, kRoot, kProduct, kSum, kTwice, kChain, kHalf };
inline constexpr std::size_t kTestedCount = 8;
struct Observation {
  std::vector<std::array<float, kTestedCount>> results;
  std::uint32_t rounds = 0;
};

/// The cases of the test: random and limiting ones, with all exponents, subnormal numbers and infinities.
SelfTestCases self_test_cases();
/// What a device that does everything right gives.
Observation right_results(const SelfTestCases& cases);

/// Names of what is wrong: "fused multiply-adds", "division", ...; empty: nothing. Loops are not among them.
std::vector<std::string> faults_of(const SelfTestCases& cases, const Observation& seen);

/// Runs the cases on a device in a form, with or without corrections.
using Observe = std::function<Expected<Observation>(const SelfTestCases& cases, const Arithmetic& arithmetic)>;

/// Chooses an arithmetic for a device by what `observe` sees. Errors: kUnsupported, which names what is wrong; those of
/// `observe`.
Expected<Arithmetic> choose_arithmetic(const DeviceFacts& facts, const Observe& observe);

/// An observer that runs the shader of the test on a device. "self_test_flushing" has a flaw of NVIDIA's driver, for
/// tests. Errors: kResource.
Observe observer_of(std::shared_ptr<Device> device, std::string_view shader = "self_test");

/// Operands of float64, and a * b + c rounded once, a * b and a + c of each.
using Cases64 = std::vector<std::array<double, 3>>;
Cases64 self_test_cases64();
Cases64 right_results64(const Cases64& cases);
using Observe64 = std::function<Expected<Cases64>(const Cases64& cases, Fused64 form)>;
/// The way whose results are right, the native one first; kNone if neither is, or if shaders run in the form by
/// integers: no shader of float64 has that form. Errors: those of `observe`.
Expected<Fused64> choose_fused64(const DeviceFacts& facts, ShaderForm form, const Observe64& observe);

/// Whether the kernels of cuda/ run on a device and give what its shaders do in `arithmetic`, in a case of every kind:
/// sets `kernels` and `kernels_fault`. Errors: kResource, of the shaders.
Expected<void> test_kernels(const std::shared_ptr<Device>& device, Arithmetic& arithmetic);

/// Whether products in F16 run on a device (Arithmetic::halves): sums that no rounding touches have their bits, and
/// others are within k units of 2^-23 of the sum of their products' magnitudes. Errors: kUnsupported, which says why it
/// does not; kResource.
Expected<void> test_halves(const std::shared_ptr<Device>& device, const Arithmetic& arithmetic);

/// All three for a device, by running the tests on it: some milliseconds, and where it runs kernels the time to compile
/// some of them. Errors: also kResource.
Expected<Arithmetic> test_device(const std::shared_ptr<Device>& device);

}  // namespace dllm::vulkan
