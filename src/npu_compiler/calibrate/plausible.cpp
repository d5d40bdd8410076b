#include "npu_compiler/calibrate/plausible.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace dllm::npu {

Expected<void> check_plausible(std::string_view flag, const std::string& what, double measured_us, double profile_us) {
  constexpr double kMost = 100, kSameUnit = 30;
  const double ratio = measured_us / profile_us;
  if (!(profile_us > 0) || (ratio <= kMost && ratio >= 1 / kMost)) return {};
  std::string hint = "times are in microseconds; or begin with a profile that is closer to the device";
  for (const auto& [unit, factor] : {std::pair{"seconds", 1e-6}, {"milliseconds", 1e-3}, {"nanoseconds", 1e3}})
    if (std::abs(std::log(ratio / factor)) < std::log(kSameUnit))
      hint = fmt::format("times are in microseconds; these look like {}", unit);
  return Error{
      ErrorCode::kInvalidFile,
      fmt::format("{} takes {:.4g} us as measured and {:.4g} us by the profile", what, measured_us, profile_us),
      std::string(flag), std::move(hint)};
}

}  // namespace dllm::npu
