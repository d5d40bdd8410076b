// Compares every kernel set that this machine supports with the scalar set, bit for bit, over shapes with every kind of
// remainder. A plain program, so that it cross-compiles with nothing but a C++ runtime and runs under qemu-user.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cpu/kernels/against_oracle.h"
#include "cpu/kernels/attention_check.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"

namespace dllm::cpu {

int check_bf16_tiles(bool on_processor);

namespace amx_emulated {
KernelSet kernels();
}

namespace {

using test::Tested;

// With sanitizers, the kernels and the emulated tiles are thirty times slower, and about as slow in WebAssembly, whose
// scalar set has no fused multiply-add: then only every fifth shape of `super` is tested, which still covers every
// length of K and every number of rows but the largest. Plain builds and qemu test all.
#ifdef DLLM_SANITIZED
constexpr int kEvery = 5;
#else
constexpr int kEvery = 1;
#endif

class Check : public test::AttentionCheck {
 public:
  using AttentionCheck::AttentionCheck;

  void all() {
    for (std::int64_t n : {1, 5, 16, 17, 24, 64, 100, 1040}) rows(n);
    all_attention(kEvery);
    for (std::int64_t k : {1, 7, 16, 33, 512, 530, 1100})
      for (std::int64_t m : {1, 2, 5, 6, 7, 12, 13, 31}) float_linear(k, m);
    for (const test::BlockLayout& layout : test::kBlockLayouts)
      for (std::int64_t blocks : {1, 2, 5})
        for (std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 16, 20, 33}) int8_linear(layout, blocks, m);
    for (const test::BlockLayout& layout : test::kBlockLayouts)  // more than one block of K
      for (std::int64_t k : {1024, 1280, 2304})
        for (std::int64_t m : {7, 19, 46}) int8_linear(layout, k / layout.elems, m);
    if (kEvery == 1)  // more rows than scratch keeps sums of
      for (const test::BlockLayout& layout : test::kBlockLayouts)
        if (layout.type == TensorType::kQ5_K || layout.type == TensorType::kQ8_0)
          int8_linear(layout, 2304 / layout.elems, 259);
    all_super();
    // Tiles of floats: several groups of rows and blocks of K; at last more than a chunk, whose rows exceed L2.
    for (TensorType type : {TensorType::kBF16, TensorType::kF16}) {
      for (std::int64_t k : {32, 256, 544})
        for (std::int64_t m : {1, 15, 17, 32, 33, 70}) float_linear(k, m, type);
      if (kEvery == 1) float_linear(2048, 270, type);
    }
    special_values();
  }

  void all_super() {
    int next = 0;
    for (const test::BlockLayout& layout : test::kBlockLayouts)
      if (runs_super(layout.type))
        for (std::int64_t k : {32, 64, 96, 160, 512, 544, 1120})
          for (std::int64_t m : {1, 4, 5, 16, 17, 33, 260})
            if (m < 260 || (k == 544 && layout.type == TensorType::kQ4_0))
              if (next++ % kEvery == 0) super_linear(layout, k, m);
  }

