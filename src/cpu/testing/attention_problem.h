#pragma once

#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "numerics/tensor_type.h"

// Attention of one kv head for tests, and its definition in double precision.

namespace dllm::cpu::test {

inline constexpr TensorType kTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                        TensorType::kQ4_0};
inline constexpr std::int32_t kEverything = std::numeric_limits<std::int32_t>::max();

/// Random K and V of one kv head, and queries.
struct Problem {
  Problem(TensorType cache_type, std::int64_t dim, std::int64_t n, std::int64_t row_count, std::int64_t heads,
          std::uint64_t seed, bool plain = false)
      : type(cache_type), plain_keys(plain), head_dim(dim), positions(n), rows(row_count), group(heads) {
    Random random(seed);
    const KernelSet& set = *find_kernel_set("scalar");
    row_bytes = codec(type).row_bytes(dim);
    k.resize(static_cast<std::size_t>(positions * row_bytes));
    v = k;
    for (std::int64_t p = 0; p < positions; ++p) {
      (plain ? set.encode : set.encode_key)(type, random_floats(random, dim).data(), dim, k.data() + p * row_bytes);
      set.encode(type, random_floats(random, dim).data(), dim, v.data() + p * row_bytes);
    }
    q = random_floats(random, rows * group * dim, 3.f);
    limits.assign(static_cast<std::size_t>(rows), kEverything);
  }

  /// Queries [begin, end); the others of the result stay at `untouched`.
  std::vector<float> run(const KernelSet& set, const std::vector<KeyRange>& ranges, std::int64_t begin,
                         std::int64_t end, float untouched = 7.f) const {
    std::vector<float> out(q.size(), untouched);
    const std::unique_ptr<std::byte, void (*)(void*)> scratch(
        static_cast<std::byte*>(std::aligned_alloc(64, attention_scratch_bytes(head_dim))), std::free);
    AttentionArgs args;
    args.form = form, args.type = type, args.k = k.data(), args.v = v.data(), args.position_bytes = row_bytes;
    args.plain_keys = plain_keys;
    args.head_dim = head_dim, args.group = group, args.scale = scale;
    args.ranges = ranges.data(), args.range_count = static_cast<std::int64_t>(ranges.size());
    args.limits = limits.data(), args.q = q.data(), args.out = out.data(), args.row_stride = group * head_dim;
    args.scratch = scratch.get();
    for (args.begin = begin; args.begin < end; args.begin = args.end) {
      args.end = std::min(end, args.begin + kAttentionQueries);
      set.attention(args);
    }
    return out;
  }
  std::vector<float> run(const KernelSet& set, const std::vector<KeyRange>& ranges) const {
    return run(set, ranges, 0, rows * group);
  }

  std::vector<double> expected(const std::vector<KeyRange>& ranges, std::int64_t query) const {
    const auto decode = [&](const std::vector<std::byte>& from, std::int64_t p) {
      std::vector<float> row(static_cast<std::size_t>(head_dim));
      codec(type).dequantize(from.data() + p * row_bytes, row.data(), head_dim);
      return row;
    };
    std::vector<double> out(static_cast<std::size_t>(head_dim), 0), scores;
    std::vector<std::int64_t> visible;
    for (const KeyRange& range : ranges)
      for (std::int64_t p = range.begin; p < range.end; ++p) {
        if (p >= limits[static_cast<std::size_t>(query / group)]) continue;
        std::vector<float> key = decode(k, p);
        if (type == TensorType::kQ4_0 && !plain_keys) unrotate(key);
        double s = 0;
        for (std::size_t d = 0; d < key.size(); ++d)
          s += static_cast<double>(q[static_cast<std::size_t>(query * head_dim) + d]) * static_cast<double>(key[d]);
        visible.push_back(p);
        scores.push_back(s * static_cast<double>(scale));
      }
    if (visible.empty()) return out;
    const double top = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double s : scores) total += std::exp(s - top);
    for (std::size_t i = 0; i < visible.size(); ++i) {
      const std::vector<float> value = decode(v, visible[i]);
      for (std::size_t d = 0; d < value.size(); ++d)
        out[d] += std::exp(scores[i] - top) / total * static_cast<double>(value[d]);
    }
    return out;
  }

  /// Keys of Q4_0 are H k / 8 by blocks of 32, and H H = 32.
  static void unrotate(std::vector<float>& key) {
    for (std::size_t block = 0; block < key.size(); block += 32) {
      float turned[32];
      for (unsigned i = 0; i < 32; ++i) {
        double sum = 0;
        for (unsigned j = 0; j < 32; ++j)
          sum += (std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(key[block + j]);
        turned[i] = static_cast<float>(sum / 4);
      }
      std::copy_n(turned, 32, key.begin() + static_cast<std::ptrdiff_t>(block));
    }
  }

  TensorType type;
  AttentionForm form = AttentionForm::kF32;
  bool plain_keys;
  std::int64_t head_dim, positions, rows, group, row_bytes = 0;
  float scale = 0.37f;
  std::vector<std::byte> k, v;
  std::vector<float> q;
  std::vector<std::int32_t> limits;
};

/// The forms of attention that a set computes.
inline std::vector<AttentionForm> forms_of(const KernelSet& set) {
  std::vector<AttentionForm> forms = {AttentionForm::kF32, AttentionForm::kChains};
  if (set.bf16_dots()) forms.push_back(AttentionForm::kDots);
  if (set.bf16_tiles) forms.push_back(AttentionForm::kTiles);
  return forms;
}

inline bool same_bits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
}

/// Random visible positions as the smallest number of ranges.
inline std::vector<KeyRange> random_ranges(std::int64_t positions) {
  std::vector<KeyRange> ranges;
  std::int64_t next = *rc::gen::inRange<std::int64_t>(0, 5);
  while (next < positions) {
    const std::int64_t end = std::min(positions, next + *rc::gen::inRange<std::int64_t>(1, 90));
    ranges.push_back({next, end});
    next = end + *rc::gen::inRange<std::int64_t>(1, 70);
  }
  return ranges;
}

}  // namespace dllm::cpu::test
