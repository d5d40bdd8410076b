#include "cpu/embedding.h"

#include <algorithm>

#include "numerics/tensor_type.h"

namespace dllm::cpu {

void embed_row(const op::Embed& o, const WeightView& table, TokenId token, const std::vector<MixedToken>* row_mixture,
               std::int64_t n, float* out) {
  const Codec& format = codec(table.type);
  if (o.part == EmbedPart::kMixture)
    std::fill_n(out, n, 0.f);
  else
    format.dequantize(table.data.data() + token * format.row_bytes(n), out, n);
  const auto* mixture = o.part == EmbedPart::kToken ? nullptr : row_mixture;
  if (mixture != nullptr) {
    std::vector<float> other(static_cast<std::size_t>(n));
    for (const MixedToken& mixed : *mixture) {
      format.dequantize(table.data.data() + mixed.token * format.row_bytes(n), other.data(), n);
      for (std::int64_t i = 0; i < n; ++i) out[i] += mixed.weight * other[static_cast<std::size_t>(i)];
    }
  }
  if (o.scale != 1.f)
    for (std::int64_t i = 0; i < n; ++i) out[i] *= o.scale;
}

}  // namespace dllm::cpu
