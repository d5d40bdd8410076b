// Do the experts' products match the definition, and does each row's result not depend on the other rows?
#include "cpu/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "cpu/kernels/test_data.h"
#include "numerics/hadamard.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

struct Stack {
  WeightView view;
  std::vector<std::byte> bytes;
  std::vector<float> floats;  ///< after rounding to the type
};

Stack random_stack(test::Random& random, TensorType type, const Shape& shape) {
  const std::int64_t count = element_count(shape);
  Stack stack;
  stack.floats = test::random_floats(random, count, 2.f / std::sqrt(static_cast<float>(shape[0])));
  stack.bytes.resize(static_cast<std::size_t>(codec(type).row_bytes(count)));
  codec(type).quantize(stack.floats.data(), stack.bytes.data(), count);
  codec(type).dequantize(stack.bytes.data(), stack.floats.data(), count);
  stack.view = {type, shape, stack.bytes};
  return stack;
}

struct Types {
  TensorType gate, up, down;
};

/// A layer of experts with random weights, rows and choices.
class Layer {
 public:
  Layer(const Types& types, std::int64_t k, std::int64_t inner, std::int64_t experts, std::int64_t used,
        std::int64_t rows)
      : k_(k), inner_(inner), used_(used), random_(5) {
    gate_ = random_stack(random_, types.gate, {k, inner, experts});
    up_ = random_stack(random_, types.up, {k, inner, experts});
    down_ = random_stack(random_, types.down, {inner, k, experts});
    x_ = test::random_floats(random_, rows * k, 1.f);
    for (std::int64_t row = 0; row < rows; ++row) {
      // 0 2 3 ... or 2 3 4 ...: expert 1 has no rows.
      for (std::int64_t e = row % 2; e < used + row % 2; ++e) route_.push_back(static_cast<float>(e < 1 ? e : e + 1));
      for (std::int64_t j = 0; j < used; ++j) route_.push_back(0.1f + 0.3f * static_cast<float>((row + j) % 5));
    }
  }

  /// From now on, inputs of `down` are transformed.
  void turn(std::int64_t order) { hadamard_ = *Hadamard::online(order); }

  /// Rows [first, first + count) in a separate run.
  std::vector<float> run(int threads, std::int64_t first, std::int64_t count, bool exact = false,
                         const char* isa = nullptr, bool super = false) {
    ThreadPool pool(threads);
    const KernelSet& kernels = isa == nullptr ? *default_kernel_set() : *find_kernel_set(isa);
    LinearRunner linear(kernels, pool);
    ExpertRunner runner(kernels, pool, linear);
    std::vector<PackedMatrix> packed;
    packed.reserve(3);
    const auto stack = [&](const Stack& s) {
      if (exact || packed_format(s.view.type) == nullptr) return ExpertStack{&s.view, nullptr};
      packed.emplace_back(s.view, pool, super);
      return ExpertStack{&s.view, &packed.back().weight()};
    };
    const ExpertArgs args{.gate = stack(gate_),
                          .up = stack(up_),
                          .down = stack(down_),
                          .x = x_.data() + first * k_,
                          .rows = count,
                          .value = 1,
                          .route = route_.data() + first * 2 * used_,
                          .used = used_,
                          .hadamard = transform()};
    std::vector<float> out(static_cast<std::size_t>(count * k_), -1.f);
    runner.run(args, out.data());
    return out;
  }

