#pragma once

#include <cstdint>
#include <span>

#include "graph/graph.h"

// The choice of experts (op::Route) from keys and scores. Sets are bytes, 0 or 1, one per expert or group; all memory
// is the caller's.

namespace dllm {

/// Marks the `count` largest keys among the allowed ones; ties go to the lower index. Keys that are not numbers come
/// last, so that there are always `count` where as many are allowed: their results are not numbers either, which the
/// reader of the predictions reports. All spans have the same length.
void choose_largest(std::span<const float> keys, std::span<const std::uint8_t> allowed, std::int64_t count,
                    std::span<std::uint8_t> chosen);

/// The experts that remain after the group limit: those of the groups whose two largest keys have the largest sum.
/// `sums` and `kept` are scratch for one value per group.
void limit_groups(const op::Route& o, std::span<const float> keys, std::span<float> sums, std::span<std::uint8_t> kept,
                  std::span<std::uint8_t> allowed);

/// The experts that a block's rows may choose from: the largest of `largest`, which is filled from the `keys` of these
/// rows, [rows][experts]. `all`: ones.
void pool_of_block(const op::Route& o, std::span<const float> keys, std::span<float> largest,
                   std::span<const std::uint8_t> all, std::span<std::uint8_t> allowed);

/// A row's output, [2 used]: the chosen experts by ascending index, then their weights. `scale`: of each expert's
/// weight, or empty.
void write_choice(const op::Route& o, std::span<const float> scores, std::span<const std::uint8_t> chosen,
                  std::span<const float> scale, std::span<float> out);

}  // namespace dllm
