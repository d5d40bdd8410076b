#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_backend/accuracy/operand_format.h"
#include "npu_backend/accuracy/smoothing.h"
#include "npu_backend/accuracy/vector_unit.h"
#include "npu_core/device/override.h"
#include "npu_core/machine/config.h"

namespace dllm::npu {
struct Device;
}

namespace dllm::npu::accuracy {

/// In which numbers a probability is computed from logits.
enum class SamplingPrecision : std::uint8_t {
  kF64,   ///< float64 throughout, as every backend does
  kF32,   ///< float32: e^(z - max), their sum, its reciprocal
  kBF16,  ///< the NPU's one-pass reduction: BF16, sums of a slab in float32
  kMXFP8  ///< kBF16 over logits that were stored as mxfp8_e4m3:32:ocp
};

/// The numbers a model is run in: formats of the operands of products, precision of everything else. The order of
/// operations is that of the NPU (npu-compiler.md), on the array of `device`.
struct NumericsProfile {
  std::string name, summary;
  std::string device = "dart-2048";  ///< lanes of the array, of a vector, of a head: they decide where sums are rounded
  std::vector<Override> changes;     ///< of that device
  OperandFormat weight, activation, key, value;
  OperandFormat logits;  ///< that are read by sampling
  VectorPrecision vector = VectorPrecision::kBF16;
  SamplingPrecision sampling = SamplingPrecision::kF64;
  Smoothing smoothing;  ///< of K and V

  /// Whether the functional machine computes the same, bit for bit.
  bool on_machine() const;
  /// The device with this profile's formats; bf16 in the place of those that it does not have there. Errors: of the
  /// device.
  Expected<MachineConfig> machine() const;
};

/// `text` is TOML; unknown keys are errors, with file and line. Errors: kInvalidFile.
Expected<NumericsProfile> parse_numerics(std::string_view text, const std::string& file);
/// A shipped profile by name, in upper or lower case, or a file. Errors: kUsage, kInvalidFile.
Expected<NumericsProfile> load_numerics(const std::string& name_or_path);
std::vector<std::string> numerics_names();

/// The numbers of a device: with FP16 activations, everything else is FP16 too, as in the profile fp16-q4_0; otherwise
/// BF16, as on the functional machine. `name_or_path` and `changes`: as `device` was loaded. Errors: kUnsupported.
Expected<NumericsProfile> device_numerics(const Device& device, std::string name_or_path,
                                          std::vector<Override> changes);

/// Every key with its value, for results.
nlohmann::ordered_json numerics_json(const NumericsProfile& profile);

}  // namespace dllm::npu::accuracy