 private:
  void rows(std::int64_t n) {
    const std::vector<float> a = random_floats(random_, n, 3.f), b = random_floats(random_, n, 3.f);
    compare("rms_norm", n, [&](const KernelSet& s, float* out) { s.rms_norm(a.data(), b.data(), 1e-5f, n, out); });
    std::vector<float> signs;
    for (int i = 0; i < 12 * 12; ++i) signs.push_back((i * i / 5) % 2 == 0 ? 1.f : -1.f);
    for (const HadamardArgs& args :
         {HadamardArgs{128, 1, nullptr, 0.3f}, {4, 1, nullptr, 0.5f}, {48, 12, signs.data(), 0.7f}}) {
      const std::int64_t whole = n / args.order * args.order;
      compare("hadamard", whole, [&](const KernelSet& s, float* out) { s.hadamard(args, a.data(), whole, out); });
    }
    compare("swiglu", n, [&](const KernelSet& s, float* out) { s.swiglu(a.data(), b.data(), n, out); });
    compare("geglu", n, [&](const KernelSet& s, float* out) { s.geglu(a.data(), b.data(), n, out); });
    compare("softcap", n, [&](const KernelSet& s, float* out) { s.softcap(a.data(), 2.f, n, out); });
    compare("add", n, [&](const KernelSet& s, float* out) { s.add(a.data(), b.data(), n, out); });
    compare("add_scaled", n, [&](const KernelSet& s, float* out) { s.add_scaled(a.data(), b[0], n, out); });
    compare("exp", n, [&](const KernelSet& s, float* out) { s.exp(a.data(), n, out); });
    compare_result("to_half", [&](const KernelSet& s) {
      std::vector<std::uint16_t> half(static_cast<std::size_t>(n));
      s.to_half(a.data(), n, half.data());
      return half;
    });
    encode(TensorType::kBF16, a);
    for (bool interleaved : {false, true}) {
      const std::int64_t heads = 3, dim = (n + 1) / 2 * 2 + 4, dims = dim - 4;
      const std::vector<float> x = random_floats(random_, heads * dim);
      compare("rope", heads * dim, [&](const KernelSet& s, float* out) {
        s.rope({heads, dim, dims, interleaved, a.data(), b.data()}, x.data(), out);
      });
    }
    const std::int64_t k = (n + 31) / 32 * 32;
    for (float amplitude : {0.1f, 20.f, 900.f}) reductions(n, amplitude);
    quantize(random_floats(random_, k, 100.f));
    encode(TensorType::kQ8_0, random_floats(random_, k, 100.f));
    encode(TensorType::kQ4_0, random_floats(random_, k, 100.f));
  }

  void reductions(std::int64_t n, float amplitude) {
    std::vector<float> z = random_floats(random_, n, amplitude);
    for (std::size_t i = 0; i < z.size(); ++i) {
      if (random_.below(7) == 0) z[i] = z[static_cast<std::size_t>(random_.below(n))];  // ties
      if (random_.below(9) == 0) z[i] = std::numeric_limits<float>::quiet_NaN();
      if (random_.below(9) == 0) z[i] = -std::numeric_limits<float>::infinity();
    }
    DrawArgs args;
    args.logits = z.data(), args.count = n, args.inverse_temperature = 1.7, args.seed = random_.bits();
    args.first_token = 1024, args.position = 77, args.step = 5, args.stream = 12;
    compare_result("searches", [&](const KernelSet& s) {
      std::vector<std::int64_t> found = {s.arg_max(z.data(), n)};
      for (float bound : {-amplitude, 0.f, amplitude / 2})
        for (std::int64_t at = s.find_at_least(z.data(), 0, n, bound); at < n;
             at = s.find_at_least(z.data(), at + 1, n, bound))
          found.push_back(at);
      for (double bound : {-30.0, 0.0, 5.0, 1.7 * static_cast<double>(amplitude)})
        for (std::int64_t at = s.next_draw(args, 0, bound); at < n; at = s.next_draw(args, at + 1, bound))
          found.push_back(at);
      found.resize(static_cast<std::size_t>(8 * n), -2);
      return found;
    });
    compare_result("exp_sums", [&](const KernelSet& s) {
      std::vector<double> sums(2);
      s.exp_sums(z.data(), n, amplitude, 1.3, sums.data());
      return sums;
    });
  }

  void encode(TensorType type, const std::vector<float>& x) {
    const auto bytes_of = [&](const KernelSet& s, auto function) {
      std::vector<unsigned char> bytes(x.size() * 4);
      (s.*function)(type, x.data(), static_cast<std::int64_t>(x.size()), reinterpret_cast<std::byte*>(bytes.data()));
      return bytes;
    };
    const char* const what = type == TensorType::kBF16   ? "encode bf16"
                             : type == TensorType::kQ8_0 ? "encode q8_0"
                                                         : "encode q4_0";
    compare_result(what, [&](const KernelSet& s) { return bytes_of(s, &KernelSet::encode); });
    compare_result("encode_key", [&](const KernelSet& s) { return bytes_of(s, &KernelSet::encode_key); });
  }

