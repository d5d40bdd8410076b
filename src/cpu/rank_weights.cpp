#include "cpu/rank_weights.h"

#include <fmt/format.h>

#include "base/to_size.h"
#include "base/try.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

Expected<WeightView> part_of(const WeightDecl& decl, const WeightView& whole, const WeightPart& part) {
  const Codec& format = codec(whole.type);
  WeightView view = whole;
  view.shape = decl.shape;
  if (whole.shape.size() == 1) {
    if (part.first % format.block_elems != 0 || part.count % format.block_elems != 0)
      return Error{ErrorCode::kUnsupported,
                   fmt::format("ranks would cut blocks of the {} vector '{}'", format.name, decl.name), "",
                   "convert the model with this vector in f32"};
    view.data = whole.data.subspan(to_size(format.row_bytes(part.first)), to_size(format.row_bytes(part.count)));
    return view;
  }
  const std::int64_t row = format.row_bytes(whole.shape[0]);
  const std::int64_t matrices = whole.shape.size() > 2 ? whole.shape[2] : 1, matrix = row * whole.shape[1];
  view.data = whole.data.subspan(to_size(row * part.first), to_size((matrices - 1) * matrix + row * part.count));
  if (matrices > 1) view.matrix_bytes = to_size(matrix);
  return view;
}

}  // namespace

Expected<Weights> rank_weights(const RankGraph& rank, const Weights& whole) {
  Weights weights;
  for (std::size_t i = 0; i < rank.parts.size(); ++i) {
    const WeightPart& part = rank.parts[i];
    const WeightView& view = whole[to_size(part.source)];
    if (part.count == 0 || !view.present()) {
      weights.push_back({});
      continue;
    }
    DLLM_TRY(weights.emplace_back(), part_of(rank.graph.weights[i], view, part));
  }
  return weights;
}

}  // namespace dllm::cpu
