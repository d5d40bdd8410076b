#include "npu_core/machine/matrix_unit.h"

#include <fmt/format.h>

#include "npu_core/machine/fixed_product.h"
#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab;
using test::set;

constexpr MxFormat kInt8{MxElement::kInt8, MxRule::kOcp, 8};

/// Matrix in HBM at 0, MLEN wide, loaded into tile 0.
std::string load_tile(std::uint32_t scale) {
  return set("gp15", scale) + "C_SET_SCALE_REG gp15\nC_SET_ADDR_REG a0, gp0, gp0\nH_PREFETCH_M gp0, gp0, a0, 0, 0\n";
}

struct Case {
  MxFormat input, matrix;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto format = [](MxElement element, MxRule rule, int block) { return MxFormat{element, rule, block}; };
  for (const int block : {8, 16}) {
    all.push_back({format(MxElement::kInt8, MxRule::kOcp, 8), format(MxElement::kInt4, MxRule::kOcp, block)});
    all.push_back({format(MxElement::kInt8, MxRule::kPlena, block), format(MxElement::kInt4, MxRule::kPlena, 8)});
    all.push_back(
        {format(MxElement::kInt8, MxRule::kOcp, block), format(MxElement::kInt8, MxRule::kPlenaSymmetric, block)});
    for (const MxElement element : {MxElement::kE2M1, MxElement::kE2M3, MxElement::kE3M2, MxElement::kE4M3}) {
      all.push_back({format(MxElement::kInt8, MxRule::kOcp, block), format(element, MxRule::kOcp, 16)});
      all.push_back({format(element, MxRule::kOcp, block), format(element, MxRule::kOcp, block)});
    }
  }
  return all;
}

/// Values whose exact products and sums are doubles, so that the reference needs no rounding.
struct Tile {
  std::vector<float> x, w;  ///< as read by the unit
};

class MatrixFormats : public testing::TestWithParam<Case> {
 protected:
  Lab lab_{config()};
  Tile tile_;

  static MachineConfig config() {
    MachineConfig config = Lab::small();
    config.matrix_input = GetParam().input;
    config.weight = GetParam().matrix;
    return config;
  }

  std::uint32_t fill(float spread) {
    std::vector<float> w = test::normals(256, 11);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] *= std::exp2(spread * static_cast<float>(i / 16 % 5));
    tile_.w = test::through(GetParam().matrix, w);
    tile_.x.clear();
    for (int row = 0; row < 4; ++row) {
      const auto x = test::normals(16, 20 + static_cast<unsigned>(row));
      lab_.set_row(static_cast<std::uint64_t>(row) * 32, x);
      const auto seen = test::through(GetParam().input, x);
      tile_.x.insert(tile_.x.end(), seen.begin(), seen.end());
    }
    return lab_.put_tensor(0, GetParam().matrix, w);
  }

  double dot(std::size_t row, std::size_t column, bool transposed) const {
    double sum = 0;
    for (std::size_t k = 0; k < 16; ++k)
      sum += static_cast<double>(tile_.x[row * 16 + k]) *
             static_cast<double>(tile_.w[transposed ? column * 16 + k : k * 16 + column]);
    return sum;
  }
};

TEST_P(MatrixFormats, ProductsAreExactWithinTheWindow) {
  const std::uint32_t scale = fill(0.0f);
  // Column block 2 of the tile, in both of PLENA's conventions; row block 2 for the transposed form.
  lab_.run(load_tile(scale) + set("gp1", 8) + set("gp2", 0) + set("gp3", 1024) + set("gp4", 8 * 16) + set("gp5", 2048) +
           set("gp6", 3072) +
           "M_MM 0, gp1, gp2\nM_SUM\nM_MM_WO gp3, 0, 0\nM_MM 0, gp4, gp2\nM_MM_WO gp5, 0, 0\n"
           "M_TMM 0, gp2, gp4\nM_MM_WO gp6, 0, 0\n");
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(lab_.row(1024 + i * 32 + j, 1)[0], test::bf16_round(dot(i, 8 + j, false)));
      EXPECT_EQ(lab_.row(2048 + i * 32 + j, 1)[0], test::bf16_round(dot(i, 8 + j, false)));
      EXPECT_EQ(lab_.row(3072 + i * 32 + j, 1)[0], test::bf16_round(dot(i, 8 + j, true)));
    }
}

