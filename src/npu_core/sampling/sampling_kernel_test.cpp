#include <gtest/gtest.h>

#include "npu_core/device/profile.h"
#include "npu_core/machine/machine.h"
#include "npu_core/sampling/closed_form.h"
#include "npu_core/sampling/kernel.h"
#include "npu_core/sampling/reference.h"
#include "npu_core/sampling/testing/published_forms.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

Device device(const std::string& name, std::vector<Override> overrides = {}) {
  auto found = load_device(name, overrides);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message());
  return *found;
}

SamplingKernel kernel_of(const Device& device, const SamplingShape& shape) {
  auto kernel = build_sampling(device, shape);
  EXPECT_TRUE(kernel.has_value()) << (kernel ? "" : kernel.error().message());
  return kernel ? *std::move(kernel) : SamplingKernel{};
}

void expect_like_reference(const Device& device, const SamplingShape& shape, std::uint64_t seed) {
  const SamplingKernel kernel = kernel_of(device, shape);
  if (kernel.program.size() == 0) return;
  const SamplingInputs inputs = random_sampling_inputs(kernel.shape, seed);
  std::vector<std::vector<std::uint8_t>> later;
  const SamplingOutputs expected = sample_plainly(kernel, inputs, &later);
  Machine machine = *Machine::create(kernel.machine);
  load_sampling(kernel, inputs, later, machine.state());
  const auto run = machine.run(kernel.program);
  ASSERT_TRUE(run.has_value()) << run.error().message();
  const SamplingOutputs found = read_sampling(kernel, machine.state());
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.predicted, expected.predicted);
  EXPECT_EQ(found.confidences, expected.confidences);
  if (shape.form != SamplingForm::kPublished) {
    EXPECT_EQ(found.undecided, expected.undecided);
  }
}

class SamplingForms : public ::testing::TestWithParam<SamplingShape> {};

TEST_P(SamplingForms, DoWhatPlainLoopsDo) {
  expect_like_reference(device("plena-64"), GetParam(), 1);
  expect_like_reference(device("dart-512", {{"numerics.logits", "mxfp8_e4m3:8:plena"}}), GetParam(), 2);
}

SamplingShape shape(SamplingForm form, std::int64_t batch, std::int64_t block, std::int64_t vocab, std::int64_t steps,
                    std::int64_t chunk = 0, std::int64_t preload = 0) {
  SamplingShape s;
  s.form = form;
  s.batch = batch;
  s.block = block;
  s.vocab = vocab;
  s.steps = steps;
  s.chunk = chunk;
  s.preload = preload;
  return s;
}

INSTANTIATE_TEST_SUITE_P(
    All, SamplingForms,
    ::testing::Values(
        shape(SamplingForm::kPublished, 2, 4, 1500, 1), shape(SamplingForm::kPublished, 1, 7, 2048, 3),
        shape(SamplingForm::kPublished, 3, 5, 700, 2, 0, 3), shape(SamplingForm::kChunked, 2, 4, 3000, 1, 512),
        shape(SamplingForm::kChunked, 3, 5, 2048, 4, 1024), shape(SamplingForm::kChunked, 1, 6, 5000, 2, 2048, 3),
        shape(SamplingForm::kChunked, 2, 3, 900, 1), shape(SamplingForm::kOnePass, 2, 4, 1500, 1),
        shape(SamplingForm::kOnePass, 3, 8, 6000, 3), shape(SamplingForm::kOnePass, 2, 5, 1500, 2),
        shape(SamplingForm::kOnePass, 1, 1, 700, 1), shape(SamplingForm::kOnePass, 2, 4, 6000, 2, 1024),
        shape(SamplingForm::kOnePass, 2, 3, 6000, 1, 512), shape(SamplingForm::kOnePass, 1, 12, 9000, 2, 2048, 2)));

SamplingShape drawing(SamplingShape s, double temperature, DrawPrecision precision, bool tempered = false) {
  s.temperature = temperature;
  s.precision = precision;
  s.tempered = tempered;
  return s;
}

/// Drawn tokens and their confidences, in every precision, with one chunk and several, blocks even and odd.
TEST(DrawingSampling, DoesWhatPlainLoopsDo) {
  const Device bf16 = device("plena-64", {{"array.noise_lanes", "8"}, {"numerics.logits", "bf16"}});
  const Device mxfp8 = device("dart-512", {{"array.noise_lanes", "64"}});
  const SamplingShape one = shape(SamplingForm::kOnePass, 2, 4, 1500, 2),
                      many = shape(SamplingForm::kOnePass, 3, 5, 3000, 2, 512);
  for (const DrawPrecision precision : {DrawPrecision::kF64, DrawPrecision::kF32, DrawPrecision::kBF16})
    for (const bool tempered : {false, true}) {
      SCOPED_TRACE(name_of(precision));
      expect_like_reference(bf16, drawing(one, 1.0, precision, tempered), 3);
      expect_like_reference(mxfp8, drawing(many, 0.6, precision, tempered), 4);
    }
}

TEST(DrawingSampling, NeedsGeneratorsAndTheOnePassForm) {
  const auto refused = [](const Device& d, const SamplingShape& s) {
    const auto kernel = build_sampling(d, s);
    return kernel ? "" : kernel.error().message();
  };
  const SamplingShape s = drawing(shape(SamplingForm::kOnePass, 2, 4, 1500, 1), 1, DrawPrecision::kF32);
  EXPECT_NE(refused(device("plena-64"), s).find("no noise generators"), std::string::npos);
  SamplingShape chunked = s;
  chunked.form = SamplingForm::kChunked;
  EXPECT_NE(refused(device("plena-64", {{"array.noise_lanes", "8"}}), chunked).find("does not draw"),
            std::string::npos);
}

