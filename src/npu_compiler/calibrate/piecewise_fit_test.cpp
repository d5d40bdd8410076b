#include "npu_compiler/calibrate/piecewise_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace dllm::npu {
namespace {

using State = FittedParameter::State;

MeasuredTime one_operator(std::vector<LinearForm> forms, const std::vector<double>& truth, double noise = 0) {
  MeasuredTime time{1, 0, {{std::move(forms), 1}}};
  time.seconds = model_seconds(time, truth) * (1 + noise);
  return time;
}

TEST(PiecewiseFit, LongestForm) {
  const MeasuredTime time{1, 0.5, {{{{1, {{0, 2}}}, {0, {{1, 3}}}}, 1}, {{{0, {{1, 0.5}}}}, 2}}};
  EXPECT_DOUBLE_EQ(model_seconds(time, {1, 2}), 0.5 + 6 + 2);
  EXPECT_DOUBLE_EQ(model_seconds(time, {3, 2}), 0.5 + 7 + 2);
}

/// Random problems with planted values far from the given ones: operators limited by one of three units, and a cost
/// of each.
TEST(PiecewiseFit, RecoversPlantedValues) {
  std::mt19937 random(11);
  const auto number = [&random](double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random));
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<double> truth, given;
    for (int p = 0; p < 4; ++p) truth.push_back(number(0.1, 10)), given.push_back(truth.back() * number(0.1, 10));
    std::vector<MeasuredTime> measured;
    for (int m = 0; m < 40; ++m)
      measured.push_back(one_operator({{0, {{0, number(0.1, 10)}, {3, 1}}},
                                       {0, {{1, number(0.1, 10)}, {3, 1}}},
                                       {0, {{2, number(0.1, 10)}, {3, 1}}}},
                                      truth));
    const PiecewiseFit fit = fit_piecewise(measured, given);
    EXPECT_LT(fit.worst, 1e-4) << round;
    for (std::size_t p = 0; p < 4; ++p) {
      std::vector<double> other = truth;
      other[p] *= 1.001;
      bool limits = false;
      for (const MeasuredTime& one : measured) limits = limits || model_seconds(one, other) != one.seconds;
      ASSERT_EQ(fit.parameters[p].state == State::kFitted, limits) << round << ' ' << p;
      if (!limits) continue;
      EXPECT_NEAR(fit.parameters[p].value / truth[p], 1, 1e-3) << round << ' ' << p;
    }
  }
}

TEST(PiecewiseFit, ErrorsCoverTheNoise) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.03);
  const std::vector<double> truth = {2, 5};
  int covered = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<MeasuredTime> measured;
    for (int m = 1; m <= 12; ++m) measured.push_back(one_operator({{0, {{0, 1}, {1, 0.1 * m}}}}, truth, noise(random)));
    const PiecewiseFit fit = fit_piecewise(measured, {1, 1});
    EXPECT_GT(fit.rms, 0.005);
    for (std::size_t p = 0; p < 2; ++p)
      covered += std::abs(fit.parameters[p].value / truth[p] - 1) < 2 * fit.parameters[p].error ? 1 : 0;
  }
  EXPECT_GE(covered, 85);  // of 100, with a mean of 95
}

TEST(PiecewiseFit, NamesWhatIsNotDetermined) {
  const std::vector<double> truth = {2, 3, 4, 5, 6}, given = {1, 1, 1, 1, 1};
  std::vector<MeasuredTime> measured;
  for (int m = 1; m <= 6; ++m)  // 0 alone; the sum of 1 and 2; 3 never; 4 never the longest
    measured.push_back(one_operator({{0, {{0, 1. * m}, {1, 1}, {2, 1}}}, {0, {{4, 1e-3}}}}, truth));
  const PiecewiseFit fit = fit_piecewise(measured, given);
  EXPECT_EQ(fit.parameters[1].state, State::kInseparable);
  EXPECT_EQ(fit.parameters[1].with, std::vector<std::size_t>{2});
  EXPECT_EQ(fit.parameters[2].with, std::vector<std::size_t>{1});
  EXPECT_EQ(fit.parameters[3].state, State::kUnused);
  EXPECT_EQ(fit.parameters[4].state, State::kUnused);
  for (std::size_t p = 1; p < 5; ++p) EXPECT_EQ(fit.parameters[p].value, 1);
}

/// Two units with the same work in every measurement: one of them limits, and nothing says which. The other is then at
/// least as fast.
TEST(PiecewiseFit, NamesAlternatives) {
  std::vector<MeasuredTime> measured;
  for (int m = 1; m <= 6; ++m) measured.push_back(one_operator({{0, {{0, 1. * m}}}, {0, {{1, 2. * m}}}}, {3, 1}));
  const PiecewiseFit fit = fit_piecewise(measured, {1, 4});
  EXPECT_LT(fit.worst, 1e-6);
  const std::size_t fitted = fit.parameters[0].state == State::kFitted ? 0 : 1;
  EXPECT_EQ(fit.parameters[fitted].state, State::kFitted);
  EXPECT_EQ(fit.parameters[fitted].with, std::vector<std::size_t>{1 - fitted});
  if (fitted == 0) {
    EXPECT_EQ(fit.parameters[1].state, State::kBounded);
    EXPECT_NEAR(fit.parameters[1].value, 1.5, 1e-4);
  }
}

TEST(PiecewiseFit, OneNoisyPointIsVague) {
  const std::vector<double> truth = {1, 1};
  std::vector<MeasuredTime> measured;
  for (int m = 1; m <= 5; ++m)
    measured.push_back(one_operator({{0, {{0, 1. * m}, {1, 0.001}}}}, truth, m % 2 == 0 ? 0.2 : -0.2));
  const PiecewiseFit fit = fit_piecewise(measured, {1, 1});
  EXPECT_NE(fit.parameters[1].state, State::kFitted);
  EXPECT_EQ(fit.parameters[1].value, 1);
}

}  // namespace
}  // namespace dllm::npu
