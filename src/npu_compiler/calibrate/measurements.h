#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::npu {

/// Measured times and energies of a real device. Times are in microseconds.
struct Measurements {
  struct Gemm {  ///< rows x inputs by outputs x inputs weights, as one operator
    std::int64_t rows, outputs, inputs;
    double us;
  };
  struct MeasuredStep {  ///< of one sequence; every row is scored and sees `keys` positions
    std::int64_t rows, keys;
    double us;
  };
  struct Mapping {
    std::int64_t bytes;
    double us;
  };
  struct Shared {  ///< a step on the device while the host repeats steps of `host_rows`, `host_keys` without a pause
    std::int64_t rows, keys, host_rows, host_keys;
    double us;
  };
  /// Of device, memory and host together, above what they take without work that is not in the model.
  struct Energy {
    double value;
    bool watts;  ///< the mean power; else joules
  };
  struct GemmEnergy {
    Gemm product;  ///< without a time
    Energy energy;
  };
  struct StepEnergy {
    std::int64_t rows, keys;
    Energy energy;
  };
  std::vector<Shared> shared_steps;
  std::vector<GemmEnergy> gemm_energies;
  std::vector<StepEnergy> step_energies, host_step_energies;
  std::vector<Gemm> gemms, host_gemms;  ///< on the device, and on the host's processor alone
  std::vector<MeasuredStep> steps, host_steps;
  std::vector<Mapping> mappings;
};

/// CSV with a header that names exactly these columns, in any order; '#' begins a comment. Sizes are whole numbers up
/// to 2^20 (bytes: 2^40), times above 0. Errors (kInvalidFile): anything else, with the line.
Expected<std::vector<Measurements::Gemm>> parse_gemms(std::string_view text, const std::string& file);
Expected<std::vector<Measurements::MeasuredStep>> parse_steps(std::string_view text, const std::string& file);
Expected<std::vector<Measurements::Mapping>> parse_mappings(std::string_view text, const std::string& file);
Expected<std::vector<Measurements::Shared>> parse_shared_steps(std::string_view text, const std::string& file);
/// The last column is `joules` or `watts`.
Expected<std::vector<Measurements::GemmEnergy>> parse_gemm_energies(std::string_view text, const std::string& file);
Expected<std::vector<Measurements::StepEnergy>> parse_step_energies(std::string_view text, const std::string& file);

}  // namespace dllm::npu