  std::vector<double> definition(std::int64_t row) const {
    std::vector<double> out(static_cast<std::size_t>(k_), 0);
    for (std::int64_t j = 0; j < used_; ++j) {
      const auto e = static_cast<std::int64_t>(route_[static_cast<std::size_t>(row * 2 * used_ + j)]);
      const double weight = static_cast<double>(route_[static_cast<std::size_t>((row * 2 + 1) * used_ + j)]);
      std::vector<double> act;
      for (std::int64_t n = 0; n < inner_; ++n) {
        const double g = dot(gate_, e * inner_ + n, k_, row), u = dot(up_, e * inner_ + n, k_, row);
        act.push_back(g / (1 + std::exp(-g)) * u);
      }
      for (std::int64_t i = 0; hadamard_ && i < inner_; i += hadamard_->order())
        hadamard_->apply(
            std::span(act).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(hadamard_->order())));
      for (std::int64_t n = 0; n < k_; ++n)
        for (std::int64_t i = 0; i < inner_; ++i)
          out[static_cast<std::size_t>(n)] +=
              weight * act[static_cast<std::size_t>(i)] *
              static_cast<double>(down_.floats[static_cast<std::size_t>((e * k_ + n) * inner_ + i)]);
    }
    return out;
  }

 private:
  HadamardArgs transform() const {
    if (!hadamard_) return {};
    return {hadamard_->order(), hadamard_->core(), hadamard_->core_signs().data(), hadamard_->scale()};
  }

  double dot(const Stack& stack, std::int64_t output, std::int64_t k, std::int64_t row) const {
    double sum = 0;
    for (std::int64_t i = 0; i < k; ++i)
      sum += static_cast<double>(x_[static_cast<std::size_t>(row * k + i)]) *
             static_cast<double>(stack.floats[static_cast<std::size_t>(output * k + i)]);
    return sum;
  }

  std::int64_t k_, inner_, used_;
  std::optional<Hadamard> hadamard_;
  test::Random random_;
  Stack gate_, up_, down_;
  std::vector<float> x_, route_;
};

double worst_error(const std::vector<float>& out, const std::vector<double>& expected) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(out[i]) - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / scale;
}

using enum TensorType;

TEST(Experts, FloatsAreTheDefinition) {
  Layer layer({kF32, kF32, kF32}, 48, 24, 6, 3, 5);  // widths that no tile divides
  for (std::int64_t row = 0; row < 5; ++row) {
    const auto out = layer.run(2, row, 1);
    EXPECT_LT(worst_error(out, layer.definition(row)), 1e-5) << row;
  }
}

TEST(Experts, QuantizedWeightsInFloatsAreTheDefinition) {
  Layer layer({kQ4_0, kQ8_0, kQ6_K}, 256, 256, 4, 2, 2);
  for (std::int64_t row = 0; row < 2; ++row)
    EXPECT_LT(worst_error(layer.run(1, row, 1, /*exact=*/true), layer.definition(row)), 1e-5) << row;
}

TEST(Experts, CodesComeClose) {
  for (const Types& types : {Types{kQ4_0, kQ4_0, kQ4_0},
                             {kQ8_0, kQ8_0, kQ8_0},
                             {kQ4_0, kQ8_0, kF32},
                             {kQ4_K, kQ4_K, kQ6_K},
                             {kF16, kQ5_0, kQ4_1}}) {
    Layer layer(types, 256, 256, 4, 2, 3);
    for (std::int64_t row = 0; row < 3; ++row)
      EXPECT_LT(worst_error(layer.run(2, row, 1), layer.definition(row)), 0.03)
          << codec(types.gate).name << ' ' << codec(types.down).name;
  }
}

TEST(Experts, ARowIsTheSameInEveryCompanyOnEveryThread) {
  for (const Types& types : {Types{kF32, kF32, kF32},
                             {kF16, kF16, kF16},
                             {kBF16, kBF16, kBF16},
                             {kF32, kBF16, kF16},
                             {kBF16, kQ4_0, kQ8_0},
                             {kQ4_0, kQ4_0, kBF16},
                             {kQ4_0, kQ4_0, kQ4_0},
                             {kQ8_0, kQ8_0, kQ8_0},
                             {kQ4_K, kQ4_K, kQ6_K}}) {
    Layer layer(types, 256, 512, 5, 3, 70);
    const auto all = layer.run(3, 0, 70);
    for (const auto& [first, count] : {std::pair{0, 1}, {3, 1}, {69, 1}, {10, 7}, {20, 50}}) {
      const auto part = layer.run(1 + first % 2, first, count);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first * 256))
          << codec(types.gate).name << " rows " << first << " to " << first + count;
    }
  }
}

