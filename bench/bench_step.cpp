// Everything in a step that is not a product with weights, except the quantization of activations and the reduction of
// logits (`quantize`, `reduction`), for the layers of the LLaDA-8B and Dream-7B shapes: attention, norms, RoPE, stores
// to the cache, SwiGLU, residual additions, loops and barriers. Embedding look-ups that write the outputs (a copy of a
// row) replace the products; their time is included.
//
//   DLLM_BENCH_THREADS=2 dllm_bench_kernels --benchmark_filter='rest_of_step'

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "cpu/cpu_kv_cache.h"
#include "cpu/executor.h"
#include "cpu/kernels/test_data.h"
#include "graph/builder.h"

namespace dllm::cpu {
namespace {

struct Shape {
  const char* name;
  std::int64_t layers, width, heads, kv_heads, ff;
};
constexpr Shape kShapes[] = {{"llada-8b", 32, 4096, 32, 32, 12288}, {"dream-7b", 28, 3584, 28, 4, 18944}};
constexpr std::int64_t kHeadDim = 128;

Graph step_graph(const Shape& s, StepShape step) {
  GraphBuilder b(step);
  const WeightId row = b.weight("row", {s.width, 1}), wide = b.weight("wide", {s.ff, 1});
  const WeightId kv_row = b.weight("kv", {s.kv_heads * kHeadDim, 1}), gain = b.weight("gain", {s.width});
  const auto rope = [&](ValueId x, std::int64_t heads) {
    op::Rope spec{};
    spec.heads = static_cast<std::int32_t>(heads), spec.head_dim = spec.dims = kHeadDim;
    spec.theta = 10000.f, spec.scale = 1.f, spec.factors = kNoId;
    return b.rope(x, spec, "rope");
  };
  ValueId x = b.embed(row, "x");
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    b.rms_norm(x, gain, 1e-5f, "norm");
    const ValueId q = b.embed(row, "q"), k = b.embed(kv_row, "k"), v = b.embed(kv_row, "v");
    const ValueId q_rope = rope(q, s.heads);
    b.store_kv(rope(k, s.kv_heads), v, static_cast<std::int32_t>(layer));
    op::Attention spec{};
    spec.layer = static_cast<std::int32_t>(layer), spec.heads = static_cast<std::int32_t>(s.heads);
    spec.kv_heads = static_cast<std::int32_t>(s.kv_heads), spec.head_dim = kHeadDim, spec.scale = 0.088f;
    b.attention(q_rope, spec, "mix");
    x = b.add(x, b.embed(row, "out"), "residual");
    b.rms_norm(x, gain, 1e-5f, "norm");
    const ValueId gate = b.embed(wide, "gate"), up = b.embed(wide, "up");
    b.glu(gate, up, "act");
    x = b.add(x, b.embed(row, "down"), "residual");
  }
  return b.take();
}

void step(benchmark::State& state, const Shape& shape, std::int64_t rows, std::int64_t context) {
  const char* wanted = std::getenv("DLLM_BENCH_THREADS");
  const int threads = wanted != nullptr && std::atoi(wanted) > 0 ? std::atoi(wanted) : default_thread_count();
  test::Random random(7);
  Weights weights;
  std::vector<std::vector<float>> storage;
  for (const WeightDecl& decl : step_graph(shape, {1, 1}).weights) {
    storage.push_back(random_floats(random, element_count(decl.shape)));
    weights.push_back({TensorType::kF32, decl.shape, std::as_bytes(std::span(storage.back()))});
  }
  Executor executor([&](StepShape step_shape) { return step_graph(shape, step_shape); }, weights,
                    {.kernels = *default_kernel_set(), .threads = threads, .packs = false});
  const std::vector<KvShape> layers(static_cast<std::size_t>(shape.layers), KvShape{shape.kv_heads, kHeadDim});
  auto cache = *CpuKvCache::create(static_cast<Position>(context), layers, TensorType::kF16);
  const auto forward = [&](std::int64_t begin, std::int64_t end) {
    SequenceStep step;
    step.cache = cache.get();
    for (std::int64_t r = begin; r < end; ++r) step.plan.rows.push_back({static_cast<Position>(r), 0});
    step.plan.visible = {{0, static_cast<Position>(end)}};
    benchmark::DoNotOptimize(executor.forward({&step, 1}));
  };
  for (std::int64_t r = 0; r < context - rows; r += 128) forward(r, std::min(r + 128, context - rows));
  for (auto _ : state) forward(context - rows, context);
}

}  // namespace

void register_steps() {
  for (const Shape& shape : kShapes)
    for (std::int64_t rows : {8, 32, 256})
      for (std::int64_t context : {512, 2048}) {
        const std::string name = std::string("rest_of_step/") + shape.name + "/rows:" + std::to_string(rows) +
                                 "/context:" + std::to_string(context);
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { step(state, shape, rows, context); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
}

}  // namespace dllm::cpu
