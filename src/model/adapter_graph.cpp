#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/to_size.h"
#include "model/adapter.h"

namespace dllm {
namespace {

/// A part with the ids of its weights in the graph.
struct BoundPart {
  WeightId a, b;
  std::int64_t rank;
  bool drafts_only;
};

class AdapterInserter {
 public:
  AdapterInserter(Graph graph, std::span<const Adapter> adapters) : graph_(std::move(graph)) {
    for (const Adapter& adapter : adapters)
      for (const AdapterPart& part : adapter.parts)
        parts_.emplace(part.weight, BoundPart{declare(part.a), declare(part.b), part.a.shape[1], adapter.drafts_only});
  }

  Graph run() {
    for (Op& op : std::exchange(graph_.ops, {})) {
      auto* linear = std::get_if<op::Linear>(&op);
      const auto [first, last] = linear == nullptr ? std::pair(parts_.end(), parts_.end())
                                                   : parts_.equal_range(graph_.weights[to_size(linear->weight)].name);
      if (first == last) {
        graph_.ops.push_back(op);
        continue;
      }
      const ValueId out = linear->out, x = linear->x;
      ValueId sum = linear->out = like(out, "own");
      graph_.ops.push_back(op);
      for (auto part = first; part != last; ++part) sum = add(part->second, x, sum, out, std::next(part) == last);
    }
    return std::move(graph_);
  }

 private:
  WeightId declare(const SourceTensor& tensor) {
    graph_.weights.push_back({.name = tensor.name, .shape = tensor.shape, .required = true, .adapter = true});
    return static_cast<WeightId>(graph_.weights.size()) - 1;
  }

  ValueId value(std::string name, std::int64_t rows, std::int64_t width) {
    graph_.values.push_back({std::move(name), rows, width});
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }
  ValueId like(ValueId other, std::string_view what) {
    const Value from = graph_.value(other);
    return value(fmt::format("{}.{}", from.name, what), from.rows, from.width);
  }

  /// out = sum + B (A x), for the rows that have the adapter; the last addition writes what the model reads.
  ValueId add(const BoundPart& part, ValueId x, ValueId sum, ValueId out, bool last) {
    const Value from = graph_.value(out);
    const ValueId small = value(fmt::format("{}.lora", from.name), from.rows, part.rank);
    const ValueId wide = like(out, "lora_b");
    const ValueId added = last && !part.drafts_only ? out : like(out, "lora_sum");
    graph_.ops.push_back(op::Linear{x, part.a, kNoId, small});
    graph_.ops.push_back(op::Linear{small, part.b, kNoId, wide});
    graph_.ops.push_back(op::Add{sum, wide, added});
    if (!part.drafts_only) return added;
    const ValueId chosen = last ? out : like(out, "lora_region");
    graph_.ops.push_back(op::Select{added, sum, chosen});
    return chosen;
  }

  Graph graph_;
  std::multimap<std::string, BoundPart> parts_;
};

}  // namespace

Graph with_adapters(Graph graph, std::span<const Adapter> adapters) {
  return adapters.empty() ? std::move(graph) : AdapterInserter(std::move(graph), adapters).run();
}

Expected<void> check_adapters(const Graph& graph, std::span<const Adapter> adapters) {
  std::map<std::string_view, const Shape*> products;
  for (const Op& op : graph.ops)
    if (const auto* linear = std::get_if<op::Linear>(&op)) {
      const WeightDecl& decl = graph.weight(linear->weight);
      products.emplace(decl.name, &decl.shape);
    }
  for (const Adapter& adapter : adapters)
    for (const AdapterPart& part : adapter.parts) {
      const std::string where = fmt::format("{}, {}", adapter.name, part.weight);
      const auto found = products.find(part.weight);
      if (found == products.end())
        return Error{ErrorCode::kUnsupported, "the model has no product with such a matrix", where,
                     "adapters of embeddings, heads and experts are not supported"};
      const Shape& shape = *found->second;
      if (part.a.shape.size() == 2 && part.b.shape.size() == 2 && part.a.shape[0] == shape[0] &&
          part.b.shape[1] == shape[1] && part.a.shape[1] == part.b.shape[0])
        continue;
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("A {} and B {} do not fit the matrix {}", to_string(part.a.shape),
                               to_string(part.b.shape), to_string(shape)),
                   where, "the adapter is of another model"};
    }
  return {};
}

}  // namespace dllm
