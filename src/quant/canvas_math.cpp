#include "quant/canvas_math.h"

#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "numerics/hadamard.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

float silu(float x) { return x / (1.0f + std::exp(-x)); }

float gelu_tanh(float x) {
  const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  return x / (1.0f + std::exp(-2.0f * u));
}

}  // namespace

void decode_weight_row(const WeightView& weight, std::int64_t row, std::span<float> out) {
  const Codec& format = codec(weight.type);
  format.dequantize(weight.data.data() + row * format.row_bytes(weight.shape[0]), out.data(), weight.shape[0]);
}

void multiply_rows(const WeightView& weight, std::span<const float> bias, std::span<const float> x,
                   std::span<float> out, ThreadPool& pool) {
  const std::int64_t width = weight.shape[0], columns = weight.shape[1];
  const auto rows = static_cast<std::int64_t>(x.size()) / width;
  parallel_items(pool, columns, rows * width / 4, [&](std::int64_t column, int) {
    thread_local std::vector<float> row;
    row.resize(static_cast<std::size_t>(width));
    decode_weight_row(weight, column, row);
    const float added = bias.empty() ? 0.0f : bias[static_cast<std::size_t>(column)];
    for (std::int64_t r = 0; r < rows; ++r)
      out[static_cast<std::size_t>(r * columns + column)] = dot(x.data() + r * width, row.data(), width) + added;
  });
}

void gated(bool gelu, std::span<const float> gate, std::span<const float> up, std::int64_t width, std::span<float> out,
           ThreadPool& pool) {
  const auto n = static_cast<std::size_t>(width);
  parallel_items(pool, static_cast<std::int64_t>(gate.size()) / width, 16 * width, [&](std::int64_t row, int) {
    for (std::size_t i = static_cast<std::size_t>(row) * n, end = i + n; i < end; ++i)
      out[i] = (gelu ? gelu_tanh(gate[i]) : silu(gate[i])) * (up.empty() ? 1.0f : up[i]);
  });
}

void transform_rows(std::int64_t order, std::span<float> values, ThreadPool& pool) {
  const Hadamard matrix = *Hadamard::online(order);
  const auto n = static_cast<std::size_t>(order);
  parallel_items(pool, static_cast<std::int64_t>(values.size()) / order, 16 * order,
                 [&](std::int64_t item, int) { matrix.apply(values.subspan(static_cast<std::size_t>(item) * n, n)); });
}

}  // namespace dllm
