// Clipping and GPTQ against definitions that share no code with them.
#include "quant/row_quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/to_size.h"
#include "quant/testing/row_test_data.h"

namespace dllm {
namespace {

using test::decode_doubles, test::inverse_of, test::normals;

/// Inputs with correlated columns of different sizes.
struct Inputs {
  std::int64_t rows, columns;
  std::vector<float> x;

  Inputs(std::int64_t rows, std::int64_t columns, std::uint32_t seed) : rows(rows), columns(columns) {
    const auto common = normals(to_size(rows), seed + 1);
    const auto own = normals(to_size(rows * columns), seed);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        x.push_back(static_cast<float>((own[to_size(r * columns + c)] + 1.5 * common[to_size(r)]) *
                                       static_cast<double>(1 + c % 5)));
  }
  Triangle hessian(int threads = 1) const {
    ThreadPool pool(threads);
    Triangle h(columns);
    add_products(h, x, pool);
    return h;
  }
  double at(std::int64_t r, std::int64_t c) const { return static_cast<double>(x[to_size(r * columns + c)]); }
  /// |X d|^2 over columns [first, first + d.size()).
  double output(std::span<const double> d, std::int64_t first) const {
    double sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      double y = 0;
      for (std::size_t i = 0; i < d.size(); ++i) y += at(r, first + static_cast<std::int64_t>(i)) * d[i];
      sum += y * y;
    }
    return sum;
  }
};

TEST(Hessian, IsTheProductOfTheInputs) {
  const Inputs inputs(70, 19, 3);
  const Triangle one = inputs.hessian(1), three = inputs.hessian(3);
  for (std::int64_t i = 0; i < 19; ++i)
    for (std::int64_t k = 0; k <= i; ++k) {
      double expected = 0;
      for (std::int64_t r = 0; r < 70; ++r) expected += inputs.at(r, i) * inputs.at(r, k);
      EXPECT_NEAR(one.row(i)[to_size(k)], expected, 1e-7 * std::fabs(expected));
      EXPECT_EQ(one.row(i)[to_size(k)], three.row(i)[to_size(k)]);
    }
}

TEST(Hessian, InverseFactor) {
  ThreadPool pool(1);
  for (const std::int64_t n : {1, 2, 7, 33}) {
    Triangle h = Inputs(100, n, 5).hessian();
    const Triangle before = h;
    ASSERT_TRUE(invert_factor(h, pool));
    // L^-1 H L^-T is the unit matrix.
    const auto full = [&](std::int64_t i, std::int64_t k) {
      return static_cast<double>(before.row(std::max(i, k))[to_size(std::min(i, k))]);
    };
    for (std::int64_t a = 0; a < n; ++a)
      for (std::int64_t b = 0; b < n; ++b) {
        double sum = 0;
        for (std::int64_t i = 0; i <= a; ++i)
          for (std::int64_t k = 0; k <= b; ++k)
            sum += static_cast<double>(h.row(a)[to_size(i)]) * full(i, k) * static_cast<double>(h.row(b)[to_size(k)]);
        EXPECT_NEAR(sum, a == b ? 1 : 0, 1e-5) << n;
      }
  }
  Triangle singular(2);
  singular.row(0)[0] = singular.row(1)[0] = singular.row(1)[1] = 1;
  EXPECT_FALSE(invert_factor(singular, pool));
  damp(singular, 0.01);
  EXPECT_TRUE(invert_factor(singular, pool));
}

/// The definition of the factor's inverse and its order of additions, without blocks of rows.
void invert_row_by_row(Triangle& h) {
  std::vector<double> row;
  const auto store = [&](std::int64_t i) {
    for (std::size_t j = 0; j < row.size(); ++j) h.row(i)[j] = static_cast<float>(row[j]);
  };
  for (std::int64_t i = 0; i < h.size(); ++i) {
    row.assign(h.row(i).begin(), h.row(i).end());
    for (std::size_t k = 0; k + 1 < row.size(); ++k) {
      const std::span<const float> other = h.row(static_cast<std::int64_t>(k));
      double sums[8] = {};
      for (std::size_t j = 0; j < k; ++j) sums[j % 8] += row[j] * static_cast<double>(other[j]);
      row[k] -= ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
      row[k] /= static_cast<double>(other.back());
    }
    for (std::size_t j = 0; j + 1 < row.size(); ++j) row.back() -= row[j] * row[j];
    row.back() = std::sqrt(row.back());
    store(i);
  }
  for (std::int64_t i = 0; i < h.size(); ++i) {
    const double last = 1 / static_cast<double>(h.row(i).back());
    row.assign(to_size(i + 1), 0.0);
    for (std::int64_t k = 0; k < i; ++k)
      for (std::size_t j = 0; j < h.row(k).size(); ++j)
        row[j] += -last * static_cast<double>(h.row(i)[to_size(k)]) * static_cast<double>(h.row(k)[j]);
    row.back() = last;
    store(i);
  }
}

TEST(Hessian, InverseFactorHasTheSameBitsForAnyNumberOfThreads) {
  for (const std::int64_t n : {5, 31, 70, 301}) {
    Triangle expected = Inputs(400, n, 6).hessian();
    damp(expected, 0.01);
    const Triangle damped = expected;
    invert_row_by_row(expected);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      Triangle h = damped;
      ASSERT_TRUE(invert_factor(h, pool));
      for (std::int64_t i = 0; i < n; ++i) ASSERT_TRUE(std::ranges::equal(h.row(i), expected.row(i))) << n << ' ' << i;
    }
  }
}

