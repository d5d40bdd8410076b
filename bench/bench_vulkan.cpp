// Products on a device of Vulkan, by its own timestamps: every shader and tile on the shapes of LLaDA-8B and LLaDA-MoE,
// beside what the device's memory and its integer units give in the same run. Every plan must have the bits of the
// shader that runs on all devices, and that one those of the scalar kernels.
//
//   dllm_bench_vulkan [peaks|choice|sweep] [DEVICE] [float64]
//
// With "float64" the device is not asked by the self-test how it computes: for drivers that fail it in numbers which
// these products do not have.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"
#include "cpu/packed_weights.h"
#include "vulkan/buffer.h"
#include "vulkan/commands.h"
#include "vulkan/operators.h"
#include "vulkan/peaks.h"
#include "vulkan/timestamps.h"

namespace dllm::vulkan {
namespace {

struct Rig {
  std::shared_ptr<Device> device;
  Arithmetic arithmetic;
  std::unique_ptr<Operators> operators;
  DevicePeaks peaks;
  ThreadPool pool{16};

  Expected<Buffer> put(std::span<const std::byte> bytes) const {
    DLLM_TRY(Buffer buffer, Buffer::make(device, static_cast<std::int64_t>(bytes.size()), Place::kDevice, "a test"));
    DLLM_CHECK_OK(Uploader(device).copy(buffer, bytes));
    return buffer;
  }
  Expected<Buffer> room(std::int64_t bytes) const { return Buffer::make(device, bytes, Place::kDevice, "a test"); }

