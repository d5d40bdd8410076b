// Embeddings of rows that read a mixture, against a scalar definition.
#include "cpu/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace dllm::cpu {
namespace {

constexpr std::int64_t kWide = 37;

struct Table {
  std::vector<float> values;
  std::vector<std::uint8_t> bytes;
  Table() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < 6 * kWide; ++i) values.push_back(normal(random));
    bytes.resize(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  WeightView view() const {
    WeightView view;
    view.type = TensorType::kF32;
    view.data = {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
    return view;
  }
  double length(std::int64_t token) const {
    double sum = 0;
    for (std::int64_t i = 0; i < kWide; ++i) {
      const auto x = static_cast<double>(values[static_cast<std::size_t>(token * kWide + i)]);
      sum += x * x;
    }
    return std::sqrt(sum);
  }
};

std::vector<float> embedded(const Table& table, TokenId token, const RowMixture* mixture, float scale = 1) {
  op::Embed embed;
  embed.scale = scale;
  std::vector<float> row(static_cast<std::size_t>(kWide));
  embed_row(embed, table.view(), token, mixture, kWide, row.data());
  return row;
}

TEST(EmbedRow, ReadsAMixtureInPlaceOfItsToken) {
  const Table table;
  const RowMixture mixture{0, {{2, 0.7F}, {5, 0.25F}, {1, 0.05F}}, true};
  for (const float scale : {1.F, 3.F}) {
    const std::vector<float> row = embedded(table, 4, &mixture, scale);
    EXPECT_EQ(embedded(table, 3, &mixture, scale), row) << "the token itself is not read";
    std::vector<float> sum(static_cast<std::size_t>(kWide), 0.F);
    double wanted = 0;
    for (const MixedToken& one : mixture.tokens) {
      for (std::int64_t i = 0; i < kWide; ++i)
        sum[static_cast<std::size_t>(i)] += one.weight * table.values[static_cast<std::size_t>(one.token * kWide + i)];
      wanted += static_cast<double>(one.weight) * table.length(one.token);
    }
    double squares = 0, length = 0;
    for (const float x : sum) squares += static_cast<double>(x) * static_cast<double>(x);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const auto expected = static_cast<float>(static_cast<double>(sum[i]) * (wanted / std::sqrt(squares)));
      EXPECT_EQ(row[i], scale == 1.F ? expected : expected * scale) << i;
      length += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    }
    EXPECT_NEAR(std::sqrt(length), wanted * static_cast<double>(scale), 1e-5);
  }
}

TEST(EmbedRow, OfOneTokenWithAllTheWeightIsThatToken) {
  const Table table;
  const RowMixture all{0, {{2, 1.F}, {5, 0.F}}, true};
  const std::vector<float> mixed = embedded(table, 4, &all), plain = embedded(table, 2, nullptr);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(mixed[i], plain[i], 1e-6F);
  const RowMixture added{0, {{2, 0.5F}}, false};
  const std::vector<float> sum = embedded(table, 4, &added);
  for (std::int64_t i = 0; i < kWide; ++i)
    EXPECT_EQ(sum[static_cast<std::size_t>(i)], table.values[static_cast<std::size_t>(4 * kWide + i)] +
                                                    0.5F * table.values[static_cast<std::size_t>(2 * kWide + i)]);
}

TEST(EmbedRow, OfNoWeightIsZero) {
  const Table table;
  const RowMixture none{0, {{2, 0.F}}, true};
  for (const float x : embedded(table, 4, &none)) EXPECT_EQ(x, 0.F);
}

}  // namespace
}  // namespace dllm::cpu
