#include "cpu/row_groups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"

namespace dllm::cpu {
namespace {

using test::Random;

/// A product of `rows` with BF16 weights, by every set; all must give the bits of the scalar one.
class Bf16Product {
 public:
  Bf16Product(std::int64_t rows, std::int64_t k, std::int64_t n)
      : rows_(rows), k_(k), n_(n), weight(random_words(random_, TensorType::kBF16, n * k)) {
    x = random_floats(random_, rows * k, 3.f);
  }

  std::vector<float> run(const KernelSet& set, RowForm* form = nullptr) {
    ThreadPool pool(2);
    const WeightView view{TensorType::kBF16, {k_, n_}, weight};
    const PackedMatrix packed(view, pool);
    LinearRunner runner(set, pool);
    std::vector<float> out(static_cast<std::size_t>(rows_ * n_));
    const LinearArgs args = runner.prepare(view, &packed.weight(), nullptr, x.data(), rows_, 0);
    if (form != nullptr) *form = args.grouped.form;
    runner.run(args, n_, out.data());
    return out;
  }

  void expect_agreement(const char* what) {
    const std::vector<float> expected = run(*find_kernel_set("scalar"));
    for (const KernelSet* set : test::available_sets()) {
      const std::vector<float> actual = run(*set);
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0)
          << what << " on " << set->name;
    }
  }

 private:
  Random random_{11};
  std::int64_t rows_, k_, n_;

 public:
  std::vector<std::byte> weight;
  std::vector<float> x;
};

TEST(RowGroups, Bf16ProductsAgreeOverAllSets) {
  for (const std::int64_t rows : {1, 7, 30}) {
    Bf16Product(rows, 600, 70).expect_agreement("even k");
    Bf16Product(rows, 77, 33).expect_agreement("odd k");
  }
}

TEST(RowGroups, SubnormalsAreNotFlushed) {
  Bf16Product tiny_rows(5, 64, 32);
  for (std::size_t i = 0; i < tiny_rows.x.size(); i += 3) tiny_rows.x[i] *= 0x1.0p-130f;
  tiny_rows.expect_agreement("subnormal rows");
  Bf16Product tiny_weights(5, 64, 32);
  for (std::size_t i = 0; i < tiny_weights.weight.size(); i += 2)
    tiny_weights.weight[i] = std::byte{3}, tiny_weights.weight[i + 1] = std::byte{0};
  tiny_weights.expect_agreement("subnormal weights");
  for (float value : tiny_weights.run(*default_kernel_set())) EXPECT_NE(value, 0.f);
}

TEST(RowGroups, RowsThatAreNotFiniteShow) {
  Bf16Product product(3, 64, 32);
  product.x[64] = std::numeric_limits<float>::infinity();
  product.x[128] = std::numeric_limits<float>::quiet_NaN();
  for (const KernelSet* set : test::available_sets()) {
    const std::vector<float> out = product.run(*set);
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_TRUE(std::isfinite(out[i]));
      EXPECT_FALSE(std::isfinite(out[32 + i]));
      EXPECT_TRUE(std::isnan(out[64 + i]));
    }
  }
}

TEST(RowGroups, RowsAreRoundedToNearestEven) {
  // With a weight of one, the output is the rounded row.
  Bf16Product product(1, 2, 1);
  const std::uint16_t one[] = {0x3f80, 0};
  std::memcpy(product.weight.data(), one, sizeof one);
  for (const auto& [from, to] : {std::pair{1.f + 0x1.0p-8f, 1.f},
                                 {1.f + 0x1.8p-7f, 1.f + 0x1.0p-6f},
                                 {1.f + 0x1.01p-8f, 1.f + 0x1.0p-7f},
                                 {-1.f - 0x1.0p-8f, -1.f}}) {
    product.x = {from, 5.f};
    for (const KernelSet* set : test::available_sets()) EXPECT_EQ(product.run(*set)[0], to) << set->name;
  }
}

TEST(RowGroups, PairsAreForRegularNumbersOnSetsThatTakeThem) {
  RowForm form{};
  Bf16Product product(4, 64, 32);
  product.run(*default_kernel_set(), &form);
  EXPECT_EQ(form == RowForm::kPairs, default_kernel_set()->bf16_dots());
  product.x[7] = 1e30f;
  product.run(*default_kernel_set(), &form);
  EXPECT_EQ(form, RowForm::kRounded);
  product.x[7] = 0.f;
  product.run(*default_kernel_set(), &form);
  EXPECT_EQ(form == RowForm::kPairs, default_kernel_set()->bf16_dots());
}

}  // namespace
}  // namespace dllm::cpu
