#include "cpu/expert_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/integers.h"
#include "base/parallel.h"
#include "cpu/activations.h"
#include "cpu/row_groups.h"
#include "cpu/super_rows.h"

namespace dllm::cpu {
namespace {

template <class T>
void copy_row(T* to, std::int64_t row, const T* from, std::int64_t source, std::int64_t count) {
  std::memcpy(to + row * count, from + source * count, static_cast<std::size_t>(count) * sizeof(T));
}

}  // namespace

void ExpertPairs::sort(const float* route, std::int64_t rows, std::int64_t used, std::int64_t experts) {
  const auto expert_of = [&](std::int64_t row, std::int64_t j) {
    return static_cast<std::size_t>(route[row * 2 * used + j]);
  };
  first_.assign(static_cast<std::size_t>(experts) + 1, 0);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < used; ++j) ++first_[expert_of(row, j) + 1];
  groups.clear();
  sixes = sixteens = 0;
  for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
    const std::int64_t count = first_[e + 1];
    if (count > 0) {
      groups.push_back({static_cast<std::int64_t>(e), first_[e], first_[e] + count, sixes, sixteens});
      sixes += ceil_div(count, kRowGroup);
      sixteens += ceil_div(count, kSuperRows);
    }
    first_[e + 1] += first_[e];
  }
  row_of.resize(static_cast<std::size_t>(rows * used));
  weight_of.resize(row_of.size());
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < used; ++j) {
      const auto pair = static_cast<std::size_t>(first_[expert_of(row, j)]++);
      row_of[pair] = static_cast<std::int32_t>(row);
      weight_of[pair] = route[(row * 2 + 1) * used + j];
    }
}

LinearArgs PairRows::gather(const LinearArgs& from, std::span<const std::int32_t> row_of, ThreadPool& pool) {
  LinearArgs args = from;
  const auto count = static_cast<std::int64_t>(row_of.size());
  const std::int64_t k = from.k;
  args.rows = count;
  if (from.operands == LinearOperands::kPlain) {
    memory_.reserve(bytes_of<float>(count * k));
    auto* to = memory_.as<float>();
    args.plain.x = to;
    parallel_items(pool, count, k,
                   [&](std::int64_t i, int) { copy_row(to, i, from.plain.x, row_of[static_cast<std::size_t>(i)], k); });
    return args;
  }
  const QuantizedRows& q = from.quantized;
  QuantizedRows& to = args.quantized = place_rows(memory_, count, k);
  to.regular = q.regular;
  const std::int64_t groups = k / kScaleBlock;
  parallel_items(pool, count, 2 * k, [&](std::int64_t i, int) {
    const std::int64_t row = row_of[static_cast<std::size_t>(i)];
    std::memcpy(to.values + i * to.stride, q.values + row * q.stride, static_cast<std::size_t>(k));
    copy_row(to.scales, i, q.scales, row, groups);
    copy_row(to.sums, i, q.sums, row, 2 * groups);
    copy_row(to.corrections, i, q.corrections, row, k / from.panels.format->group);
    if (from.panels.format->has_min) copy_row(to.offsets, i, q.offsets, row, groups);
    if (!q.regular) return;  // exponents are not added then
    copy_row(to.exponents, i, q.exponents, row, groups);
    copy_row(to.multiples, i, q.multiples, row, groups);
  });
  return args;
}

template <class Task>
void PairRows::each_group(std::int64_t size, std::int64_t k, const float* x, std::span<const std::int32_t> row_of,
                          const ExpertPairs& pairs, ThreadPool& pool, const Task& task) {
  if (!row_of.empty()) gathered_.reserve(bytes_of<float>(size * k * pool.size()));
  parallel(pool, static_cast<std::int64_t>(pairs.groups.size()), [&](std::int64_t g, int worker) {
    const ExpertGroup& group = pairs.groups[static_cast<std::size_t>(g)];
    for (std::int64_t pair = group.first, index = 0; pair < group.last; pair += size, ++index) {
      const std::int64_t count = std::min(size, group.last - pair);
      const float* from = x + pair * k;
      if (!row_of.empty()) {
        float* const rows = gathered_.as<float>() + worker * size * k;
        for (std::int64_t r = 0; r < count; ++r) copy_row(rows, r, x, row_of[static_cast<std::size_t>(pair + r)], k);
        from = rows;
      }
      task(group, index, from, count);
    }
  });
}

bool PairRows::fill(const KernelSet& kernels, RowForm form, std::int64_t k, const float* x,
                    std::span<const std::int32_t> row_of, const ExpertPairs& pairs, ThreadPool& pool) {
  const std::int64_t size = rows_of_group(form), stride = group_stride(form, k);
  memory_.reserve(bytes_of<float>((size == kRowGroup ? pairs.sixes : pairs.sixteens) * stride));
  auto* const to = memory_.as<float>();
  std::atomic<bool> regular{true};
  each_group(size, k, x, row_of, pairs, pool,
             [&](const ExpertGroup& group, std::int64_t index, const float* rows, std::int64_t count) {
               if (!kernels.interleave(form, rows, k, count, to + (group.first_of(form) + index) * stride))
                 regular.store(false, std::memory_order_relaxed);
             });
  return regular;
}

void PairRows::quantize_super(const KernelSet& kernels, const float* x, std::span<const std::int32_t> row_of,
                              const ExpertPairs& pairs, ThreadPool& pool, LinearArgs& args) {
  const SuperRows to = args.super_rows = place_super_rows(memory_, pairs.sixteens, args.k);
  args.rows = pairs.count();
  each_group(kSuperRows, args.k, x, row_of, pairs, pool,
             [&](const ExpertGroup& group, std::int64_t index, const float* rows, std::int64_t count) {
               for (std::int64_t s = 0; s < super_blocks(args.k); ++s)
                 kernels.quantize_super(rows, args.k, count, group.sixteen + index, s, to);
             });
}

void PairRows::interleave(const KernelSet& kernels, const PackedWeight& weight, const float* x,
                          std::span<const std::int32_t> row_of, const ExpertPairs& pairs, ThreadPool& pool,
                          LinearArgs& args) {
  args.rows = pairs.count();
  args.grouped.form = fast_form(kernels, weight);
  if (args.grouped.form == RowForm::kFloats || !fill(kernels, args.grouped.form, weight.k, x, row_of, pairs, pool)) {
    args.grouped.form = any_form(weight);
    fill(kernels, args.grouped.form, weight.k, x, row_of, pairs, pool);
  }
  args.grouped.groups = memory_.as<float>();
}

}  // namespace dllm::cpu