  /// Seconds of what `record` records, the least of three runs.
  template <class Record>
  Expected<double> time(const Record& record) const {
    DLLM_TRY(const Timestamps times, Timestamps::make(device, 2));
    DLLM_TRY(Commands commands, Commands::begin(device));
    commands.stamp(times, 0);
    record(commands);
    commands.stamp(times, 1);
    DLLM_CHECK_OK(commands.end());
    double least = 1e9;
    for (int run = 0; run < 3; ++run) {
      DLLM_CHECK_OK(commands.run("a test"));
      DLLM_TRY(const std::vector<double> noted, times.read(2));
      least = std::min(least, noted[1] * 1e-9);
    }
    return least;
  }
};

Expected<void> show_peaks(Rig& rig) {
  DLLM_TRY(rig.peaks, measure_peaks(rig.device));
  const DevicePeaks& peaks = rig.peaks;
  fmt::print("read {:.0f} GB/s, fma {:.1f} TFLOPS, dots {:.1f} TOPS", peaks.read * 1e-9, peaks.floats * 1e-12,
             peaks.dots * 1e-12);
  const auto show = [](const char* type, double rate, const MatrixShape& shape) {
    if (rate > 0) fmt::print(", {} matrices {}x{}x{} {:.1f} TOPS", type, shape.m, shape.n, shape.k, rate * 1e-12);
  };
  show("int8", peaks.matrices, peaks.matrix_shape);
  show("F16", peaks.halves, peaks.half_shape);
  DLLM_TRY(const ProductUnits* const units, rig.operators->product_units());
  if (units->layout) fmt::print(" (layout {:08x})", *units->layout);
  fmt::print("\n");
  return {};
}

/// Random blocks, a piece of them over and over: weights of any size quickly.
std::vector<std::byte> random_matrix(TensorType type, std::int64_t count) {
  cpu::test::Random random(38);
  for (const auto& layout : cpu::test::kBlockLayouts) {
    if (layout.type != type) continue;
    const std::int64_t piece = std::min<std::int64_t>(count, std::int64_t{1021} * 256);
    const std::vector<std::byte> some = cpu::test::random_blocks(random, layout, piece);
    std::vector<std::byte> all(static_cast<std::size_t>(count / layout.elems * layout.bytes));
    for (std::size_t at = 0; at < all.size(); at += some.size())
      std::memcpy(all.data() + at, some.data(), std::min(some.size(), all.size() - at));
    return all;
  }
  return {};
}

/// A matrix on the device, as often as it takes to be larger than caches, and rows of x for it.
struct Case {
  TensorType type;
  std::int64_t k, n, rows;
  std::vector<Buffer> copies;
  Buffer x, values, scales, sums, count, out;
  DeviceMatrix matrix;
  std::vector<float> expected;  ///< by the scalar kernels, if it is small
  DeviceCodes codes() const { return {values.address(), scales.address(), sums.address()}; }
};

Expected<Case> make_case(Rig& rig, TensorType type, std::int64_t k, std::int64_t n, std::int64_t most_rows) {
  Case made{type, k, n, most_rows, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  const std::vector<std::byte> weights = random_matrix(type, k * n);
  const WeightView view{type, {k, n}, weights};
  const cpu::PackedMatrix packed(view, rig.pool);
  const cpu::PackedWeight& weight = packed.weight();
  const std::int64_t bytes = weight.panel_count() * weight.panel_bytes();
  const bool processor = rig.device->facts().type == VK_PHYSICAL_DEVICE_TYPE_CPU;
  const std::int64_t copies = processor ? 1 : std::clamp<std::int64_t>((std::int64_t{400} << 20) / bytes, 2, 32);
  for (std::int64_t i = 0; i < copies; ++i) {
    DLLM_TRY(Buffer buffer,
             rig.put({reinterpret_cast<const std::byte*>(weight.panels), static_cast<std::size_t>(bytes)}));
    made.copies.push_back(std::move(buffer));
  }
  cpu::test::Random random(7);
  const std::vector<float> x = cpu::test::random_floats(random, most_rows * k, 4.f);
  DLLM_TRY(made.x, rig.put(std::as_bytes(std::span(x))));
  DLLM_TRY(made.values, rig.room(most_rows * k));
  DLLM_TRY(made.scales, rig.room(most_rows * k / 8));
  DLLM_TRY(made.sums, rig.room(most_rows * k / 4));
  DLLM_TRY(made.out, Buffer::make(rig.device, most_rows * n * 4, Place::kShared, "a test"));
  DLLM_TRY(made.count, Buffer::make(rig.device, 16, Place::kShared, "a test"));
  made.matrix = {made.copies[0].address(), weight.format, weight.layout, k, n};
  DLLM_TRY(const Launch quantize,
           rig.operators->quantize(k, cpu::LinearRunner::exact_activations(weight), made.x.address(), made.codes()));
  DLLM_TRY(Commands commands, Commands::begin(rig.device));
  commands.dispatch(*quantize.pipeline, quantize.push, quantize.groups(most_rows));
  DLLM_CHECK_OK(commands.end());
  DLLM_CHECK_OK(commands.run("a test"));
  if (k * n <= 4096 * 4096 && most_rows >= 8) {
    made.expected.resize(static_cast<std::size_t>(8 * n));
    cpu::LinearRunner runner(*cpu::find_kernel_set("scalar"), rig.pool);
    runner.run(runner.prepare(view, &weight, nullptr, x.data(), 8, 0), n, made.expected.data());
  }
  return made;
}

/// The product of some rows, of the first copy; its bits.
Expected<std::vector<float>> results(Rig& rig, Case& test, std::int64_t rows) {
  const std::int64_t count = rows * test.n;
  std::fill_n(test.out.as<float>(), count, 1234.5f);
  *test.count.as<std::int32_t>() = static_cast<std::int32_t>(rows);
  DLLM_TRY(const Launch launch,
           rig.operators->linear(test.matrix, 0, test.codes(), 0, {test.count.address(), rows}, test.out.address()));
  DLLM_TRY(Commands commands, Commands::begin(rig.device));
  commands.dispatch(*launch.pipeline, launch.push, launch.groups(rows));
  DLLM_CHECK_OK(commands.end());
  DLLM_CHECK_OK(commands.run("a test"));
  return std::vector<float>(test.out.as<float>(), test.out.as<float>() + count);
}

std::int64_t bits_differ(const std::vector<float>& a, const std::vector<float>& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += std::memcmp(&a[i], &b[i], 4) != 0 ? 1 : 0;
  return count;
}

Expected<void> run_plan(Rig& rig, Case& test, const Buffer& device_out, std::int64_t rows,
                        const std::optional<ProductPlan>& plan, const std::vector<float>& right) {
  rig.operators->force(plan);
  DLLM_TRY(const std::vector<float> seen, results(rig, test, rows));
  std::vector<Launch> launches;
  for (const Buffer& copy : test.copies) {
    test.matrix.panels = copy.address();
    DLLM_TRY(const Launch launch, rig.operators->linear(test.matrix, 0, test.codes(), 0, {test.count.address(), rows},
                                                        device_out.address()));
    launches.push_back(launch);
  }
  test.matrix.panels = test.copies[0].address();
  DLLM_TRY(const double seconds, rig.time([&](Commands& commands) {
    for (const Launch& launch : launches) {
      commands.dispatch(*launch.pipeline, launch.push, launch.groups(rows));
      commands.barrier();
    }
  }));
  const double one = seconds / static_cast<double>(launches.size());
  const double bytes = static_cast<double>(test.copies[0].bytes()),
               ops = 2.0 * static_cast<double>(test.k * test.n * rows);
  const ProductPlan shown =
      plan ? *plan : plan_product(*test.matrix.format, test.n, rows, false, **rig.operators->product_units());
  fmt::print("{:5} {:5} x {:6} rows {:3} {}{:24} {:9.1f} us {:6.0f} GB/s {:5.1f} % {:6.1f} TOPS {}\n",
             codec(test.type).name, test.k, test.n, rows, plan ? ' ' : '*',
             shown.name() + (shown.shader == ProductShader::kDots ? fmt::format("_{}", shown.rows) : ""), one * 1e6,
             bytes / one * 1e-9, 100 * bytes / one / rig.peaks.read, ops / one * 1e-12,
             bits_differ(seen, right) == 0 ? "ok" : fmt::format("{} BITS DIFFER", bits_differ(seen, right)));
  std::fflush(stdout);
  return {};
}

/// What stands between products, at a number of rows: each operator 32 times, one after the other.
Expected<void> run_others(Rig& rig, std::int64_t rows) {
  constexpr std::int64_t kWidth = 12288, kTimes = 32;
  Operators& operators = *rig.operators;
  cpu::test::Random random(7);
  const std::vector<float> x = cpu::test::random_floats(random, rows * kWidth, 4.f);
  DLLM_TRY(const Buffer from, rig.put(std::as_bytes(std::span(x))));
  DLLM_TRY(const Buffer to, rig.room(rows * kWidth * 4));
  DLLM_TRY(const Buffer scratch, rig.room(rows * kWidth * 4));
  const DeviceCodes codes{to.address(), scratch.address(),
                          scratch.address() + static_cast<VkDeviceAddress>(rows * kWidth)};
  const auto show = [&](std::string_view name, const Expected<Launch>& launch) -> Expected<void> {
    if (!launch) return launch.error();
    DLLM_TRY(const double seconds, rig.time([&](Commands& commands) {
      for (std::int64_t i = 0; i < kTimes; ++i) {
        commands.dispatch(*launch->pipeline, launch->push, launch->groups(rows));
        commands.barrier();
      }
    }));
    fmt::print("{:24} rows {:3} {:8.2f} us\n", name, rows, seconds / kTimes * 1e6);
    return {};
  };
  DLLM_CHECK_OK(show("add 64", operators.add(64, from.address(), from.address(), to.address())));
  DLLM_CHECK_OK(show("add 4096", operators.add(4096, from.address(), from.address(), to.address())));
  DLLM_CHECK_OK(show("rms_norm 4096",
                     operators.rms_norm({0, 0, 1e-5f, 1, 1}, 4096, from.address(), from.address(), to.address())));
  DLLM_CHECK_OK(show("quantize 4096", operators.quantize(4096, true, from.address(), codes)));
  DLLM_CHECK_OK(show("quantize 12288", operators.quantize(12288, false, from.address(), codes)));
  return show("glu 12288",
              operators.glu({0, 1, 2, Activation::kSilu}, 12288, from.address(), from.address(), to.address()));
}

/// The plans that this build and device have, for a number of rows.
std::vector<ProductPlan> plans_of(const cpu::PackedFormat& format, std::int64_t rows, const ProductUnits& units) {
  std::vector<ProductPlan> plans{{ProductShader::kDots, static_cast<std::uint32_t>(std::min<std::int64_t>(rows, 8))}};
  for (const std::uint32_t tile : {8U, 32U})
    for (const std::uint32_t subgroups : {2U, 4U})
      for (const std::uint32_t chunk : {8U, 16U})
        plans.push_back({ProductShader::kMatrices, tile, subgroups, chunk, units.layout.value_or(0)});
  for (std::uint32_t kernel = 0; kernel < kPairsKernel; ++kernel)
    plans.push_back({ProductShader::kKernel, kProductKernels[kernel].rows, 0, 0, 0, kernel});
  std::erase_if(plans, [&](const ProductPlan& plan) { return !runs(plan, format, units); });
  return plans;
}

Expected<void> run_shape(Rig& rig, TensorType type, std::int64_t k, std::int64_t n, bool sweep) {
  DLLM_TRY(Case test, make_case(rig, type, k, n, 256));
  DLLM_TRY(const Buffer device_out, rig.room(256 * n * 4));
  for (const std::int64_t rows : {32, 8, 1, 256}) {
    if (sweep && (rows == 256 && n > 5000)) continue;
    rig.operators->force(ProductPlan{});
    DLLM_TRY(const std::vector<float> right, results(rig, test, rows));
    if (rows >= 8 && !test.expected.empty())
      if (const auto wrong = bits_differ(right, test.expected); wrong != 0)
        fmt::print("{} of the scalar kernels' BITS DIFFER\n", wrong);
    if (!sweep || k * n <= 4096 * 4096) DLLM_CHECK_OK(run_plan(rig, test, device_out, rows, ProductPlan{}, right));
    DLLM_CHECK_OK(run_plan(rig, test, device_out, rows, std::nullopt, right));
    if (!sweep) continue;
    for (const ProductPlan& plan : plans_of(*test.matrix.format, rows, **rig.operators->product_units()))
      DLLM_CHECK_OK(run_plan(rig, test, device_out, rows, plan, right));
  }
  return {};
}

Expected<void> run_all(const std::string& what, const std::string& name, bool tested) {
  Rig rig;
  DLLM_TRY(rig.device, Device::open({name, false}));
  const DeviceFacts& facts = rig.device->facts();
  if (tested) {
    DLLM_TRY(rig.arithmetic, test_device(rig.device));
  }
  rig.operators = std::make_unique<Operators>(rig.device, rig.arithmetic);
  fmt::print("{}: {}; subgroup {}, {} bytes shared, dots {}\n", facts.name, rig.arithmetic.description(),
             facts.subgroup, facts.most_shared, facts.has_dots);
  for (const MatrixShape& shape : facts.matrices) fmt::print("int8 matrices {} x {} x {}\n", shape.m, shape.n, shape.k);
  for (const MatrixShape& shape : facts.half_matrices)
    fmt::print("F16 matrices {} x {} x {}\n", shape.m, shape.n, shape.k);
  DLLM_CHECK_OK(show_peaks(rig));
  for (const std::int64_t rows : {1, 32}) DLLM_CHECK_OK(run_others(rig, rows));
  if (what == "peaks") return {};
  const bool sweep = what == "sweep";
  if (facts.type == VK_PHYSICAL_DEVICE_TYPE_CPU) {
    for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kIQ4_NL})
      DLLM_CHECK_OK(run_shape(rig, type, 512, 64, sweep));
    return {};
  }
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0}) {
    DLLM_CHECK_OK(run_shape(rig, type, 4096, 4096, sweep));
    DLLM_CHECK_OK(run_shape(rig, type, 4096, 12288, sweep && type == TensorType::kQ4_0));
    DLLM_CHECK_OK(run_shape(rig, type, 12288, 4096, sweep && type == TensorType::kQ4_0));
    DLLM_CHECK_OK(run_shape(rig, type, 2048, 1024, false));
  }
  return run_shape(rig, TensorType::kQ4_0, 4096, 126464, false);
}

}  // namespace
}  // namespace dllm::vulkan

int main(int argc, char** argv) {
  const auto done = dllm::vulkan::run_all(argc > 1 ? argv[1] : "choice", argc > 2 ? argv[2] : "", argc < 4);
  if (!done) fmt::print("{}\n", done.error().message());
  return done ? 0 : 1;
}
