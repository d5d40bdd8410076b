// Micro-benchmarks of everything in a step besides products with weights: attention, row operators, logit reductions.
//
//   dllm_bench_kernels --benchmark_filter='attention/avx512/F16'
//
// Attention counts two operations per multiply-add of q k^T and of p v. `fma_peak/<threads>` in the same run is the
// processor's limit (12 independent chains of 16-lane multiply-adds, AVX-512 only).

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/attention.h"
#include "cpu/cpu_kv_cache.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "cpu/reduction.h"
#include "numerics/tensor_type.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dllm::cpu {

int bench_threads();  // bench_kernels.cpp
namespace {

using test::Random;

struct AttentionCase {
  std::int32_t heads, kv_heads;
  std::int64_t rows, keys;
};

/// `rows` queries of one layer (head_dim 128) that see `keys` positions. Rotates over as many layers as fill 64 MiB, so
/// that K and V come from memory as in a model.
void attention(benchmark::State& state, const KernelSet* set, TensorType type, const AttentionCase& one, bool bf16) {
  const auto [heads, kv_heads, rows, keys] = one;
  const std::int32_t dim = 128;
  const std::int64_t layer_bytes = 2 * keys * kv_heads * codec(type).row_bytes(dim);
  const auto layers = static_cast<std::int32_t>(std::min<std::int64_t>(32, (std::int64_t{64} << 20) / layer_bytes + 1));
  Random random(2);
  const std::vector<float> q = random_floats(random, rows * heads * dim);
  std::vector<float> out(q.size());
  const std::vector<KvShape> shapes(static_cast<std::size_t>(layers), KvShape{kv_heads, dim});
  auto cache = *CpuKvCache::create(static_cast<Position>(keys), shapes, type);
  const std::vector<float> row = random_floats(random, dim);
  for (std::int32_t layer = 0; layer < layers; ++layer)
    for (std::int64_t head = 0; head < kv_heads; ++head)
      for (std::int64_t p = 0; p < keys; ++p) {
        set->encode_key(type, row.data(), dim, cache->k(layer, head) + p * cache->position_bytes(layer));
        set->encode(type, row.data(), dim, cache->v(layer, head) + p * cache->position_bytes(layer));
      }
  ThreadPool pool(bench_threads());
  AttentionRunner runner(*set, pool, bf16);
  SequenceStep step;
  step.cache = cache.get();
  step.plan.visible = {{0, static_cast<Position>(keys)}};
  for (std::int64_t r = 0; r < rows; ++r) step.plan.rows.push_back({static_cast<Position>(r), 0});
  op::Attention spec{};
  spec.heads = heads, spec.kv_heads = kv_heads, spec.head_dim = dim, spec.scale = 0.088f;
  runner.begin({&step, 1});
  for (auto _ : state) {
    runner.run(spec, q.data(), out.data());
    spec.layer = (spec.layer + 1) % layers;
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * 4 * rows * heads * keys * dim);
  state.SetBytesProcessed(state.iterations() * layer_bytes);
}

/// Reduction of one row of 126464 logits in chunks, without the product that makes them.
void reduction(benchmark::State& state, ScoreRequest request) {
  const std::int64_t vocab = 126464, chunk = 1024;
  Random random(3);
  const std::vector<float> logits = random_floats(random, vocab, 12.f);
  std::vector<float> scratch(static_cast<std::size_t>(chunk));
  const ReductionSpec spec(request, vocab);
  for (auto _ : state) {
    Partial all;
    for (std::int64_t first = 0; first < vocab; first += chunk) {
      const std::int64_t size = std::min(chunk, vocab - first);
      std::copy_n(logits.begin() + first, size, scratch.begin());
      merge(spec,
            reduce_chunk(*default_kernel_set(), spec, 5, static_cast<TokenId>(first),
                         std::span(scratch).first(static_cast<std::size_t>(size))),
            all);
    }
    benchmark::DoNotOptimize(finish(spec, 5, all));
  }
  state.SetItemsProcessed(state.iterations() * vocab);
}

/// One operator over rows in the second-level cache, on one thread.
template <class Body>
void row_operator(const std::string& name, std::int64_t width, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), [width, body](benchmark::State& state) {
    Random random(5);
    const std::vector<float> a = random_floats(random, width, 3.f), b = random_floats(random, width, 3.f);
    std::vector<float> out(static_cast<std::size_t>(2 * width));
    for (auto _ : state) {
      body(a.data(), b.data(), out.data());
      benchmark::DoNotOptimize(out.data());
    }
    state.SetItemsProcessed(state.iterations() * width);
  });
}