/// Generators that finish fewer draws per cycle than the rest of the program needs decide its time.
TEST(DrawingSampling, TakesTheGeneratorsTime) {
  const std::int64_t positions = 2 * 8, vectors = 16;
  Cycle before = 0;
  for (const std::int64_t lanes : {64, 128, 2048}) {
    const Device d = device("dart-2048", {{"array.noise_lanes", std::to_string(lanes)}});
    const SamplingKernel kernel =
        kernel_of(d, drawing(shape(SamplingForm::kOnePass, 2, 8, 2048 * vectors, 1), 1, DrawPrecision::kBF16));
    const auto report = simulate(d, kernel.machine, kernel.program, {});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    const std::int64_t least = positions * vectors * 2048 / lanes;
    EXPECT_EQ(report->pipes[static_cast<std::size_t>(Pipe::kDraw)], least);
    EXPECT_GE(report->total, least);
    SamplingLoad load{.batch = 2, .block = 8, .vocab = 2048 * vectors, .draws = SamplingLoad::kOther};
    EXPECT_EQ(sampling_bounds(d, load).noise, static_cast<double>(least));
    load.draws = SamplingLoad::kNone;
    EXPECT_EQ(sampling_bounds(d, load).noise, 0.0);
    if (lanes == 64) {
      EXPECT_LE(static_cast<double>(report->total), 1.15 * static_cast<double>(least));
    }
    if (before > 0) {
      EXPECT_LT(report->total, before);
    }
    before = report->total;
  }
  // FP64 takes four times the generators' time.
  const Device d = device("dart-2048", {{"array.noise_lanes", "128"}});
  const SamplingKernel kernel =
      kernel_of(d, drawing(shape(SamplingForm::kOnePass, 2, 8, 2048 * vectors, 1), 1, DrawPrecision::kF64));
  const auto report = simulate(d, kernel.machine, kernel.program, {});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->pipes[static_cast<std::size_t>(Pipe::kDraw)], positions * vectors * 4 * 2048 / 128);
}

/// d-PLENA Table III and its implications for other widths; B = 16, L = 32, V = 126,976 (research/lab/npu-sampling.md).
TEST(PublishedSampling, FiguresOfThePapers) {
  struct Row {
    const char* device;
    Cycle vector, scalar;
    std::uint64_t prefetches;
    double total, tolerance;
  };
  TimingOptions options;
  options.issue = IssueMode::kSerial;
  options.compat_scale64 = true;
  for (const Row& row :
       {Row{"dart-2048", 477696, 117412, 7940, 991038, 0.01}, Row{"dart-1024", 953856, 228516, 15876, 1.79e6, 0.01},
        Row{"dart-512", 1906176, 450724, 31748, 3.41e6, 0.10}}) {
    SCOPED_TRACE(row.device);
    const Device published = device(row.device, published_sampling_overrides());
    const SamplingKernel kernel = kernel_of(published, {});
    const auto report = simulate(published, kernel.machine, kernel.program, options);
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->classes.vector, row.vector);
    EXPECT_EQ(report->classes.scalar, row.scalar);
    EXPECT_EQ(report->classes.control + report->classes.hidden, 548);
    EXPECT_EQ(report->ops[static_cast<std::size_t>(Op::H_PREFETCH_V)].count, row.prefetches);
    EXPECT_NEAR(static_cast<double>(report->total), row.total, row.tolerance * row.total);
    EXPECT_EQ(report->read_bytes, static_cast<std::uint64_t>(test::serial_sampling(published, {}).bytes));
    EXPECT_EQ(report->classes.sum(), report->total);
  }
}

/// The simulated program against the closed form, for shapes that no paper reports.
TEST(PublishedSampling, ClosedForm) {
  TimingOptions options;
  options.issue = IssueMode::kSerial;
  for (const SamplingLoad& load : {SamplingLoad{4, 8, 8192, 1, 0, 1}, SamplingLoad{8, 32, 65536, 1, 0, 1}}) {
    const Device d = device("dart-1024");
    const SamplingKernel kernel = kernel_of(d, shape(SamplingForm::kPublished, load.batch, load.block, load.vocab, 1));
    const auto report = simulate(d, kernel.machine, kernel.program, options);
    ASSERT_TRUE(report.has_value()) << report.error().message();
    const test::SerialSampling closed = test::serial_sampling(d, load);
    EXPECT_EQ(report->classes.vector, closed.vector);
    EXPECT_EQ(report->classes.scalar, closed.scalar);
    EXPECT_EQ(report->classes.control, closed.control);
    EXPECT_EQ(report->classes.hidden, closed.hidden);
    EXPECT_EQ(report->ops[static_cast<std::size_t>(Op::H_PREFETCH_V)].count,
              static_cast<std::uint64_t>(closed.prefetches));
  }
}

/// Read once, overlapped and chained: within 1.3 times the larger of memory and chained vector work.
TEST(OnePassSampling, ApproachesItsBound) {
  const Device d = device("dart-2048");
  const SamplingKernel kernel = kernel_of(d, shape(SamplingForm::kOnePass, 16, 32, 126976, 1));
  const auto report = simulate(d, kernel.machine, kernel.program, {});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  SamplingLoad load;
  const double bound = sampling_bounds(d, load).bound();
  EXPECT_GE(static_cast<double>(report->total), bound);
  EXPECT_LE(static_cast<double>(report->total), 1.3 * bound);
  EXPECT_LE(report->seconds(d), 0.13e-3);
}

}  // namespace
}  // namespace dllm::npu