TEST(Experts, TransformedInputsOfDownInEveryForm) {
  for (const Types& types : {Types{kF32, kF32, kF32},
                             {kF16, kF16, kF16},
                             {kQ4_0, kQ4_0, kQ4_0},
                             {kQ8_0, kQ4_0, kF32},
                             {kQ4_K, kQ4_K, kQ6_K}})
    for (const std::int64_t order : {256, 24, 768})
      for (const bool super : {false, true}) {
        if (super && types.down != kQ4_0 && types.down != kF16) continue;
        Layer layer(types, 256, 768, 5, 3, 20);
        const auto plain = layer.run(2, 0, 20, false, nullptr, super);
        layer.turn(order);
        const auto all = layer.run(2, 0, 20, false, nullptr, super), part = layer.run(1, 3, 9, false, nullptr, super);
        EXPECT_NE(all, plain);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 3 * 256)) << codec(types.down).name;
        for (const std::int64_t row : {0, 7})
          EXPECT_LT(worst_error({all.begin() + row * 256, all.begin() + (row + 1) * 256}, layer.definition(row)),
                    types.down == kF32 && types.gate == kF32 ? 1e-5 : 0.03)
              << codec(types.down).name << " order " << order << (super ? " super" : "");
      }
}

TEST(Experts, LongRowsOfCodesAreTheSameInEveryCompany) {
  // 1024 codes and more have rounded scales, and tiles of many rows multiply them in another way.
  Layer layer({kQ4_0, kQ4_0, kQ4_0}, 1024, 1024, 4, 2, 60);
  const auto all = layer.run(2, 0, 60);
  for (const auto& [first, count] : {std::pair{0, 1}, {7, 13}}) {
    const auto part = layer.run(1, first, count);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first * 1024));
  }
}

TEST(Experts, FloatsPackedOrAsTheyStandAreTheSameBits) {
  // BF16 is a special case: with packed BF16 weights, rows are rounded.
  for (const TensorType type : {kF32, kF16}) {
    Layer layer({type, type, type}, 80, 48, 6, 3, 25);
    EXPECT_EQ(layer.run(2, 0, 25), layer.run(2, 0, 25, /*exact=*/true)) << codec(type).name;
  }
}

TEST(Experts, BFloat16ComesClose) {
  Layer layer({kBF16, kBF16, kBF16}, 256, 128, 4, 2, 3);
  for (std::int64_t row = 0; row < 3; ++row)
    EXPECT_LT(worst_error(layer.run(2, row, 1), layer.definition(row)), 0.01) << row;
}

TEST(Experts, SuperComesCloseAndIsTheSameInEveryCompanyOnEverySet) {
  for (const Types& types : {Types{kQ4_0, kQ4_0, kQ4_0},
                             {kQ4_K, kQ4_K, kQ6_K},
                             {kQ8_0, kF32, kMXFP4},
                             {kF16, kF16, kF16},
                             {kBF16, kF16, kBF16}}) {
    Layer layer(types, 256, 512, 5, 3, 70);
    const auto all = layer.run(3, 0, 70, false, "scalar", true);
    EXPECT_NE(all, layer.run(3, 0, 70, false, "scalar"));
    for (std::int64_t row = 0; row < 70; row += 23)
      EXPECT_LT(worst_error({all.begin() + row * 256, all.begin() + (row + 1) * 256}, layer.definition(row)), 0.03)
          << codec(types.gate).name << " row " << row;
    KernelSetEntry entries[kMaxKernelSets];
    const int sets = list_kernel_sets(entries);
    for (int i = 0; i < sets; ++i)
      for (const auto& [first, count] : {std::pair{0, 70}, {3, 1}, {10, 7}, {20, 50}}) {
        if (!entries[i].available) continue;
        const auto part = layer.run(1 + first % 2, first, count, false, entries[i].set->name, true);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first * 256))
            << codec(types.gate).name << " rows " << first << " to " << first + count << ", " << entries[i].set->name;
      }
  }
}

TEST(Experts, EveryKernelSetGivesTheSameBits) {
  for (const Types& types : {Types{kQ4_0, kQ4_0, kQ8_0}, {kBF16, kBF16, kBF16}, {kF16, kF32, kBF16}}) {
    Layer layer(types, 256, 256, 4, 2, 21);
    const auto expected = layer.run(2, 0, 21, false, "scalar");
    KernelSetEntry entries[kMaxKernelSets];
    const int count = list_kernel_sets(entries);
    for (int i = 0; i < count; ++i)
      if (entries[i].available) {
        EXPECT_EQ(layer.run(2, 0, 21, false, entries[i].set->name), expected) << entries[i].set->name;
      }
  }
}

}  // namespace
}  // namespace dllm::cpu