TEST_P(MatrixFormats, BeyondTheWindowTheErrorIsBelowItsLastBit) {
  const std::uint32_t scale = fill(6.0f);
  const auto window = matrix_window(GetParam().input, GetParam().matrix, lab_.state().config.contraction_bits);
  ASSERT_TRUE(window.has_value());
  lab_.run(load_tile(scale) + set("gp3", 1024) + "M_MM 0, gp0, gp0\nM_MM_WO gp3, 0, 0\n");
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 4; ++j) {
      double largest = 0;  // bound of a product: the largest magnitudes of both blocks
      for (std::size_t k = 0; k < 16; ++k)
        largest = std::max(largest, 64.0 * static_cast<double>(std::fabs(tile_.w[k * 16 + j])) *
                                        static_cast<double>(std::fabs(tile_.x[i * 16 + k])));
      const double exact = dot(i, j, false);
      const double allowed = std::fabs(exact) * 0x1p-8 + 16 * largest * std::exp2(-window->guard);
      EXPECT_NEAR(static_cast<double>(lab_.row(1024 + i * 32 + j, 1)[0]), exact, allowed);
    }
}

INSTANTIATE_TEST_SUITE_P(All, MatrixFormats, testing::ValuesIn(cases()), [](const auto& instance) {
  std::string name = mx_format_name(instance.param.input) + "_x_" + mx_format_name(instance.param.matrix);
  for (char& c : name)
    if (c == ':' || c == '-') c = '_';
  return name;
});

/// The definition again, implemented naively in 128-bit integers.
std::int64_t defined(const FixedProduct& p, std::size_t i, std::size_t x, std::int64_t before, int reference_before,
                     int guard, int* reference) {
  const auto groups = static_cast<std::size_t>(p.groups());
  const auto exponent = [&](std::size_t g) {
    return p.ea[i * groups + g] +
           p.ew[g * static_cast<std::size_t>(p.columns()) + x / static_cast<std::size_t>(p.column_width)];
  };
  *reference = reference_before;
  for (std::size_t g = 0; g < groups; ++g)
    if (exponent(g) > FixedProduct::kNoExponent) *reference = std::max(*reference, exponent(g));
  const auto sticky = [](__int128 v, int shift) {
    if (shift > 100) shift = 100;
    const __int128 q = v >> shift;
    return (q << shift) == v ? q : q | 1;
  };
  __int128 sum = before == 0 ? 0 : sticky(before, *reference - reference_before);
  for (std::size_t g = 0; g < groups; ++g) {
    if (exponent(g) <= FixedProduct::kNoExponent) continue;
    __int128 d = 0;
    for (std::size_t k = g * static_cast<std::size_t>(p.group); k < (g + 1) * static_cast<std::size_t>(p.group); ++k)
      d += static_cast<__int128>(p.a[i * static_cast<std::size_t>(p.k) + k]) *
           p.w[k * static_cast<std::size_t>(p.n) + x];
    sum += sticky(d << guard, *reference - exponent(g));
  }
  return static_cast<std::int64_t>(sum);
}

