// The bandwidth that device and host have together: their times while both work.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_compiler/calibrate/further_fits.h"
#include "npu_compiler/calibrate/plausible.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

constexpr double kMostGbps = 8192;

/// A step, and what the host repeats meanwhile.
struct Rivals {
  std::vector<Stretch> step, host;
  double measured = 0;  ///< seconds of the step

  static double seconds_of(const std::vector<Stretch>& work) {
    double sum = 0;
    for (const Stretch& one : work) sum += one.seconds;
    return sum;
  }

  /// Of the step, while the host does not pause.
  double seconds(Device device, double gbps) const {
    device.host.shared_gbps = gbps;
    HostQueue queue(device);
    double slowest = 1;
    for (const Stretch& one : step)
      if (one.seconds > 0) slowest = std::max(slowest, 2 * one.bytes / one.seconds / (gbps * 1e9));
    const double alone = seconds_of(step), repetitions = alone * slowest / seconds_of(host);
    constexpr double kMostRepetitions = 1e5;
    for (double i = 0; i < std::min(repetitions + 1, kMostRepetitions); i += 1) queue.push(host);
    return alone + queue.run(step, 0).lost;
  }
};

class SharedFit {
 public:
  SharedFit(const Device& device, std::vector<Rivals> all)
      : device_(device), least_(device.host.memory_gbps), all_(std::move(all)) {}

  double loss(double gbps) const {
    double sum = 0;
    for (const Rivals& one : all_) sum += std::pow(one.seconds(device_, gbps) / one.measured - 1, 2);
    return sum;
  }

  /// The best of a grid, refined.
  double best() const {
    constexpr int kPoints = 160;
    const double step = std::log(kMostGbps / least_) / kPoints;
    const auto at = [&](double i) { return least_ * std::exp(step * i); };
    int least = 0;
    double lowest = loss(at(0));
    for (int i = 1; i <= kPoints; ++i)
      if (const double now = loss(at(i)); now < lowest) least = i, lowest = now;
    double low = least - 1.0, high = least + 1.0;
    for (int i = 0; i < 60; ++i) {
      const double a = low + (high - low) / 3, b = high - (high - low) / 3;
      if (loss(at(a)) <= loss(at(b)))
        high = b;
      else
        low = a;
    }
    return std::clamp(at((low + high) / 2), least_, kMostGbps);
  }

  /// Relative standard error of a fitted value; infinite if nothing depends on it.
  double error(double gbps) const {
    constexpr double kStep = 1e-4;
    double square = 0;
    for (const Rivals& one : all_) {
      const double up = one.seconds(device_, gbps * (1 + kStep)), down = one.seconds(device_, gbps * (1 - kStep));
      square += std::pow((up - down) / (2 * kStep * one.measured), 2);
    }
    const double freedom = std::max(1.0, static_cast<double>(all_.size()) - 1);
    return std::sqrt(loss(gbps) / freedom / square);
  }

  bool limits(double gbps) const {
    return std::ranges::any_of(all_, [&](const Rivals& one) {
      return one.seconds(device_, gbps) > one.seconds(device_, kMostGbps) * (1 + 1e-9);
    });
  }

  /// The least value that limits nothing.
  double bound() const {
    double low = least_, high = kMostGbps;
    for (int i = 0; i < 60; ++i) {
      const double middle = std::sqrt(low * high);
      (limits(middle) ? low : high) = middle;
    }
    return high;
  }

  /// Whether a value explains the measurements as well as the best.
  bool as_good(double gbps, double best) const {
    const auto count = static_cast<double>(all_.size());
    return loss(gbps) <= loss(best) + std::max(4 * loss(best) / std::max(1.0, count - 1), 1e-10 * count);
  }

  double seconds(std::size_t i, double gbps) const { return all_[i].seconds(device_, gbps); }

 private:
  const Device& device_;
  const double least_;  ///< both processors have no less than the host alone
  std::vector<Rivals> all_;
};

FittedParameter judged(const SharedFit& fit, double given) {
  FittedParameter result;
  result.value = fit.best();
  if (fit.limits(result.value) && !fit.as_good(kMostGbps, result.value)) {
    result.error = fit.error(result.value);
    if (result.error > 0.5) result.state = FittedParameter::State::kVague;
  } else if (fit.limits(given)) {
    result.value = fit.bound();
    result.state = FittedParameter::State::kBounded;
  } else {
    result.state = FittedParameter::State::kUnused;
  }
  return result;
}

}  // namespace

Expected<void> fit_shared_memory(const StepTimer::GraphFactory& graph,
                                 const std::vector<Measurements::Shared>& measured, Calibration& result) {
  if (measured.empty()) return {};
  const Device& device = result.device;
  if (device.host.cores == 0)
    return Error{ErrorCode::kUnsupported, "the profile describes no host processor", "device " + device.name,
                 "begin with a phone such as mobile-sm8750"};
  StepTotals most{1, 1, 0, 1};
  for (const Measurements::Shared& m : measured) {
    most.rows = std::max(most.rows, m.rows);
    most.keys = std::max(most.keys, m.keys);
  }
  DLLM_TRY(StepTimer timer, StepTimer::create(device, graph, most, {}));
  std::vector<Rivals> all;
  for (const Measurements::Shared& m : measured) {
    DLLM_TRY(const StepProfile* const profile, timer.profile({1, m.rows, m.rows, m.keys}));
    std::vector<Stretch> host =
        host_stretches(graph({.rows = m.host_rows, .scored = m.host_rows}), device, 1, m.host_keys);
    all.push_back({profile->stretches, std::move(host), m.us * 1e-6});
  }
  const double given = device.host.shared_gbps > 0 ? device.host.shared_gbps : device.memory_config.peak_gbps();
  const SharedFit fit(device, std::move(all));
  const auto named = [](const Measurements::Shared& m) {
    return fmt::format("step of {} rows, {} keys, host {} rows, {} keys", m.rows, m.keys, m.host_rows, m.host_keys);
  };
  for (std::size_t i = 0; i < measured.size(); ++i)
    DLLM_CHECK_OK(check_plausible("--shared-steps", named(measured[i]), measured[i].us, fit.seconds(i, given) * 1e6));
  CalibratedKey key{"host.shared_gbps", "GB/s", device.host.shared_gbps, judged(fit, given), {}};
  double used = given;
  if (determined(key.fit))
    used = key.fit.value = six_digits(key.fit.value);
  else
    key.fit.value = key.before;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Measurements::Shared& m = measured[i];
    result.residuals.push_back({named(m), m.us, fit.seconds(i, used) * 1e6});
  }
  if (determined(key.fit)) result.device.host.shared_gbps = used;
  result.keys.push_back(std::move(key));
  return {};
}

}  // namespace dllm::npu