void register_rows(const KernelSet* set) {
  const std::string isa = set->name;
  const std::int64_t width = 4096, ff = 12288;
  row_operator("rms_norm/" + isa, width,
               [=](const float* a, const float* b, float* out) { set->rms_norm(a, b, 1e-5f, width, out); });
  row_operator("add/" + isa, width, [=](const float* a, const float* b, float* out) { set->add(a, b, width, out); });
  row_operator("swiglu/" + isa, ff, [=](const float* a, const float* b, float* out) { set->swiglu(a, b, ff, out); });
  row_operator("rope/" + isa, width,
               [=](const float* a, const float* b, float* out) { set->rope({32, 128, 128, false, b, b}, a, out); });
  row_operator("rope_interleaved/" + isa, width,
               [=](const float* a, const float* b, float* out) { set->rope({32, 128, 128, true, b, b}, a, out); });
  for (TensorType type : {TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0})
    row_operator("encode/" + isa + "/" + std::string(codec(type).name), width,
                 [=](const float* a, const float*, float* out) {
                   set->encode(type, a, width, reinterpret_cast<std::byte*>(out));
                 });
  row_operator("quantize/" + isa, width, [=](const float* a, const float*, float* out) {
    auto* values = reinterpret_cast<std::int8_t*>(out);
    set->quantize_row(a, width, false, values, out + width, reinterpret_cast<std::int32_t*>(out + width + width / 32));
  });
}

void register_set(const KernelSet* set) {
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseRealTime()->Unit(benchmark::kMicrosecond);
  };
  struct Shape {
    const char* name;
    std::int32_t heads, kv_heads;
  };
  for (TensorType type : {TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kF32})
    for (const Shape& shape : {Shape{"llada-8b", 32, 32}, Shape{"dream-7b", 28, 4}})
      for (std::int64_t rows : {1, 8, 32, 256})
        for (std::int64_t keys : {512, 1024, 2048, 4096})
          for (bool bf16 : {false, true})
            add((bf16 ? "attention_bf16/" : "attention/") + std::string(set->name) + "/" +
                    std::string(codec(type).name) + "/" + shape.name + "/rows:" + std::to_string(rows) +
                    "/keys:" + std::to_string(keys),
                [=](benchmark::State& state) {
                  attention(state, set, type, {shape.heads, shape.kv_heads, rows, keys}, bf16);
                });
}

#if defined(__x86_64__)
/// Twelve chains of multiply-adds cover a latency of 4 cycles on two units.
__attribute__((target("avx512f"))) float spin(std::int64_t rounds) {
  __m512 a[12], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) a[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) a[i] = _mm512_fmadd_ps(a[i], x, y);
  }
  float sum = 0;
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sum += _mm512_cvtss_f32(a[i]);
  return sum;
}

void fma_peak(benchmark::State& state) {
  ThreadPool pool(bench_threads());
  const std::int64_t rounds = 1 << 20;
  std::vector<float> sums(static_cast<std::size_t>(pool.size()));
  for (auto _ : state)
    pool.parallel_for(pool.size(),
                      [&](std::int64_t task, int) { sums[static_cast<std::size_t>(task)] = spin(rounds); });
  benchmark::DoNotOptimize(sums.data());
  state.SetItemsProcessed(state.iterations() * pool.size() * rounds * 12 * 32);
}
#endif

}  // namespace

void register_attention() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) benchmark::RegisterBenchmark("fma_peak", fma_peak)->UseRealTime();
#endif
  KernelSetEntry entries[kMaxKernelSets];
  const int count = list_kernel_sets(entries);
  for (int i = 1; i < count; ++i)
    if (entries[i].available) register_set(entries[i].set), register_rows(entries[i].set);
  ScoreRequest request;
  benchmark::RegisterBenchmark("reduction/argmax", [request](benchmark::State& state) {
    reduction(state, request);
  })->Unit(benchmark::kMicrosecond);
  request.temperature = 0.7;
  benchmark::RegisterBenchmark("reduction/gumbel", [request](benchmark::State& state) {
    reduction(state, request);
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace dllm::cpu
