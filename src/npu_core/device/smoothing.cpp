#include "npu_core/device/smoothing.h"

#include <algorithm>
#include <iterator>

namespace dllm::npu {
namespace {

constexpr std::string_view kCentres[] = {"none", "mean", "minmax"};  // in the order of the enumeration

}  // namespace

std::string_view smoothing_centre_name(SmoothingCentre centre) { return kCentres[static_cast<std::size_t>(centre)]; }

std::optional<SmoothingCentre> smoothing_centre(std::string_view name) {
  const auto found = std::ranges::find(kCentres, name);
  if (found == std::end(kCentres)) return std::nullopt;
  return static_cast<SmoothingCentre>(found - std::begin(kCentres));
}

}  // namespace dllm::npu