TEST(YClip, CostIsTheOutputError) {
  const Inputs inputs(50, 96, 9);
  const std::vector<double> grams = diagonal_blocks(inputs.hessian(), 32);
  for (std::int64_t block = 0; block < 3; ++block) {
    const std::vector<double> d = normals(32, 77 + static_cast<std::uint32_t>(block));
    const double expected = inputs.output(d, 32 * block);
    EXPECT_NEAR(output_cost(d, grams.data() + block * 32 * 32), expected, 1e-6 * expected);
  }
}

/// Rounds one row and returns its values.
std::vector<double> rounded(TensorType type, const char* method, const Inputs& inputs, std::vector<double> w,
                            std::vector<std::byte>* bytes = nullptr) {
  const BlockGrid grid = *BlockGrid::of(type);
  ThreadPool pool(1);
  const auto quantizer = RowQuantizer::create(grid, *quant_method(method), inputs.hessian(), 0.01, pool);
  if (!quantizer) ADD_FAILURE() << quantizer.error().message();
  const std::int64_t row_bytes = codec(type).row_bytes(inputs.columns);
  std::vector<std::byte> out(w.size() / to_size(inputs.columns) * to_size(row_bytes));
  quantizer->quantize(w, inputs.columns, out, row_bytes);
  EXPECT_EQ(decode_doubles(type, out, w.size()), w) << "what is written is what was chosen";
  if (bytes != nullptr) *bytes = out;
  return w;
}

TEST(YClip, ChoosesTheScaleWithTheLeastOutputError) {
  const Inputs inputs(60, 64, 21);
  for (const char* name : {"mxint4", "mxint4:16:plena", "mxfp4_e2m1", "q4_0"}) {
    const TensorType type = *tensor_type_from_name(name);
    const BlockGrid grid = *BlockGrid::of(type);
    const auto size = to_size(grid.elements());
    int clipped = 0;
    for (std::uint32_t seed = 0; seed < 30; ++seed) {
      std::vector<double> w = normals(64, 500 + seed);
      w[3] *= 2.5;  // an outlier, which is worth clipping
      const std::vector<double> y = rounded(type, "y-clip", inputs, w), x = rounded(type, "x-clip", inputs, w);
      for (std::size_t first = 0; first < 64; first += size) {
        const std::span<const double> block(w.data() + first, size);
        std::vector<std::uint16_t> scales;
        grid.scales(block, scales);
        double least_output = HUGE_VAL, least_weight = HUGE_VAL, own_output = 0;
        for (const std::uint16_t scale : scales) {
          std::vector<double> d;
          double weight = 0;
          for (const double value : block) d.push_back(value - grid.levels(scale).nearest(value).value);
          for (const double each : d) weight += each * each;
          const double output = inputs.output(d, static_cast<std::int64_t>(first));
          if (scale == scales.front()) own_output = output;
          least_output = std::min(least_output, output);
          least_weight = std::min(least_weight, weight);
        }
        std::vector<double> d;
        double weight = 0;
        for (std::size_t i = 0; i < size; ++i) d.push_back(block[i] - y[first + i]);
        EXPECT_NEAR(inputs.output(d, static_cast<std::int64_t>(first)), least_output, 1e-6 * least_output) << name;
        for (std::size_t i = 0; i < size; ++i) weight += (block[i] - x[first + i]) * (block[i] - x[first + i]);
        EXPECT_NEAR(weight, least_weight, 1e-12) << name;
        clipped += least_output < own_output ? 1 : 0;
      }
    }
    EXPECT_GT(clipped, 0) << name << ": the test chooses nothing";
  }
}

