#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dllm::npu {

/// A time in seconds that is linear in the parameters.
struct LinearForm {
  double constant = 0;
  std::vector<std::pair<std::size_t, double>> terms;  ///< parameter, seconds per unit of it
};

/// A measured time, and the model's: the sum over operators of the longest of their forms (what limits them).
struct MeasuredTime {
  double seconds = 0;
  double constant = 0;
  struct Operator {
    std::vector<LinearForm> forms;
    double count = 1;  ///< of such operators
  };
  std::vector<Operator> operators;
};

/// A parameter of a fit. All are at least 0.
struct FittedParameter {
  enum class State : std::uint8_t {
    kFitted,
    kUnused,       ///< no measurement is limited by it, at the given value
    kBounded,      ///< nor by this value; the given one would limit some
    kInseparable,  ///< the measurements fix only its sum with others
    kVague,        ///< its standard error is more than half of it
  };
  double value = 0;  ///< the given one, unless kFitted or kBounded
  double error = 0;  ///< relative standard error, from the residuals; of kFitted and kVague
  State state = State::kFitted;
  /// Of kInseparable: the other ones. Of kFitted: those that explain the measurements as well in its place.
  std::vector<std::size_t> with;
};

struct PiecewiseFit {
  std::vector<FittedParameter> parameters;
  std::vector<double> seconds;  ///< of the model, by measurement
  double rms = 0, worst = 0;    ///< relative residuals
};

/// Least squares of relative residuals. Which form is the longest depends on the parameters, so the least squares of
/// smooth blends and then of fixed choices are repeated (each a convex problem with bounds, solved exactly), from the
/// best points of a grid around `given`: deterministic, and the best of what was found. Parameters that the
/// measurements do not determine keep their given values, and the others are fitted again with these. Precondition:
/// all `given` and times are above 0; a few parameters are used by the measurements.
PiecewiseFit fit_piecewise(const std::vector<MeasuredTime>& measured, const std::vector<double>& given);

/// The model's time.
double model_seconds(const MeasuredTime& measured, const std::vector<double>& values);

}  // namespace dllm::npu
