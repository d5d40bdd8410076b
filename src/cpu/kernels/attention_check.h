#pragma once
// Attention in all forms, for selftest.cpp.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/product_check.h"
#include "cpu/kernels/test_data.h"

namespace dllm::cpu::test {

class AttentionCheck : public ProductCheck {
 public:
  using ProductCheck::ProductCheck;

  /// Of the problems with values of every kind only one of `every`.
  void all_attention(int every) {
    for (std::int64_t dim : {8, 24, 32, 64, 72, 80, 96, 128, 200})
      for (TensorType type :
           {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0, TensorType::kQ4_0})
        if ((type != TensorType::kQ8_0 && type != TensorType::kQ4_0) || dim % 32 == 0) {
          Cache cache(*this, type, dim, 150);
          attention(cache);
          for (int kind = 0; kind < 4; ++kind)
            if (next_++ % every == 0) special_attention(type, dim, kind);
        }
  }

 private:
  /// K and V of one kv head.
  struct Cache {
    Cache(AttentionCheck& check, TensorType tensor_type, std::int64_t head_dim, std::int64_t count)
        : type(tensor_type),
          dim(head_dim),
          positions(count),
          row_bytes(cache_row_bytes(type, dim)),
          k(static_cast<std::size_t>(positions * row_bytes)),
          v(k) {
      for (std::int64_t p = 0; p < positions; ++p)
        set(check, p, random_floats(check.random_, dim), random_floats(check.random_, dim));
    }
    void set(AttentionCheck& check, std::int64_t p, const std::vector<float>& key, const std::vector<float>& value) {
      check.oracle_.encode_key(type, key.data(), dim, k.data() + p * row_bytes);
      check.oracle_.encode(type, value.data(), dim, v.data() + p * row_bytes);
    }
    TensorType type;
    std::int64_t dim, positions, row_bytes;
    std::vector<std::byte> k, v;
  };
  struct Queries {
    std::int64_t rows, group;
  };

  static void run(const KernelSet& set, AttentionForm form, AttentionArgs args, std::vector<float>& out) {
    alignas(64) static unsigned char scratch[attention_scratch_bytes(200)];
    args.form = form, args.out = out.data(), args.scratch = scratch;
    const std::int64_t end = args.end;
    for (; args.begin < end; args.begin = args.end) {
      args.end = std::min(end, args.begin + kAttentionQueries);
      set.attention(args);
    }
  }

  /// Every form of every set.
  void forms(const AttentionArgs& args, std::int64_t size) {
    const auto result = [&](const KernelSet& set, AttentionForm form) {
      std::vector<float> out(static_cast<std::size_t>(size), 7.f);
      run(set, form, args, out);
      return out;
    };
    const std::vector<float> f32 = result(oracle_, AttentionForm::kF32);
    const std::vector<float> bf16 = result(oracle_, AttentionForm::kChains);
    for (Tested& tested : sets_) {
      const KernelSet& set = *tested.set;
      if (!tested.only_super) {
        same(tested, "attention", f32, result(set, AttentionForm::kF32));
        same(tested, "attention (chains)", bf16, result(set, AttentionForm::kChains));
        if (set.bf16_dots()) same(tested, "attention (dots)", bf16, result(set, AttentionForm::kDots));
      }
      if (set.bf16_tiles) same(tested, "attention (tiles)", bf16, result(set, AttentionForm::kTiles));
    }
  }

  static AttentionArgs args_of(const Cache& cache, const std::vector<float>& q, Queries queries) {
    AttentionArgs args;
    args.type = cache.type, args.k = cache.k.data(), args.v = cache.v.data(), args.position_bytes = cache.row_bytes;
    args.head_dim = cache.dim, args.group = queries.group, args.scale = 0.3f, args.q = q.data();
    args.row_stride = queries.group * cache.dim, args.end = queries.rows * queries.group;
    return args;
  }

  /// Rows and groups that fill, and do not fill, every width of query vectors; causal limits of every kind.
  void attention(const Cache& cache) {
    const KeyRange ranges[] = {{0, 3}, {5, 38}, {60, 66}, {130, 150}};
    const std::vector<std::int32_t> all(60, 1000), causal = {1, 2, 30, 31, 63, 64, 65, 66, 131, 140, 150};
    for (const Queries queries : {Queries{1, 1}, {3, 1}, {5, 7}, {11, 1}, {11, 3}, {60, 1}}) {
      const std::vector<float> q = random_floats(random_, queries.rows * queries.group * cache.dim, 2.f);
      for (std::int64_t count : {0, 1, 2, 4})
        for (const std::vector<std::int32_t>& limits : {all, causal}) {
          if (static_cast<std::int64_t>(limits.size()) < queries.rows) continue;
          AttentionArgs args = args_of(cache, q, queries);
          args.ranges = ranges, args.range_count = count, args.limits = limits.data();
          forms(args, static_cast<std::int64_t>(q.size()));
        }
    }
  }

  /// A value of a random exponent; of kind 2 and 3 also infinite or not a number.
  float special(int kind) {
    const std::int64_t choice = random_.below(kind >= 2 ? 40 : 12);
    if (kind >= 2 && choice == 0) return std::numeric_limits<float>::quiet_NaN();
    if (kind >= 2 && choice == 1) return -std::numeric_limits<float>::infinity();
    if (choice < 4) return 0.f;
    const auto exponent = static_cast<int>(kind % 2 == 0 ? random_.below(9) - 4 : random_.below(250) - 125);
    return std::ldexp(random_.unit(), exponent);
  }
  std::vector<float> specials(std::int64_t n, int kind) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = special(kind);
    return values;
  }

  /// Outliers, tiny and huge values, infinities and NaN in some keys, values and queries; random ranges and limits.
  void special_attention(TensorType type, std::int64_t dim, int kind) {
    const std::int64_t positions = 1 + random_.below(300);
    Cache cache(*this, type, dim, positions);
    for (std::int64_t p = 0; p < positions; ++p)
      if (random_.below(kind >= 2 ? 30 : 4) == 0) cache.set(*this, p, specials(dim, kind), specials(dim, kind));
    const Queries queries = {1 + random_.below(40), 1 + random_.below(5)};
    std::vector<float> q = random_floats(random_, queries.rows * queries.group * dim, 2.f);
    for (float& x : q)
      if (random_.below(20 * dim) == 0) x = special(kind);
    std::vector<KeyRange> ranges;
    for (std::int64_t p = random_.below(5); p < positions; p += random_.below(70)) {
      const std::int64_t begin = p;
      p = std::min(positions, p + 1 + random_.below(120));
      ranges.push_back({begin, p++});
    }
    std::vector<std::int32_t> limits;
    for (std::int64_t row = 0; row < queries.rows; ++row)
      limits.push_back(static_cast<std::int32_t>(kind % 2 == 0 ? random_.below(positions + 2) : positions));
    std::sort(limits.begin(), limits.end());
    AttentionArgs args = args_of(cache, q, queries);
    args.ranges = ranges.data(), args.range_count = static_cast<std::int64_t>(ranges.size());
    args.limits = limits.data();
    forms(args, static_cast<std::int64_t>(q.size()));
  }

  int next_ = 0;
};

}  // namespace dllm::cpu::test