/// GPTQ by its definition: the optimal change of the columns that remain, with an inverse per column.
std::vector<double> gptq_by_definition(TensorType type, const Inputs& inputs, std::vector<double> w) {
  const auto n = to_size(inputs.columns);
  std::vector<std::vector<double>> h(n, std::vector<double>(n, 0.0));
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < n; ++k)
      for (std::int64_t r = 0; r < inputs.rows; ++r)
        h[i][k] += inputs.at(r, static_cast<std::int64_t>(i)) * inputs.at(r, static_cast<std::int64_t>(k));
  for (std::size_t i = 0; i < n; ++i) mean += h[i][i] / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) h[i][i] += 0.01 * mean;
  const BlockGrid grid = *BlockGrid::of(type);
  const auto size = to_size(grid.elements());
  std::vector<std::uint16_t> scales;
  for (std::size_t j = n; j-- > 0;) {
    if (j % size == size - 1) grid.scales(std::span(w).subspan(j + 1 - size, size), scales);
    const auto inverse = inverse_of(h, j + 1);
    const double value = grid.levels(scales.front()).nearest(w[j]).value;
    const double error = (w[j] - value) / inverse[j][j];
    for (std::size_t k = 0; k < j; ++k) w[k] -= error * inverse[k][j];
    w[j] = value;
  }
  return w;
}

TEST(Gptq, EqualsItsDefinition) {
  for (const char* name : {"mxint4:8", "mxint4:16:plena", "mxint4", "mxfp8", "q4_0", "q8_0"}) {
    const TensorType type = *tensor_type_from_name(name);
    const std::int64_t size = BlockGrid::of(type)->elements();
    for (const std::int64_t columns : {size, 2 * size, 3 * size}) {
      const Inputs inputs(40, columns, static_cast<std::uint32_t>(columns));
      for (std::uint32_t seed = 0; seed < 3; ++seed) {
        const std::vector<double> w = normals(to_size(columns), 900 + seed);
        const auto got = rounded(type, "gptq", inputs, w), expected = gptq_by_definition(type, inputs, w);
        for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9) << name << " " << columns;
      }
    }
  }
}

double output_error(const Inputs& inputs, const std::vector<double>& w, const std::vector<double>& q) {
  double sum = 0;
  for (std::size_t first = 0; first < w.size(); first += to_size(inputs.columns)) {
    std::vector<double> d;
    for (std::size_t i = first; i < first + to_size(inputs.columns); ++i) d.push_back(w[i] - q[i]);
    sum += inputs.output(d, 0);
  }
  return sum;
}

TEST(Gptq, EachStepLessensTheOutputError) {
  const Inputs inputs(300, 96, 31);
  const std::vector<double> w = normals(96 * 20, 1234);
  const TensorType type = *tensor_type_from_name("mxint4");
  const auto error = [&](const char* method) { return output_error(inputs, w, rounded(type, method, inputs, w)); };
  const double rtn = error("rtn"), x = error("x-clip"), y = error("y-clip"), gptq = error("gptq");
  EXPECT_LT(x, rtn);
  EXPECT_LT(y, rtn);
  EXPECT_LT(gptq, 0.3 * rtn);
  EXPECT_LT(error("gptq+search"), gptq);
}