TEST(FixedProduct, EqualsItsDefinitionForAnySpread) {
  std::mt19937 random(99);
  const auto draw = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int round = 0; round < 300; ++round) {
    FixedProduct p;
    p.m = draw(1, 4);
    p.group = 1 << draw(0, 3);
    p.k = p.group * draw(1, 6);
    p.column_width = 1 << draw(0, 2);
    p.n = p.column_width * draw(1, 12);
    p.narrow = round % 2;
    const int guard = p.narrow != 0 ? 6 : 20, spread = draw(0, 40);
    p.a.resize(static_cast<std::size_t>(p.m * p.k));
    p.w.resize(static_cast<std::size_t>(p.k * p.n));
    p.ea.resize(static_cast<std::size_t>(p.m * p.groups()));
    p.ew.resize(static_cast<std::size_t>(p.groups() * p.columns()));
    p.a_nan.assign(static_cast<std::size_t>(p.m), 0);
    p.w_nan.assign(static_cast<std::size_t>(p.n), 0);
    for (auto& v : p.a) v = draw(-128, 127);
    for (auto& v : p.w) v = draw(-8, 7);
    const auto exponent = [&] {
      return static_cast<std::int16_t>(draw(0, 9) == 0 ? kZeroBlock : draw(-spread, spread));
    };
    for (auto& e : p.ea) e = exponent();
    for (auto& e : p.ew) e = exponent();
    // A zero mark guarantees zeros.
    for (int i = 0; i < p.m; ++i)
      for (int k = 0; k < p.k; ++k)
        if (p.ea[static_cast<std::size_t>(i * p.groups() + k / p.group)] == kZeroBlock)
          p.a[static_cast<std::size_t>(i * p.k + k)] = 0;
    Accumulator acc;
    ASSERT_TRUE(acc.open(Accumulator::Mode::kFixed, 1, static_cast<std::uint32_t>(p.m), static_cast<std::uint32_t>(p.n),
                         guard, 0));
    std::vector<std::int64_t> value(acc.value.size(), 0);
    std::vector<int> reference(acc.value.size(), Accumulator::kNoReference);
    for (int repeat = 0; repeat < 3; ++repeat) {
      add_fixed_product(p, acc, 0, static_cast<std::size_t>(p.n));
      for (std::size_t i = 0; i < static_cast<std::size_t>(p.m); ++i)
        for (std::size_t x = 0; x < static_cast<std::size_t>(p.n); ++x) {
          const std::size_t out = i * static_cast<std::size_t>(p.n) + x;
          int top = 0;
          value[out] = defined(p, i, x, value[out], reference[out], guard, &top);
          reference[out] = top;
          ASSERT_EQ(acc.value[out], value[out]) << round << " " << repeat;
          ASSERT_EQ(acc.reference[out], reference[out]);
        }
      for (auto& e : p.ea)
        if (e != kZeroBlock) e = static_cast<std::int16_t>(e + draw(-3, 9));
    }
  }
}

TEST(Matrix, WindowsOfReferenceE3) {
  const auto guard = [](MxElement a, MxElement w, int bits) {
    return matrix_window({a, MxRule::kOcp, 32}, {w, MxRule::kOcp, 32}, bits)->guard;
  };
  EXPECT_EQ(guard(MxElement::kInt8, MxElement::kInt4, 12), 9);
  EXPECT_EQ(guard(MxElement::kInt8, MxElement::kInt4, 14), 7);
  EXPECT_EQ(guard(MxElement::kInt8, MxElement::kInt8, 12), 5);
  EXPECT_EQ(guard(MxElement::kInt8, MxElement::kInt4, 7), 14);
  EXPECT_FALSE(matrix_window({MxElement::kE4M3, MxRule::kOcp, 32}, {MxElement::kE4M3, MxRule::kOcp, 32}, 15)->narrow);
  EXPECT_FALSE(matrix_window({}, kInt8, 15).has_value());
}

TEST(Matrix, FloatingPathAddsInOrder) {
  MachineConfig config = Lab::small();
  config.matrix_input = {};
  config.weight = {};
  Lab lab(config);
  const auto w = test::normals(256, 3), x = test::normals(16, 4);
  lab.put_tensor(0, {}, w);
  lab.set_row(0, x);
  lab.run(load_tile(0) + set("gp3", 1024) + "M_MM 0, gp0, gp0\nM_MM_WO gp3, 0, 0\n");
  for (std::size_t j = 0; j < 4; ++j) {
    float sum = 0.0f;
    for (std::size_t k = 0; k < 16; ++k) {
      const float product = x[k] * w[k * 16 + j];
      sum += product;
    }
    EXPECT_EQ(lab.row(1024 + j, 1)[0], bf16_to_f32(f32_to_bf16(sum)));
  }
}

TEST(Matrix, WriteOutStrideAndAccumulation) {
  Lab lab(Lab::small());
  std::vector<float> w(256, 0.0f);
  for (std::size_t i = 0; i < 16; ++i) w[i * 17] = 1.0f;  // identity
  const std::uint32_t scale = lab.put_tensor(0, kInt8, w);
  for (int row = 0; row < 4; ++row)
    lab.set_row(static_cast<std::uint64_t>(row) * 32, std::vector<float>(16, static_cast<float>(row + 1)));
  lab.run(load_tile(scale) + set("gp1", 1024) + set("gp2", 3) +
          "M_MM 0, gp0, gp0\nM_MM 0, gp0, gp0\nM_MM_WO gp1, gp2, 4\nM_MM_WO gp1, 0, 8\n");
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(lab.row(1024 + 4 + row * 3 * 32, 4), std::vector<float>(4, 2.0f * static_cast<float>(row + 1)));
    EXPECT_EQ(lab.row(1024 + 8 + row * 32, 4), std::vector<float>(4, 0.0f)) << "the accumulator was cleared";
  }
}

