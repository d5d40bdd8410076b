#include "cpu/route.h"

#include <algorithm>
#include <limits>

#include "base/parallel.h"

namespace dllm::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// Marks the `count` largest keys among the allowed ones; ties go to the lower index. Keys that are not numbers come
/// last, so that there are always `count`: their results are not numbers either, which the reader of the predictions
/// reports.
void choose(std::span<const float> keys, std::span<const std::uint8_t> allowed, std::int64_t count,
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

/// The experts that remain after the group limit. `sums` and `kept` are scratch for one value per group.
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
  choose(sums, allowed.first(sums.size()), o.groups_used, kept);
  for (std::size_t i = 0; i < keys.size(); ++i) allowed[i] = kept[i / size];
}

/// The experts that a block's rows may choose from: the largest of `largest`, which is filled from the rows' `keys`.
void pool_of_block(const op::Route& o, std::span<const float> keys, std::span<float> largest,
                   std::span<const std::uint8_t> all, std::span<std::uint8_t> allowed) {
  std::fill(largest.begin(), largest.end(), kLowest);
  for (std::size_t i = 0; i < keys.size(); ++i)
    largest[i % largest.size()] = std::max(largest[i % largest.size()], keys[i]);
  choose(largest, all, o.capacity, allowed);
}

/// The chosen experts by ascending index, then their weights.
void write_row(const op::Route& o, std::span<const float> scores, std::span<const std::uint8_t> chosen, float* out) {
  std::int64_t j = 0;
  double sum = 0;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (!chosen[e]) continue;
    out[j] = static_cast<float>(e);
    out[o.used + j] = scores[e];
    sum += static_cast<double>(scores[e]);
    ++j;
  }
  const double factor = static_cast<double>(o.scale) / (o.normalize ? sum + 1e-20 : 1.0);
  for (std::int64_t i = 0; i < o.used; ++i)
    out[o.used + i] = static_cast<float>(static_cast<double>(out[o.used + i]) * factor);
}

}  // namespace

void RouteRunner::score(const op::Route& o, std::int64_t experts, const float* logits, const float* bias,
                        std::int64_t row) {
  const float* z = logits + row * experts;
  float* s = scores_.data() + row * experts;
  float* t = keys_.data() + row * experts;
  if (o.score == GateScore::kSoftmax) {
    float top = kLowest;
    for (std::int64_t e = 0; e < experts; ++e) top = std::max(top, z[e]);
    for (std::int64_t e = 0; e < experts; ++e) s[e] = z[e] - top;
    kernels_.exp(s, experts, s);
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += static_cast<double>(s[e]);
    for (std::int64_t e = 0; e < experts; ++e) s[e] = static_cast<float>(static_cast<double>(s[e]) / sum);
  } else {
    for (std::int64_t e = 0; e < experts; ++e) s[e] = -z[e];
    kernels_.exp(s, experts, s);
    for (std::int64_t e = 0; e < experts; ++e) s[e] = 1.f / (1.f + s[e]);
  }
  // Scores increase with logits, but rounding may make two of them equal: where nothing is added, logits decide.
  const bool by_score = bias != nullptr || o.groups > 1;
  for (std::int64_t e = 0; e < experts; ++e) t[e] = bias != nullptr ? s[e] + bias[e] : by_score ? s[e] : z[e];
}

RouteRunner::Scratch RouteRunner::scratch(int worker, std::size_t experts) {
  const auto at = static_cast<std::size_t>(worker);
  const auto sets = std::span(sets_).subspan(at * 3 * experts, 3 * experts);
  return {sets.first(experts), sets.subspan(experts, experts), sets.last(experts),
          std::span(floats_).subspan(at * experts, experts)};
}

void RouteRunner::choose_row(const op::Route& o, std::int64_t row, const Scratch& scratch, float* out) {
  const std::size_t width = scratch.allowed.size(), at = static_cast<std::size_t>(row) * width;
  choose(std::span(keys_).subspan(at, width), scratch.allowed, o.used, scratch.chosen);
  write_row(o, std::span(scores_).subspan(at, width), scratch.chosen, out + row * 2 * o.used);
}

void RouteRunner::run(const op::Route& o, std::int64_t experts, const float* logits, const float* bias,
                      std::span<const std::int64_t> runs, std::int64_t rows, float* out, const float* scale) {
  choose_rows(o, experts, logits, bias, runs, rows, out);
  if (scale == nullptr) return;
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const chosen = out + row * 2 * o.used;
    for (std::int64_t j = 0; j < o.used; ++j) chosen[o.used + j] *= scale[static_cast<std::size_t>(chosen[j])];
  }
}

void RouteRunner::choose_rows(const op::Route& o, std::int64_t experts, const float* logits, const float* bias,
                              std::span<const std::int64_t> runs, std::int64_t rows, float* out) {
  const auto width = static_cast<std::size_t>(experts);
  const auto workers = static_cast<std::size_t>(pool_.size());
  scores_.resize(static_cast<std::size_t>(rows) * width);
  keys_.resize(scores_.size());
  sets_.assign(3 * workers * width, 1);
  floats_.resize(workers * width);
  parallel_items(pool_, rows, 8 * experts, [&](std::int64_t row, int) { score(o, experts, logits, bias, row); });
  if (o.capacity > 0) {
    parallel(pool_, static_cast<std::int64_t>(runs.size()) - 1, [&](std::int64_t run, int worker) {
      const auto begin = static_cast<std::size_t>(runs[static_cast<std::size_t>(run)]),
                 end = static_cast<std::size_t>(runs[static_cast<std::size_t>(run) + 1]);
      const Scratch space = scratch(worker, width);
      pool_of_block(o, std::span(keys_).subspan(begin * width, (end - begin) * width), space.floats, space.all,
                    space.allowed);
      for (std::size_t row = begin; row < end; ++row) choose_row(o, static_cast<std::int64_t>(row), space, out);
    });
    return;
  }
  const auto groups = static_cast<std::size_t>(o.groups);
  parallel_items(pool_, rows, o.used * experts, [&](std::int64_t row, int worker) {
    const Scratch space = scratch(worker, width);
    if (groups > 1)
      limit_groups(o, std::span(keys_).subspan(static_cast<std::size_t>(row) * width, width),
                   space.floats.first(groups), space.chosen.first(groups), space.allowed);
    choose_row(o, row, space, out);
  });
}

}  // namespace dllm::cpu
