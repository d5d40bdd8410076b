#include "graph/expert_choice.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace dllm {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

}  // namespace

void choose_largest(std::span<const float> keys, std::span<const std::uint8_t> allowed, std::int64_t count,
                    std::span<std::uint8_t> chosen) {
  std::fill(chosen.begin(), chosen.end(), std::uint8_t{0});
  for (std::int64_t k = 0; k < count; ++k) {
    std::size_t best = keys.size();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!allowed[i] || chosen[i]) continue;
      const bool better =
          best == keys.size() || keys[i] > keys[best] || (keys[best] != keys[best] && keys[i] == keys[i]);
      if (better) best = i;
    }
    if (best < keys.size()) chosen[best] = 1;
  }
}

void limit_groups(const op::Route& o, std::span<const float> keys, std::span<float> sums, std::span<std::uint8_t> kept,
                  std::span<std::uint8_t> allowed) {
  const std::size_t size = keys.size() / sums.size();
  for (std::size_t g = 0; g < sums.size(); ++g) {
    float first = kLowest, second = kLowest;
    for (const float key : keys.subspan(g * size, size)) {
      if (key > first) {
        second = first;
        first = key;
      } else if (key > second) {
        second = key;
      }
    }
    sums[g] = size > 1 ? first + second : first;
  }
  std::fill(allowed.begin(), allowed.end(), std::uint8_t{1});
  choose_largest(sums, allowed.first(sums.size()), o.groups_used, kept);
  for (std::size_t i = 0; i < keys.size(); ++i) allowed[i] = kept[i / size];
}

void pool_of_block(const op::Route& o, std::span<const float> keys, std::span<float> largest,
                   std::span<const std::uint8_t> all, std::span<std::uint8_t> allowed) {
  std::fill(largest.begin(), largest.end(), kLowest);
  for (std::size_t i = 0; i < keys.size(); ++i)
    largest[i % largest.size()] = std::max(largest[i % largest.size()], keys[i]);
  choose_largest(largest, all, o.capacity, allowed);
}

void write_choice(const op::Route& o, std::span<const float> scores, std::span<const std::uint8_t> chosen,
                  std::span<const float> scale, std::span<float> out) {
  const std::span<float> experts = out.first(static_cast<std::size_t>(o.used)), weights = out.subspan(experts.size());
  std::size_t used = 0;
  double sum = 0;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (!chosen[e]) continue;
    experts[used] = static_cast<float>(e);
    weights[used++] = scores[e];
    sum += static_cast<double>(scores[e]);
  }
  const double factor = static_cast<double>(o.scale) / (o.normalize ? sum + 1e-20 : 1.0);
  for (std::size_t i = 0; i < used; ++i) {
    weights[i] = static_cast<float>(static_cast<double>(weights[i]) * factor);
    if (!scale.empty()) weights[i] *= scale[static_cast<std::size_t>(experts[i])];
  }
}

}  // namespace dllm