/// Heads: values small enough that every format represents them exactly.
TEST(Matrix, HeadsBroadcastAndGrouped) {
  Lab lab(Lab::small());
  std::mt19937 random(8);
  const auto small_integer = [&random] { return static_cast<float>(static_cast<int>(random() % 9) - 4); };
  std::vector<float> w(256), q(16 * 16);
  for (float& v : w) v = small_integer();
  for (float& v : q) v = small_integer();
  const std::uint32_t scale = lab.put_tensor(0, kInt8, w);
  for (std::size_t row = 0; row < 16; ++row)
    lab.set_row(row * 32, {q.begin() + static_cast<std::ptrdiff_t>(row * 16),
                           q.begin() + static_cast<std::ptrdiff_t>(row * 16 + 16)});
  const auto expected = [&](std::size_t head, std::size_t row, std::size_t col, std::size_t slice, bool transposed) {
    double sum = 0;
    for (std::size_t d = 0; d < 8; ++d)
      sum += static_cast<double>(q[row * 16 + head * 8 + d]) *
             static_cast<double>(transposed ? w[col * 16 + slice * 8 + d] : w[(slice * 8 + d) * 16 + col]);
    return static_cast<float>(sum);
  };
  // PLENA's form: all heads against lanes 8.. of the tile; output [head][row][VLEN].
  lab.run(load_tile(scale) + set("gp1", 8) + set("gp2", 4096) + "M_BTMM 0, gp1, gp0\nM_BMM_WO gp2, 0\n");
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t r = 0; r < 16; ++r)
      for (std::size_t c = 0; c < 16; ++c)
        EXPECT_EQ(lab.row(4096 + (h * 16 + r) * 32 + c, 1)[0], bf16_to_f32(f32_to_bf16(expected(h, r, c, 1, true))));
  // One slice per head, 4 rows, 8 columns, heads packed into the lanes, scaled by 1/4.
  lab.run(set("gp3", 4) + set("gp4", 8) + set("gp5", 1) + set("gp6", 0x3e800000) +
          "C_SET_CSR gp3, bmm_rows\nC_SET_CSR gp4, bmm_cols\nC_SET_CSR gp5, bmm_group\nC_SET_CSR gp4, "
          "bmm_head_stride\nC_SET_CSR gp6, bmm_scale\n" +
          set("gp2", 6144) + set("gp7", 7168) +
          "M_BTMM 0, gp0, gp0\nM_BMM_WO gp2, 0\nM_BMM 0, gp0, gp0\nM_BMM_WO gp7, 0\n" + set("gp8", 7680) +
          "M_BTMV gp0, gp0, gp0\nM_BMV_WO gp8, 0\n" + set("gp9", 7712) + "M_BMV gp0, gp0, gp0\nM_BMV_WO gp9, 0\n");
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t c = 0; c < 8; ++c) {
      for (std::size_t r = 0; r < 4; ++r) {
        EXPECT_EQ(lab.row(6144 + r * 32 + h * 8 + c, 1)[0], expected(h, r, c, h, true) / 4);
        EXPECT_EQ(lab.row(7168 + r * 32 + h * 8 + c, 1)[0], expected(h, r, c, h, false) / 4);
      }
      EXPECT_EQ(lab.row(7680 + h * 8 + c, 1)[0], expected(h, 0, c, h, true) / 4);
      EXPECT_EQ(lab.row(7712 + h * 8 + c, 1)[0], expected(h, 0, c, h, false) / 4);
    }
}

