// No include guard: compiled once per instruction set. Kernels that see one row at a time.

namespace dllm::cpu::DLLM_ISA {
namespace {

inline int count_of(std::int64_t i, std::int64_t n) { return static_cast<int>(n - i < 16 ? n - i : 16); }

void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) {
  F32 squares = set1(0.f);
  for (std::int64_t i = 0; i < n; i += 16) {
    const F32 v = load_n(x + i, count_of(i, n));
    squares = fma(v, v, squares);
  }
  const float mean = reduce_add(squares) / static_cast<float>(n);
  const F32 inverse = set1(1.f / __builtin_sqrtf(mean + eps));
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    // Normalise first, then the gain: the order of the reference (dllm-reference A.2).
    store_n(out + i, mul(mul(load_n(x + i, count), inverse), load_n(gain + i, count)), count);
  }
}

// Products and sums are rounded separately, as PyTorch's q * cos + rotate_half(q) * sin does. Without contraction a
// plain loop gives the same bits in every set.
void rope(const RopeArgs& args, const float* x, float* out) {
  const std::int64_t half = args.dims / 2;
  const std::int64_t step = args.interleaved ? 2 : 1, distance = args.interleaved ? 1 : half;
  for (std::int64_t h = 0; h < args.heads; ++h, x += args.head_dim, out += args.head_dim) {
    for (std::int64_t j = 0; j < half; ++j) {
      const float a = x[j * step], b = x[j * step + distance];
      out[j * step] = a * args.cos[j] - b * args.sin[j];
      out[j * step + distance] = b * args.cos[j] + a * args.sin[j];
    }
    if (out != x)
      for (std::int64_t j = args.dims; j < args.head_dim; ++j) out[j] = x[j];
  }
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    const F32 g = load_n(gate + i, count);
    const F32 silu = div(g, add(set1(1.f), exp(sub(set1(0.f), g))));
    store_n(out + i, mul(silu, load_n(up + i, count)), count);
  }
}

void add_rows(const float* a, const float* b, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    store_n(out + i, add(load_n(a + i, count), load_n(b + i, count)), count);
  }
}

void to_half(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const int count = count_of(i, n);
    std::uint16_t words[16];
    store_half(words, load_n(x + i, count));
    __builtin_memcpy(out + i, words, static_cast<std::size_t>(count) * 2);
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
