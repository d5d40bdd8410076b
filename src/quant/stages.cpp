#include "quant/stages.h"

#include <algorithm>
#include <map>
#include <set>
#include <variant>

namespace dllm {
namespace {

struct Product {
  ValueId x = kNoId;
  WeightId weight = kNoId;
};

Product product_of(const Op& any) {
  if (const auto* linear = std::get_if<op::Linear>(&any)) return {linear->x, linear->weight};
  if (const auto* head = std::get_if<op::ScoreHead>(&any)) return {head->x, head->weight};
  return {};
}

ValueId residual_of(const Graph& graph, const CalibrationStage& stage) {
  const auto* linear = std::get_if<op::Linear>(&graph.ops[static_cast<std::size_t>(stage.end)]);
  if (linear == nullptr || stage.weights.size() != 1) return kNoId;
  ValueId residual = kNoId;
  for (const Op& any : graph.ops) {
    const std::vector<ValueId> read = inputs(any);
    if (std::ranges::find(read, linear->out) == read.end()) continue;
    const auto* add = std::get_if<op::Add>(&any);
    if (add == nullptr || residual != kNoId) return kNoId;
    residual = add->a == linear->out ? add->b : add->a;
  }
  return std::ranges::binary_search(stage.live, residual) ? residual : kNoId;
}

}  // namespace

Expected<std::vector<CalibrationStage>> calibration_stages(const Graph& graph) {
  std::vector<CalibrationStage> stages;
  std::map<std::int32_t, std::size_t> stored;  // by layer: the number of cuts before the store
  const auto count = static_cast<std::int64_t>(graph.ops.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const Op& any = graph.ops[static_cast<std::size_t>(i)];
    if (const auto* kv = std::get_if<op::StoreKv>(&any)) stored[kv->layer] = stages.size();
    if (const auto* attention = std::get_if<op::Attention>(&any))
      if (const auto at = stored.find(attention->layer); at == stored.end() || at->second != stages.size())
        return Error{ErrorCode::kUnsupported, "calibration needs K and V where attention reads them", "--method", ""};
    const std::int64_t first = stages.empty() ? 0 : stages.back().end;
    if (const auto* o = std::get_if<op::Experts>(&any))
      stages.push_back(
          {.first = first, .end = i, .input = o->x, .weights = {o->gate, o->up, o->down}, .live = {}, .experts = *o});
    const Product product = product_of(any);
    if (product.x == kNoId) continue;
    const auto same = std::ranges::find_if(
        stages, [&](const CalibrationStage& stage) { return stage.input == product.x && !stage.experts; });
    if (same != stages.end())
      same->weights.push_back(product.weight);
    else
      stages.push_back({.first = first, .end = i, .input = product.x, .weights = {product.weight}, .live = {}});
  }
  for (CalibrationStage& stage : stages) {
    std::set<ValueId> written, live;
    for (std::int64_t i = 0; i < count; ++i) {
      const Op& any = graph.ops[static_cast<std::size_t>(i)];
      for (const ValueId id : i < stage.end ? outputs(any) : inputs(any))
        if (i < stage.end)
          written.insert(id);
        else if (written.contains(id))
          live.insert(id);
    }
    stage.live.assign(live.begin(), live.end());
    stage.residual = residual_of(graph, stage);
  }
  return stages;
}

}  // namespace dllm
