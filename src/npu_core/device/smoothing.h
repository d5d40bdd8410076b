#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dllm::npu {

/// Block-adaptive online smoothing of K and V (DART, Eq. 8 and 9): a cache stores (x - c) / f per channel, with the
/// channel's centre c and factor f from the step that filled the cache. Outliers that remain in their channels then no
/// longer determine the scale of the blocks that they share with others.
enum class SmoothingCentre : std::uint8_t {
  kNone,    ///< no smoothing
  kMean,    ///< the mean over the positions
  kMinMax,  ///< (largest + smallest) / 2
};
std::string_view smoothing_centre_name(SmoothingCentre centre);  ///< "none", "mean", "minmax"
std::optional<SmoothingCentre> smoothing_centre(std::string_view name);

struct Smoothing {
  SmoothingCentre keys = SmoothingCentre::kNone, values = SmoothingCentre::kNone;
  /// f = (largest distance from the centre)^alpha; 0 only subtracts the centre, 1 scales every channel to [-1, 1].
  double alpha = 1;

  bool any() const { return keys != SmoothingCentre::kNone || values != SmoothingCentre::kNone; }
  /// Powers that square roots make: 0, 1/4, 1/2, 3/4, 1. The vector unit has no others.
  bool by_roots() const { return 4 * alpha == static_cast<double>(static_cast<int>(4 * alpha)); }
  friend bool operator==(const Smoothing&, const Smoothing&) = default;
};

/// Rows whose sums make a sum of the next level, when a mean is computed: 8-bit significands lose little over 16 terms.
inline constexpr int kMeanRun = 16;
inline constexpr int kMeanLevels = 4;  ///< of sums: 65,536 rows

/// Whether a step that computes `rows` of `seen` positions takes statistics: all of what it sees. Steps that keep some
/// of these rows keep their centres and factors, so that a cache has one set of them.
constexpr bool takes_statistics(std::int64_t rows, std::int64_t seen) { return rows >= seen; }

}  // namespace dllm::npu
