// Micro-benchmarks of the CPU backend's products with weights; bench_attention.cpp has the rest. `items_per_second`
// counts operations (a multiply and an add are two), or logits for the head; `bytes_per_second` counts the bytes of
// weights read.
//
//   dllm_bench_kernels --benchmark_filter='linear/avx512/Q4_0'
//   DLLM_BENCH_THREADS=2 dllm_bench_kernels        (default: every CPU)

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"
#include "cpu/score_head.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {

int bench_threads() {
  const char* value = std::getenv("DLLM_BENCH_THREADS");
  const int wanted = value == nullptr ? 0 : std::atoi(value);
  return wanted > 0 ? wanted : default_thread_count();
}

// Each file registers its own benchmarks; a new kernel needs a file here and a line in register_all().
void register_attention();
void register_peaks();
void register_steps();

namespace {

using test::Random;

std::vector<std::byte> random_weight(Random& random, TensorType type, std::int64_t elems) {
  for (const test::BlockLayout& layout : test::kBlockLayouts)
    if (layout.type == type) return random_blocks(random, layout, elems);
  if (type != TensorType::kF32) return random_words(random, type, elems);
  const std::vector<float> values = random_floats(random, elems);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// How a product is computed.
struct LinearConfig {
  Decoding decoding = Decoding::kDefault;
  bool super = false;      ///< the arithmetic `super`
  bool rows_kept = false;  ///< the rows are quantized once, before
};

std::unique_ptr<PackedMatrix> packed_matrix(const WeightView& weight, ThreadPool& pool, bool super) {
  return packed_format(weight.type) == nullptr ? nullptr : std::make_unique<PackedMatrix>(weight, pool, super);
}

/// x [rows][4096] times W [n][4096], including the preparation of activations unless they are kept.
void linear(benchmark::State& state, const KernelSet* set, TensorType type, std::int64_t rows, std::int64_t n,
            LinearConfig config) {
  const std::int64_t k = 4096;
  Random random(1);
  const std::vector<std::byte> data = random_weight(random, type, n * k);
  const std::vector<float> x = random_floats(random, rows * k);
  std::vector<float> out(static_cast<std::size_t>(rows * n));
  const WeightView weight{type, {k, n}, data};
  ThreadPool pool(bench_threads());
  LinearRunner runner(*set, pool, config.decoding);
  const auto packed = packed_matrix(weight, pool, config.super);
  for (auto _ : state) {
    if (!config.rows_kept) runner.forget();
    runner.run(runner.prepare(weight, packed ? &packed->weight() : nullptr, nullptr, x.data(), rows, 0), n, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * 2 * rows * k * n);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(data.size()));
}

/// The fused head: `rows` scored rows, width 1024, 32768 tokens of Q8_0.
void head(benchmark::State& state, const KernelSet* set, std::int64_t rows) {
  const std::int64_t k = 1024, vocab = 32768;
  Random random(4);
  const std::vector<std::byte> data = random_weight(random, TensorType::kQ8_0, vocab * k);
  const std::vector<float> x = random_floats(random, rows * k);
  const WeightView weight{TensorType::kQ8_0, {k, vocab}, data};
  ThreadPool pool(bench_threads());
  LinearRunner runner(*set, pool);
  const PackedMatrix packed(weight, pool);
  ScoreHead score_head(*set, pool, runner);
  std::vector<SequenceStep> batch(1);
  for (std::int64_t r = 0; r < rows; ++r) {
    batch[0].plan.rows.push_back({static_cast<Position>(r), 0});
    batch[0].plan.scored.push_back(static_cast<std::int32_t>(r));
  }
  for (auto _ : state) {
    runner.forget();
    score_head.arrange(batch, vocab);
    std::vector<Scores> scores(1);
    score_head.run(runner.prepare(weight, &packed.weight(), nullptr, x.data(), rows, 0), vocab, scores);
    benchmark::DoNotOptimize(scores.data());
  }
  state.SetItemsProcessed(state.iterations() * 2 * rows * k * vocab);
}

void register_set(const KernelSet* set) {
  const std::string isa = set->name;
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseRealTime()->Unit(benchmark::kMicrosecond);
  };
  const auto add_linear = [&](const Codec& format, std::int64_t rows, LinearConfig config, const std::string& suffix,
                              std::int64_t n = 4096) {
    add("linear/" + isa + "/" + std::string(format.name) + "/rows:" + std::to_string(rows) + suffix,
        [=, type = format.type](benchmark::State& state) { linear(state, set, type, rows, n, config); });
  };
  for (const Codec* format : all_codecs())
    for (std::int64_t rows : {1, 8, 32, 64, 128, 256}) {
      add_linear(*format, rows, {}, "");
      const PackedFormat* packed = packed_format(format->type);
      const bool choice = set->per_block_rows > 0 && rows >= set->per_block_rows;
      if (choice && packed != nullptr && narrower_than_byte(packed->codes))
        add_linear(*format, rows, {.decoding = Decoding::kPerBlock}, "/decoding:per-block");
      if (set->exact_tile_rows > 0 && rows >= set->exact_tile_rows && packed != nullptr && !packs_floats(*packed))
        add_linear(*format, rows, {.decoding = Decoding::kTiles}, "/decoding:tiles");
      // 256 outputs stay in L2: what the kernel itself takes, without reads from memory.
      if (runs_super(format->type)) {
        add_linear(*format, rows, {.super = true}, "/super");
        add_linear(*format, rows, {.super = true, .rows_kept = true}, "/super/outputs:256", 256);
      }
    }
  for (std::int64_t rows : {1, 32})
    add("head/" + isa + "/rows:" + std::to_string(rows),
        [set, rows](benchmark::State& state) { head(state, set, rows); });
}

}  // namespace

void register_all() {
  register_peaks();
  KernelSetEntry entries[kMaxKernelSets];
  const int count = list_kernel_sets(entries);
  // The scalar set is the reference, not for use: it is left out.
  for (int i = 1; i < count; ++i)
    if (entries[i].available) register_set(entries[i].set);
  register_attention();
  register_steps();
}

}  // namespace dllm::cpu

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  dllm::cpu::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
