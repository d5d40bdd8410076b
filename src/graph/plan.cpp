#include "graph/plan.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <numeric>
#include <variant>

#include "base/to_size.h"
#include "graph/patterns.h"

namespace dllm {
namespace {

constexpr std::int64_t kAlignFloats = 16;

/// One stretch of the arena: a value, or a chain of values that overwrite each other in place.
struct Block {
  std::int64_t size = 0;
  Lifetime life;
  std::int64_t offset = 0;

  bool meets(const Block& other) const { return life.first <= other.life.last && other.life.first <= life.last; }
};

/// Kernels that read an element (or a row) before they write it.
bool runs_in_place(const Op& op) {
  return std::holds_alternative<op::RmsNorm>(op) || std::holds_alternative<op::LayerNorm>(op) ||
         std::holds_alternative<op::Rope>(op) || std::holds_alternative<op::Hadamard>(op) ||
         std::holds_alternative<op::Glu>(op) || std::holds_alternative<op::Add>(op) ||
         std::holds_alternative<op::Scale>(op) || std::holds_alternative<op::Select>(op);
}

bool is_by_row(const Op& op) {
  return runs_in_place(op) || std::holds_alternative<op::Embed>(op) || std::holds_alternative<op::StoreKv>(op) ||
         std::holds_alternative<op::HiddenIn>(op) || std::holds_alternative<op::HiddenOut>(op);
}

OpRun run_of_rows(const Graph& graph, std::size_t first, std::size_t last) {
  OpRun run{first, last, OpRun::Kind::kRows};
  for (std::size_t i = first; i < last; ++i) {
    const Op& op = graph.ops[i];
    for (const std::vector<ValueId>& ids : {inputs(op), outputs(op)})
      for (const ValueId id : ids) {
        run.cost += graph.value(id).width;
        run.sized = id;
      }
    if (const auto* glu = std::get_if<op::Glu>(&op)) run.cost += 8 * graph.value(glu->out).width;
    if (const auto* hadamard = std::get_if<op::Hadamard>(&op))
      run.cost += std::bit_width(static_cast<std::uint32_t>(hadamard->order)) * graph.value(hadamard->out).width;
  }
  const std::vector<ValueId> made = outputs(graph.ops[last - 1]);
  if (!made.empty()) run.made = made.front();
  return run;
}

/// The longest runs. Operators over all rows and over the scored ones do not mix: GatherScored is always between
/// them. Nor do operators over a rank's own rows and over all.
std::vector<OpRun> make_runs(const Graph& graph, const std::vector<bool>& own_rows) {
  const GraphPatterns patterns(graph);
  const auto runs_own = [&](const Op& op) {
    const std::vector<ValueId> made = outputs(op), read = inputs(op);
    return own_rows[to_size(made.empty() ? read.front() : made.front())];
  };
  std::vector<OpRun> runs;
  for (std::size_t i = 0; i < graph.ops.size(); i = runs.back().last) {
    if (std::holds_alternative<op::Linear>(graph.ops[i])) {
      const std::size_t end = patterns.end_of_products(i);
      const bool gated = end - i == 2 && patterns.gated_at(i);
      runs.push_back({i, gated ? end + 1 : end, gated ? OpRun::Kind::kGated : OpRun::Kind::kProducts});
    } else if (is_by_row(graph.ops[i])) {
      std::size_t end = i + 1;
      while (end < graph.ops.size() && is_by_row(graph.ops[end]) && runs_own(graph.ops[end]) == runs_own(graph.ops[i]))
        ++end;
      runs.push_back(run_of_rows(graph, i, end));
    } else {
      runs.push_back({i, i + 1, OpRun::Kind::kSingle});
    }
  }
  return runs;
}

/// Assigns values to blocks; block_of[value] indexes the result.
std::vector<Block> make_blocks(const Graph& graph, const std::vector<OpRun>& runs, const std::vector<bool>& scored,
                               std::vector<std::size_t>& block_of) {
  std::vector<std::int32_t> run_of;
  for (const OpRun& run : runs) run_of.resize(run.last, static_cast<std::int32_t>(&run - runs.data()));
  const auto in_runs = [&run_of](const Lifetime& life) {
    return Lifetime{run_of[to_size(life.first)], run_of[to_size(life.last)]};
  };
  const std::vector<Lifetime> lives = lifetimes(graph);
  std::vector<Block> blocks;
  block_of.resize(graph.values.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    for (ValueId out : outputs(graph.ops[i])) {
      const Value& value = graph.value(out);
      std::size_t block = blocks.size();
      if (runs_in_place(graph.ops[i]))
        for (ValueId in : inputs(graph.ops[i]))
          if (lives[to_size(in)].last == static_cast<std::int32_t>(i) && scored[to_size(in)] == scored[to_size(out)] &&
              graph.value(in).width == value.width) {
            block = block_of[to_size(in)];
            break;
          }
      if (block == blocks.size()) {
        const std::int64_t floats = value.rows * value.width;
        blocks.push_back({(floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats, in_runs(lives[to_size(out)]), 0});
      }
      blocks[block].life.last = std::max(blocks[block].life.last, in_runs(lives[to_size(out)]).last);
      block_of[to_size(out)] = block;
    }
  }
  return blocks;
}

/// Smallest gap between the placed blocks whose lifetimes overlap that of `block`.
std::int64_t best_fit(const Block& block, std::vector<const Block*>& neighbours) {
  std::sort(neighbours.begin(), neighbours.end(), [](const Block* a, const Block* b) { return a->offset < b->offset; });
  std::int64_t best = -1, best_gap = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (const Block* other : neighbours) {
    const std::int64_t gap = other->offset - end;
    if (gap >= block.size && gap < best_gap) best = end, best_gap = gap;
    end = std::max(end, other->offset + other->size);
  }
  return best >= 0 ? best : end;
}

}  // namespace

ExecutionPlan make_plan(Graph graph) {
  assert(validate(graph).empty());
  ExecutionPlan plan;
  plan.scored = scored_values(graph);
  plan.own_rows = own_row_values(graph);

  std::vector<std::size_t> block_of;
  plan.runs = make_runs(graph, plan.own_rows);
  std::vector<Block> blocks = make_blocks(graph, plan.runs, plan.scored, block_of);
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return blocks[a].size > blocks[b].size; });
  std::vector<std::size_t> placed;
  for (std::size_t b : order) {
    std::vector<const Block*> neighbours;
    for (std::size_t p : placed)
      if (blocks[b].meets(blocks[p])) neighbours.push_back(&blocks[p]);
    blocks[b].offset = best_fit(blocks[b], neighbours);
    plan.arena_floats = std::max(plan.arena_floats, blocks[b].offset + blocks[b].size);
    placed.push_back(b);
  }
  plan.offset.resize(graph.values.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) plan.offset[v] = blocks[block_of[v]].offset;
  plan.graph = std::move(graph);
  return plan;
}

}  // namespace dllm
