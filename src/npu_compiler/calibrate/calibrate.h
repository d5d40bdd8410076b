#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "npu_compiler/answers/step_timer.h"
#include "npu_compiler/calibrate/measurements.h"
#include "npu_compiler/calibrate/piecewise_fit.h"
#include "npu_core/device/device.h"

namespace dllm::npu {

/// A key of a profile that measurements can determine.
struct CalibratedKey {
  std::string key;  ///< as for --set
  std::string unit;
  double before = 0;
  FittedParameter fit;            ///< `value`: of the key
  std::vector<std::string> with;  ///< keys that it cannot be told from
};

struct CalibrationResidual {
  std::string what;  ///< "gemm 32 x 4096 x 12288"
  double measured = 0, model = 0;
  std::string unit = "us";
};

struct Calibration {
  Device device;  ///< with the fitted keys
  std::vector<CalibratedKey> keys;
  std::vector<CalibrationResidual> residuals;
  double rms = 0, worst = 0;  ///< relative
};

/// Whether the measurements say something about it that the profile should have.
bool determined(const FittedParameter& parameter);

/// Fits a profile to measurements, with the models that time answers (StepTimer): piecewise_fit.h for times of one
/// processor, and with what these gave further_fits.h. Keys that the
/// measurements do not determine keep the profile's values and say so. `graph` is needed for steps. Errors: kUsage
/// without measurements; those of StepTimer::create(); kUnsupported for host measurements without a described host.
Expected<Calibration> calibrate(const Device& device, const StepTimer::GraphFactory& graph,
                                const Measurements& measurements);

/// The calibrated profile as TOML. `base`: the shipped profile that the fit began with; empty: every key is written.
std::string calibrated_profile(const Calibration& calibration, const std::string& base, const std::string& name,
                               const std::string& made_by);

}  // namespace dllm::npu