  void quantize(const std::vector<float>& x) {
    for (bool exact : {false, true}) quantize(x, exact);
  }
  void quantize(const std::vector<float>& x, bool exact) {
    struct Row {
      std::vector<std::int8_t> values;
      std::vector<float> scales;
      std::vector<std::int32_t> sums;
    };
    const auto quantized = [&](const KernelSet& s) {
      Row row{std::vector<std::int8_t>(x.size()), std::vector<float>(x.size() / 32),
              std::vector<std::int32_t>(x.size() / 16)};
      s.quantize_row(x.data(), static_cast<std::int64_t>(x.size()), exact, row.values.data(), row.scales.data(),
                     row.sums.data());
      return row;
    };
    const Row expected = quantized(oracle_);
    for (Tested& tested : sets_) {
      if (tested.only_super) continue;
      const Row actual = quantized(*tested.set);
      same(tested, "quantize_row values", expected.values, actual.values);
      same(tested, "quantize_row scales", expected.scales, actual.scales);
      same(tested, "quantize_row sums", expected.sums, actual.sums);
    }
  }

  void int8_linear(const test::BlockLayout& layout, std::int64_t blocks, std::int64_t m) {
    const std::int64_t k = blocks * layout.elems, n = 1 + random_.below(100);
    std::vector<std::byte> weight = random_blocks(random_, layout, n * k);
    if (m == 14 && layout.half0 >= 0) {  // a scale of zero, where pair tiles may have tables of scales
      const std::int64_t block = random_.below(n * blocks);
      std::fill_n(weight.begin() + static_cast<std::ptrdiff_t>(block * layout.bytes + layout.half0), 2, std::byte{0});
    }
    test::TestMatrix matrix(layout.type, weight, n, k);
    std::vector<float> x = random_floats(random_, m * k, 5.f);
    for (int kind = 0; kind < 3; ++kind) {
      if (kind == 1) std::fill_n(x.begin(), 32, 0.f);                            // a block of zeros
      if (kind == 2) x[static_cast<std::size_t>(random_.below(m * k))] = 1e30f;  // scales that forbid pair tiles
      test::TestRows rows(oracle_, x, m, matrix.format().exact_rows);
      LinearArgs args;
      matrix.add_to(args);
      args.k = k, args.rows = m, args.quantized = rows.view(matrix.format());
      linear(args, n, kind == 0 ? "linear (int8)" : kind == 1 ? "linear (int8, zeros)" : "linear (int8, wide)");
    }
  }

  /// The whole product, and the rows from the middle on, which begin within a group.
  void super_linear(const test::BlockLayout& layout, std::int64_t k, std::int64_t m) {
    const std::int64_t n = 1 + random_.below(m < 16 || m == 260 ? 300 : 50);  // more than a chunk of tiles
    const std::vector<std::byte> weight = random_blocks(random_, layout, (n * k + layout.elems - 1) / 256 * 256 + 256);
    const std::vector<std::byte> rows(weight.begin(), weight.begin() + n * (k / layout.elems) * layout.bytes);
    test::TestSuperMatrix matrix(layout.type, rows, n, k);
    std::vector<float> x = random_floats(random_, m * k, 5.f);
    if (random_.below(3) == 0) std::fill_n(x.begin(), k < 512 ? k : 512, 0.f);
    if (random_.below(3) == 0) x[static_cast<std::size_t>(random_.below(m * k))] = 1e30f;
    test::TestSuperRows expected(oracle_, x, m);
    LinearArgs args;
    matrix.add_to(args);
    args.k = k, args.rows = m, args.n = n, args.super_rows = expected.view();
    const LinearArgs oracle = args;
    for (Tested& tested : sets_) {
      test::TestSuperRows own(*tested.set, x, m);
      same(tested, "quantize_super values", expected.values(), own.values());
      same(tested, "quantize_super scales", expected.scales(), own.scales());
      same(tested, "quantize_super sums", expected.sums(), own.sums());
    }
    compare_rows(oracle, n, [&](Tested& tested, auto check) {
      test::TestSuperRows own(*tested.set, x, m);
      args.super_rows = own.view();
      check("linear (super)", args);
    });
  }