/// V in the projection's layout: a head's columns next to the next head's.
TEST(Matrix, HeadsSideBySide) {
  Lab lab(Lab::small());
  std::vector<float> w(256), p(4 * 16);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 7 % 9) - 4;
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i * 5 % 7) - 3;
  const std::uint32_t scale = lab.put_tensor(0, kInt8, w);
  for (std::size_t row = 0; row < 4; ++row)
    lab.set_row(row * 32, {p.begin() + static_cast<std::ptrdiff_t>(row * 16),
                           p.begin() + static_cast<std::ptrdiff_t>(row * 16 + 16)});
  const std::string shape = set("gp3", 4) + set("gp4", 8) + set("gp5", 1) +
                            "C_SET_CSR gp3, bmm_rows\nC_SET_CSR gp4, bmm_cols\nC_SET_CSR gp4, bmm_head_stride\n"
                            "C_SET_CSR gp5, bmm_layout\n";
  // Rows 8 to 15 of the tile are the keys. First a matrix for each head, then one for both, from lane 8.
  lab.run(load_tile(scale) + shape + "C_SET_CSR gp5, bmm_group\n" + set("gp1", 8 * 16) + set("gp2", 4096) +
          "M_BMM 0, gp1, gp0\nM_BMM_WO gp2, 0\n" + set("gp6", 2) + "C_SET_CSR gp6, bmm_group\n" +
          set("gp1", 8 * 16 + 8) + set("gp2", 5120) + "M_BMM 0, gp1, gp0\nM_BMM_WO gp2, 0\n");
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t r = 0; r < 4; ++r)
      for (std::size_t c = 0; c < 8; ++c) {
        double own = 0, shared = 0;
        for (std::size_t j = 0; j < 8; ++j) {
          own += static_cast<double>(p[r * 16 + h * 8 + j]) * static_cast<double>(w[(8 + j) * 16 + h * 8 + c]);
          shared += static_cast<double>(p[r * 16 + h * 8 + j]) * static_cast<double>(w[(8 + j) * 16 + 8 + c]);
        }
        EXPECT_EQ(lab.row(4096 + r * 32 + h * 8 + c, 1)[0], static_cast<float>(own));
        EXPECT_EQ(lab.row(5120 + r * 32 + h * 8 + c, 1)[0], static_cast<float>(shared));
      }
  EXPECT_NE(lab.trap(set("gp5", 1) + "C_SET_CSR gp5, bmm_group\n" + set("gp1", 8 * 16 + 8) + "M_BMM 0, gp1, gp0")
                .find("slice that fits"),
            std::string::npos);
  EXPECT_NE(lab.trap(set("gp5", 2) + "C_SET_CSR gp5, bmm_layout").find("neither 0 nor 1"), std::string::npos);
}

TEST(Matrix, MatrixVector) {
  Lab lab(Lab::small());
  std::vector<float> w(256);
  for (std::size_t i = 0; i < 256; ++i) w[i] = static_cast<float>(i % 7) - 3.0f;
  const std::uint32_t scale = lab.put_tensor(0, kInt8, w);
  std::vector<float> x(16);
  for (std::size_t i = 0; i < 16; ++i) x[i] = static_cast<float>(i % 5);
  lab.set_row(32 + 16, x);  // the second group of MLEN lanes of a row
  std::vector<float> straight(16), transposed(16);
  for (std::size_t j = 0; j < 16; ++j)
    for (std::size_t k = 0; k < 16; ++k) straight[j] += x[k] * w[k * 16 + j], transposed[j] += x[k] * w[j * 16 + k];
  lab.set_row(1024, std::vector<float>(32, 99.0f));
  lab.run(load_tile(scale) + set("gp1", 48) + set("gp2", 1024));
  const auto slice_of = [&](const std::string& op, std::uint32_t address, std::uint32_t lane) {
    lab.run(set("gp3", address) + op + "M_MV_WO gp2, " + std::to_string(lane));
    return lab.row(1024 + lane, 4);
  };
  for (std::uint32_t c = 0; c < 16; c += 4)
    for (const std::uint32_t address : {c, c * 16}) {  // both of PLENA's conventions
      const auto part = [c](const std::vector<float>& all) { return std::vector(&all[c], &all[c] + 4); };
      EXPECT_EQ(slice_of("M_MV 0, gp3, gp1\n", address, 16 + c), part(straight));
      EXPECT_EQ(slice_of("M_TMV 0, gp3, gp1\n", address, c), part(transposed));
    }
  // Two contractions into one sum, as in a GEMV over several tiles; the other lanes of the row do not change.
  lab.set_row(1024, std::vector<float>(32, 99.0f));
  lab.run("M_MV 0, gp0, gp1\nM_MV 0, gp0, gp1\nM_MV_WO gp2, gp0, 8\n");
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_EQ(lab.row(1024 + i, 1)[0], i >= 8 && i < 12 ? 2 * straight[i - 8] : 99.0f) << i;
  EXPECT_NE(lab.trap("M_MV_WO gp2, 2").find("not a multiple of BLEN"), std::string::npos);
  EXPECT_NE(lab.trap("M_MV 0, gp1, gp0\n").find("start of a slice"), std::string::npos);
}

