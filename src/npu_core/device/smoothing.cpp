#include "npu_core/device/smoothing.h"

#include <algorithm>
#include <iterator>

#include "base/to_size.h"

namespace dllm::npu {
namespace {

constexpr std::string_view kCentres[] = {"none", "mean", "minmax"};  // in the order of the enumeration

}  // namespace

std::string_view smoothing_centre_name(SmoothingCentre centre) { return kCentres[to_size(centre)]; }

std::optional<SmoothingCentre> smoothing_centre(std::string_view name) {
  const auto found = std::ranges::find(kCentres, name);
  if (found == std::end(kCentres)) return std::nullopt;
  return static_cast<SmoothingCentre>(found - std::begin(kCentres));
}

}  // namespace dllm::npu
