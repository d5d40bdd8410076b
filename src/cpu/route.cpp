#include "cpu/route.h"

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "graph/expert_choice.h"

namespace dllm::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

}  // namespace

void RouteRunner::score(const op::Route& o, const RouteArgs& args, std::int64_t row) {
  const std::int64_t experts = args.experts;
  const float *z = args.logits + row * experts, *bias = args.bias;
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

void RouteRunner::choose_row(const op::Route& o, const RouteArgs& args, std::int64_t row, const Scratch& scratch) {
  const std::size_t width = scratch.allowed.size(), at = static_cast<std::size_t>(row) * width;
  choose_largest(std::span(keys_).subspan(at, width), scratch.allowed, o.used, scratch.chosen);
  write_choice(o, std::span(scores_).subspan(at, width), scratch.chosen,
               args.scale == nullptr ? std::span<const float>() : std::span(args.scale, width),
               std::span(args.out + row * 2 * o.used, 2 * static_cast<std::size_t>(o.used)));
}

void RouteRunner::run(const op::Route& o, const RouteArgs& args) {
  const std::int64_t experts = args.experts, rows = args.rows;
  const std::span<const std::int64_t> runs = args.runs;
  const auto width = static_cast<std::size_t>(experts);
  const auto workers = static_cast<std::size_t>(pool_.size());
  scores_.resize(static_cast<std::size_t>(rows) * width);
  keys_.resize(scores_.size());
  sets_.assign(3 * workers * width, 1);
  floats_.resize(workers * width);
  parallel_items(pool_, rows, 8 * experts, [&](std::int64_t row, int) { score(o, args, row); });
  if (o.capacity > 0) {
    parallel(pool_, static_cast<std::int64_t>(runs.size()) - 1, [&](std::int64_t run, int worker) {
      const auto begin = static_cast<std::size_t>(runs[static_cast<std::size_t>(run)]),
                 end = static_cast<std::size_t>(runs[static_cast<std::size_t>(run) + 1]);
      const Scratch space = scratch(worker, width);
      pool_of_block(o, std::span(keys_).subspan(begin * width, (end - begin) * width), space.floats, space.all,
                    space.allowed);
      for (std::size_t row = begin; row < end; ++row) choose_row(o, args, static_cast<std::int64_t>(row), space);
    });
    return;
  }
  const auto groups = static_cast<std::size_t>(o.groups);
  parallel_items(pool_, rows, o.used * experts, [&](std::int64_t row, int worker) {
    const Scratch space = scratch(worker, width);
    if (groups > 1)
      limit_groups(o, std::span(keys_).subspan(static_cast<std::size_t>(row) * width, width),
                   space.floats.first(groups), space.chosen.first(groups), space.allowed);
    choose_row(o, args, row, space);
  });
}

}  // namespace dllm::cpu