TEST(Matrix, TransposedMatrixVectorWithItsOperandsTheOtherWay) {
  MachineConfig config = Lab::small();
  config.tmv_vector_first = true;
  Lab lab(config);
  const std::uint32_t scale = lab.put_tensor(0, kInt8, std::vector<float>(256, 2.0f));
  lab.set_row(64, std::vector<float>(16, 3.0f));
  lab.run(load_tile(scale) + set("gp1", 64) + set("gp2", 1024) + "M_TMV 0, gp1, gp0\nM_MV_WO gp2, 0\n");
  EXPECT_EQ(lab.row(1024, 4), std::vector<float>(4, 96.0f));
}

TEST(Matrix, NanReachesTheOutputsItTouches) {
  Lab lab(Lab::small());
  std::vector<float> w(256, 1.0f);
  w[5] = NAN;  // row 0, block of columns 0-7
  const std::uint32_t scale = lab.put_tensor(0, kInt8, w);
  for (int row = 0; row < 4; ++row)
    lab.set_row(static_cast<std::uint64_t>(row) * 32, std::vector<float>(16, row == 2 ? INFINITY : 1.0f));
  lab.run(load_tile(scale) + set("gp1", 1024) + set("gp2", 8) + set("gp3", 2048) +
          "M_MM 0, gp0, gp0\nM_MM_WO gp1, 0, 0\nM_MM 0, gp2, gp0\nM_MM_WO gp3, 0, 0\n");
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_TRUE(std::isnan(lab.row(1024 + row * 32, 1)[0]));
    EXPECT_EQ(std::isnan(lab.row(2048 + row * 32, 1)[0]), row == 2);
  }
}

TEST(Matrix, Traps) {
  Lab lab(Lab::small());
  EXPECT_NE(lab.trap("M_MM 0, gp0, gp0").find("never loaded"), std::string::npos);
  const std::uint32_t scale = lab.put_tensor(0, kInt8, std::vector<float>(256, 1.0f));
  lab.run(load_tile(scale));
  EXPECT_NE(lab.trap(set("gp1", 2) + "M_MM 0, gp1, gp0").find("start of a slice"), std::string::npos);
  EXPECT_NE(lab.trap(set("gp1", 18) + "M_MM 0, gp1, gp0").find("neither below MLEN"), std::string::npos);
  EXPECT_NE(lab.trap(set("gp1", 8) + "M_MM 0, gp0, gp1").find("not a multiple of MLEN"), std::string::npos);
  EXPECT_NE(lab.trap(set("gp1", 8192 - 64) + "M_MM 0, gp0, gp1").find("out of range"), std::string::npos);
  EXPECT_NE(lab.trap("M_MM 0, gp0, gp0\nC_SET_CSR gp0, format_matrix_input").find("not a number format"),
            std::string::npos);
  const std::string bf16 = set("gp1", mx_format_number({})) + "C_SET_CSR gp1, format_matrix_input\n";
  EXPECT_NE(lab.trap("M_MM 0, gp0, gp0\n" + bf16 + "M_MM 0, gp0, gp0").find("partial sum"), std::string::npos);
  lab.state().reset_registers();
  EXPECT_NE(lab.trap(".loop gp1, 3000\nM_MM 0, gp0, gp0\n.endloop").find("contraction_bits"), std::string::npos);
  lab.state().reset_registers();
  EXPECT_NE(
      lab.trap(set("gp1", 4) + "M_BTMM 0, gp0, gp0\nC_SET_CSR gp1, bmm_rows\nM_BMM_WO gp0, 0").find("write-out is for"),
      std::string::npos);
  lab.state().reset_registers();
  EXPECT_NE(lab.trap(set("gp1", 20) + "M_BTMM 0, gp0, gp0\nM_BMM_WO gp1, 0").find("cross the end"), std::string::npos);
}

}  // namespace
}  // namespace dllm::npu