TEST(Gptq, InputsThatNothingUsedAreRoundedToNearest) {
  Inputs inputs(50, 64, 8);
  for (std::int64_t r = 0; r < 50; ++r)
    for (std::int64_t c = 0; c < 64; c += 2) inputs.x[to_size(r * 64 + c)] = 0;
  const TensorType type = *tensor_type_from_name("mxint8:16");
  const std::vector<double> w = normals(64, 4);
  const auto got = rounded(type, "gptq", inputs, w), nearest = rounded(type, "rtn", inputs, w);
  for (std::size_t i = 48; i < 64; i += 2) EXPECT_EQ(got[i], nearest[i]) << "the block that is visited first";
  const Inputs unused(1, 64, 8);
  Inputs zeros = unused;
  std::ranges::fill(zeros.x, 0.0f);
  EXPECT_EQ(rounded(type, "gptq", zeros, w), nearest);
}

/// The corrected weights solve the damped normal equations, and come closer to what the exact inputs give.
TEST(Gptq, CorrectsWhatTheInputsLost) {
  const Inputs given(200, 32, 41);
  Inputs exact = given;
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  for (std::int64_t r = 0; r < 200; ++r)  // a loss that other columns can make up for in part
    for (std::int64_t c = 0; c < 32; ++c)
      exact.x[to_size(r * 32 + c)] += 0.3f * given.x[to_size(r * 32 + (c + 5) % 32)] + 0.1f * normal(random);
  ThreadPool pool(2);
  std::vector<double> cross(32 * 32);
  add_differences(cross, given.x, exact.x, 32, pool);
  const auto quantizer = RowQuantizer::create(*BlockGrid::of(*tensor_type_from_name("mxint8")),
                                              *quant_method("gptq+correct"), given.hessian(), 0.01, pool);
  const std::vector<double> w = normals(32, 71);
  std::vector<double> moved = w;
  std::vector<double> target(32, 0.0);
  for (std::size_t i = 0; i < 32; ++i)
    for (std::size_t k = 0; k < 32; ++k) target[i] += cross[i * 32 + k] * w[k];
  quantizer->correct(moved, target);
  Triangle h = given.hessian();
  damp(h, 0.01);
  for (std::int64_t i = 0; i < 32; ++i) {
    double left = 0, right = 0;
    for (std::int64_t k = 0; k < 32; ++k) {
      const auto at = to_size(k);
      left += static_cast<double>(h.row(std::max(i, k))[to_size(std::min(i, k))]) * (moved[at] - w[at]);
      for (std::int64_t r = 0; r < 200; ++r) right += given.at(r, i) * (exact.at(r, k) - given.at(r, k)) * w[at];
    }
    EXPECT_NEAR(left, right, 1e-3 * std::fabs(right) + 1e-2) << i;
  }
  const auto distance = [&](const std::vector<double>& weights) {
    double sum = 0;
    for (std::int64_t r = 0; r < 200; ++r) {
      double y = 0;
      for (std::int64_t k = 0; k < 32; ++k) y += given.at(r, k) * weights[to_size(k)] - exact.at(r, k) * w[to_size(k)];
      sum += y * y;
    }
    return sum;
  };
  EXPECT_LT(distance(moved), 0.1 * distance(w));

  // An error that is X v is corrected by v.
  const std::vector<double> v = normals(32, 72);
  std::vector<double> lost(32, 0.0), row = w;
  for (std::int64_t r = 0; r < 200; ++r) {
    double e = 0;
    for (std::int64_t k = 0; k < 32; ++k) e += given.at(r, k) * v[to_size(k)];
    for (std::int64_t k = 0; k < 32; ++k) lost[to_size(k)] += given.at(r, k) * e;
  }
  const auto undamped = RowQuantizer::create(*BlockGrid::of(*tensor_type_from_name("mxint8")),
                                             *quant_method("gptq+correct"), given.hessian(), 1e-9, pool);
  undamped->correct(row, lost);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(row[i], w[i] + v[i], 1e-4);
}

TEST(QuantMethod, Names) {
  for (const std::string& name : quant_method_names()) EXPECT_TRUE(quant_method(name)) << name;
  EXPECT_TRUE(quant_method("rtn")->plain());
  EXPECT_FALSE(quant_method("x-clip")->calibrated());
  EXPECT_TRUE(quant_method("y-clip")->calibrated());
  EXPECT_FALSE(quant_method("GPTQ"));
}

}  // namespace
}  // namespace dllm
