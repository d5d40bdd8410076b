// No include guard: compiled once per instruction set.
//
// One query head over its visible keys: scores, maximum, exponentials and their sum, then the values. Everything runs
// over the visible keys in ascending position, so a result is a function of the visible set alone: cached or not, alone
// or in a batch, with one thread or many, the bits are the same. (A flash-style single pass would rescale by running
// maxima, which keeps that property only for a fixed chunking of the keys.)

namespace dllm::cpu::DLLM_ISA {
namespace {

struct FloatCache {
  using Element = float;
  static F32 load_row(const float* p) { return load(p); }
  static F32 load_tail(const float* p, int n) { return load_n(p, n); }
};
struct HalfCache {
  using Element = std::uint16_t;
  static F32 load_row(const std::uint16_t* p) { return load_half(p); }
  static F32 load_tail(const std::uint16_t* p, int n) {
    std::uint16_t words[16] = {};
    __builtin_memcpy(words, p, static_cast<std::size_t>(n) * 2);
    return load_half(words);
  }
};

template <class Cache>
inline float dot(const float* q, const typename Cache::Element* k, std::int64_t head_dim) {
  F32 sum = set1(0.f);
  std::int64_t i = 0;
  for (; i + 16 <= head_dim; i += 16) sum = fma(load(q + i), Cache::load_row(k + i), sum);
  if (i < head_dim) {
    const int n = static_cast<int>(head_dim - i);
    sum = fma(load_n(q + i, n), Cache::load_tail(k + i, n), sum);
  }
  return reduce_add(sum);
}

/// exp(scores - maximum) in place over `padded` lanes (the padding holds -inf); returns the sum.
inline float softmax_numerators(float* scores, std::int64_t padded) {
  F32 top = load(scores);
  for (std::int64_t i = 16; i < padded; i += 16) top = max(load(scores + i), top);
  const F32 offset = set1(reduce_max(top));
  F32 sum = set1(0.f);
  for (std::int64_t i = 0; i < padded; i += 16) {
    const F32 e = exp(sub(load(scores + i), offset));
    store(scores + i, e);
    sum = add(sum, e);
  }
  return reduce_add(sum);
}

/// out[0 .. kVectors * 16) of the weighted sum of values; `width` < that only in the last, partial slice.
template <class Cache, int kVectors>
inline void mix_values(const AttentionArgs& args, std::int64_t dim, float inverse) {
  const auto* v = static_cast<const typename Cache::Element*>(args.v) + dim;
  const int tail = static_cast<int>(args.head_dim - dim < 16 ? args.head_dim - dim : 16);
  F32 sum[kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) sum[j] = set1(0.f);
  const float* p = args.scores;
  for (std::int64_t r = 0; r < args.range_count; ++r)
    for (std::int64_t i = args.ranges[r].begin; i < args.ranges[r].end; ++i, ++p) {
      const F32 weight = set1(*p);
      if (kVectors == 1 && tail < 16) {
        sum[0] = fma(weight, Cache::load_tail(v + i * args.stride, tail), sum[0]);
      } else {
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) sum[j] = fma(weight, Cache::load_row(v + i * args.stride + 16 * j), sum[j]);
      }
    }
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j)
    store_n(args.out + dim + 16 * j, mul(sum[j], set1(inverse)), kVectors == 1 ? tail : 16);
}

template <class Cache>
void attend(const AttentionArgs& args) {
  const auto* k = static_cast<const typename Cache::Element*>(args.k);
  std::int64_t keys = 0;
  for (std::int64_t r = 0; r < args.range_count; ++r)
    for (std::int64_t i = args.ranges[r].begin; i < args.ranges[r].end; ++i)
      args.scores[keys++] = dot<Cache>(args.q, k + i * args.stride, args.head_dim) * args.scale;
  if (keys == 0) {
    for (std::int64_t i = 0; i < args.head_dim; ++i) args.out[i] = 0.f;
    return;
  }
  const std::int64_t padded = (keys + 15) / 16 * 16;
  for (std::int64_t i = keys; i < padded; ++i) args.scores[i] = -__builtin_inff();
  const float inverse = 1.f / softmax_numerators(args.scores, padded);
  std::int64_t dim = 0;
  for (; dim + 64 <= args.head_dim; dim += 64) mix_values<Cache, 4>(args, dim, inverse);
  for (; dim < args.head_dim; dim += 16) mix_values<Cache, 1>(args, dim, inverse);
}

void attention(const AttentionArgs& args) {
  if (args.half) return attend<HalfCache>(args);
  attend<FloatCache>(args);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