  void special_values() {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> x = {0.f,    -0.f,  inf,    -inf,    nan,     1e-45f, 88.7f, 88.8f, -87.f, -103.f, -103.9f,
                            -104.f, 1e30f, -1e30f, 65504.f, 65520.f, 6e-8f,  3e-8f, 2.5f,  -2.5f, 0.5f,   -104.5f};
    for (int i = 0; i < 2000; ++i) x.push_back(random_.unit() * 110.f);
    while (x.size() % 32 != 0) x.push_back(0.f);
    const auto n = static_cast<std::int64_t>(x.size());
    compare("exp of special values", n, [&](const KernelSet& s, float* out) { s.exp(x.data(), n, out); });
    compare("swiglu of special values", n,
            [&](const KernelSet& s, float* out) { s.swiglu(x.data(), x.data(), n, out); });
    compare("geglu of special values", n, [&](const KernelSet& s, float* out) { s.geglu(x.data(), x.data(), n, out); });
    compare("softcap of special values", n, [&](const KernelSet& s, float* out) { s.softcap(x.data(), 30.f, n, out); });
    quantize(x);
    encode(TensorType::kBF16, x);
    encode(TensorType::kQ8_0, x);
    encode(TensorType::kQ4_0, x);
    std::vector<float> halves(x.begin(), x.end());  // ties and ends of float16
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint32_t>(i) << 16 | 0x0fffu | static_cast<std::uint32_t>(i & 1) << 12;
      float f;
      std::memcpy(&f, &bits, 4);
      if (f == f) halves.push_back(f);
    }
    compare_result("to_half of special values", [&](const KernelSet& s) {
      std::vector<std::uint16_t> half(halves.size());
      s.to_half(halves.data(), static_cast<std::int64_t>(halves.size()), half.data());
      for (std::size_t i = 0; i < halves.size(); ++i)
        if (halves[i] != halves[i]) half[i] = 0;
      return half;
    });
    encode(TensorType::kBF16, halves);
    // Ties of the rounding to int8: with a maximum of 127 the scale is 1.
    std::vector<float> ties(32, 0.f);
    ties[0] = 127.f;
    for (std::size_t i = 1; i < 32; ++i) ties[i] = static_cast<float>(i) - 16.5f;
    quantize(ties);
    encode(TensorType::kQ8_0, ties);
    encode(TensorType::kQ4_0, ties);
  }
};

}  // namespace
}  // namespace dllm::cpu

int main() {
  using namespace dllm::cpu;
  // In addition to this machine's sets, the kernels for matrix tiles over emulated ones.
  const KernelSet emulated = amx_emulated::kernels();
  std::vector<Tested> sets = {{&emulated, true}};
  KernelSetEntry listed[kMaxKernelSets];
  const int count = list_kernel_sets(listed);
  for (int i = 0; i < count; ++i)
    if (listed[i].available)
      sets.push_back({listed[i].set, false});
    else
      std::printf("%-12s not available here\n", listed[i].set->name);
  Check check(*find_kernel_set("scalar"), std::move(sets));
  check.all();
  const auto has_tiles = [](const Tested& tested) { return !tested.only_super && tested.set->bf16_tiles; };
  int failures = check_bf16_tiles(std::any_of(check.sets().begin(), check.sets().end(), has_tiles));
  for (const Tested& tested : check.sets()) {
    std::printf("%-12s %d cases, %d differ from scalar\n", tested.set->name, tested.cases, tested.failures);
    failures += tested.failures;
  }
  return failures == 0 ? 0 : 1;
}
