#include "cpu/embedding.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

/// In float64, from the first element on: the same on every instruction set.
double length_of(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(sum);
}

}  // namespace

void embed_row(const op::Embed& o, const WeightView& table, TokenId token, const RowMixture* row_mixture,
               std::int64_t n, float* out) {
  const Codec& format = codec(table.type);
  const RowMixture* const mixture = o.part == EmbedPart::kToken ? nullptr : row_mixture;
  const bool instead = mixture != nullptr && mixture->instead;
  if (o.part == EmbedPart::kMixture || instead)
    std::fill_n(out, n, 0.f);
  else
    format.dequantize(table.data.data() + token * format.row_bytes(n), out, n);
  if (mixture != nullptr) {
    std::vector<float> other(static_cast<std::size_t>(n));
    double wanted = 0;
    for (const MixedToken& mixed : mixture->tokens) {
      format.dequantize(table.data.data() + mixed.token * format.row_bytes(n), other.data(), n);
      for (std::int64_t i = 0; i < n; ++i) out[i] += mixed.weight * other[static_cast<std::size_t>(i)];
      if (instead) wanted += static_cast<double>(mixed.weight) * length_of(other.data(), n);
    }
    const double length = instead ? length_of(out, n) : 0;
    if (length > 0)
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(static_cast<double>(out[i]) * (wanted / length));
  }
  if (o.scale != 1.f)
    for (std::int64_t i = 0; i < n; ++i) out[i] *= o.scale;
}

}  // namespace dllm::cpu
