#include "npu_compiler/compiler/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

using Json = nlohmann::ordered_json;

/// Rows of vector SRAM that the largest part uses.
std::int64_t vram_rows(const SplitStep& step) {
  std::int64_t rows = 0;
  for (const StepPart& part : step.parts) rows = std::max(rows, part.step.vram_rows);
  return rows;
}

std::int64_t keys_of(const StepSpec& spec) {
  std::int64_t keys = 1;
  for (const SequenceSpec& s : spec.sequences) {
    std::int64_t visible = 0;
    for (const PositionRange& range : s.visible) visible += range.size();
    keys = std::max(keys, visible);
  }
  return keys;
}

/// "blk.3.attn_q" -> "attn_q"
std::string role(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

}  // namespace

Expected<Listing> list_step(const ModelLayout& layout, const Device& device, const SplitStep& step) {
  (void)layout;
  // Bounds use the memory's peak, so it need not be simulated.
  DLLM_TRY(const CostModel model, CostModel::create(device, device.memory_gbps()));
  Listing listing;
  for (const StepPart& part : step.parts) {
    DLLM_TRY(const StepCost cost,
             model.evaluate(part.graph, {static_cast<std::int64_t>(part.spec.sequences.size()), keys_of(part.spec),
                                         /*fused_head=*/part.step.logit_rows == 0, step.program.choices.assumption}));
    for (const OperatorRegion& region : part.step.operators) {
      ListedOperator line{region.name, "", region.begin, region.end};
      double array = 0, others = 0;  // operators lowered as one may overlap
      for (const std::int32_t op : region.ops) {
        const OperatorCost& c = cost.operators[to_size(op)];
        line.kind += (line.kind.empty() ? "" : "+") + std::string(op_name(part.graph.ops[to_size(op)]));
        line.macs += c.macs;
        line.matrix_cycles += c.matrix;
        (c.macs > 0 ? array : others) += c.lower_bound;
        line.read_bytes += c.read_bytes;
        line.write_bytes += c.write_bytes;
      }
      line.lower_bound = std::max(array, others);
      listing.operators.push_back(std::move(line));
    }
  }
  return listing;
}

std::string listing_asm(const SplitStep& step, const Listing& listing) {
  std::map<std::uint32_t, std::vector<std::string>> before;  // lines before an instruction
  std::map<std::string, const ListedOperator*> by_name;
  for (const ListedOperator& op : listing.operators) by_name[op.name] = &op;
  for (const Region& region : step.program.regions) {
    if (region.begin == region.end) continue;
    std::string line = fmt::format(".profile {}", region.name);
    if (const auto found = by_name.find(region.name); found != by_name.end())
      line += fmt::format("  ; {}, {} MACs, at least {:.0f} cycles", found->second->kind, found->second->macs,
                          found->second->lower_bound);
    before[region.begin].push_back(std::move(line));
  }
  std::map<std::uint32_t, int> closing;
  for (const Region& region : step.program.regions)
    if (region.begin != region.end) ++closing[region.end];
  std::string text;
  std::size_t depth = 0;
  for (std::uint32_t i = 0; i <= step.program.size(); ++i) {
    if (const auto found = closing.find(i); found != closing.end())
      for (int n = 0; n < found->second; ++n) text += ".endprofile\n";
    if (const auto found = before.find(i); found != before.end())
      for (const std::string& line : found->second) text += line + "\n";
    if (i == step.program.size()) break;
    const Instruction& instruction = step.program.code[i];
    if (instruction.op == Op::C_LOOP_END && depth > 0) --depth;
    text += fmt::format("{:<52}; {:5}  0x{:08x}\n",
                        std::string(2 * (depth + 1), ' ') + to_text(instruction, step.program.half_scalars), i,
                        step.program.words[i]);
    if (instruction.op == Op::C_LOOP_START) ++depth;
  }
  return text;
}

Json mapping_json(const ModelLayout& layout) {
  Json panels = Json::array();
  for (const WeightPlace& w : layout.weights) {
    if (w.use != WeightUse::kMatrix || (w.expert_stride != 0 && !w.streamed)) continue;
    Json one = {{"outputs", w.matrix.n}, {"k_tiles", w.matrix.k_tiles}, {"panel", w.matrix.panel}};
    if (std::ranges::find(panels, one) == panels.end()) panels.push_back(std::move(one));
  }
  return {{"weight_rows", layout.mram.weight_rows},
          {"kv_rows", layout.mram.kv_rows},
          {"chunk_keys", layout.chunk_tiles * layout.key_tile},
          {"expert_slots", layout.mram.expert_slots},
          {"panels", std::move(panels)}};
}

Json listing_json(const SplitStep& step, const Listing& listing, const ModelLayout& layout) {
  Json operators = Json::array();
  for (const ListedOperator& op : listing.operators)
    operators.push_back({{"name", op.name},
                         {"operator", op.kind},
                         {"first_instruction", op.begin},
                         {"instructions", op.end - op.begin},
                         {"macs", op.macs},
                         {"matrix_cycles", op.matrix_cycles},
                         {"lower_bound_cycles", op.lower_bound},
                         {"read_bytes", op.read_bytes},
                         {"write_bytes", op.write_bytes}});
  return {{"instructions", step.program.size()},
          {"loop_depth", step.program.loop_depth},
          {"vram_rows", vram_rows(step)},
          {"vram_bytes", vram_rows(step) * layout.machine.vlen * 2},
          {"weight_bytes", layout.weight_bytes},
          {"weight_format", mx_format_name(layout.machine.weight)},
          {"kv_format", mx_format_name(layout.machine.matrix_kv)},
          {"input_format", mx_format_name(layout.machine.matrix_input)},
          {"softmax_chunk_keys", layout.chunk_tiles * layout.key_tile},
          {"operators", operators}};
}

std::string listing_summary(const SplitStep& step, const Listing& listing, const ModelLayout& layout,
                            const Device& device) {
  struct Line {
    std::string role;
    int count = 0;
    std::size_t instructions = 0;
    double macs = 0, matrix = 0, bound = 0, bytes = 0;
  };
  std::vector<Line> lines;
  Line sum{"sum", 0, 0, 0, 0, 0, 0};
  for (const ListedOperator& op : listing.operators) {
    const std::string name = role(op.name);
    auto line = std::ranges::find_if(lines, [&](const Line& l) { return l.role == name; });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{name, 0, 0, 0, 0, 0, 0});
    for (Line* l : {&*line, &sum}) {
      ++l->count;
      l->instructions += op.end - op.begin;
      l->macs += static_cast<double>(op.macs);
      l->matrix += op.matrix_cycles;
      l->bound += op.lower_bound;
      l->bytes += op.read_bytes + op.write_bytes;
    }
  }
  std::string text = fmt::format("{:<16}{:>5}{:>14}{:>10}{:>13}{:>13}{:>11}\n", "operator", "n", "instructions", "GMAC",
                                 "array", "bound", "MB");
  lines.push_back(sum);
  for (const Line& l : lines)
    text += fmt::format("{:<16}{:>5}{:>14}{:>10.2f}{:>13.0f}{:>13.0f}{:>11.1f}\n", l.role, l.count, l.instructions,
                        l.macs * 1e-9, l.matrix, l.bound, l.bytes * 1e-6);
  return text +
         fmt::format("{} on {}: {} instructions, loops {} deep, {} of {} rows of vector SRAM, {:.2f} GB of weights\n",
                     step.program.name, device.name, step.program.size(), step.program.loop_depth, vram_rows(step),
                     layout.machine.vram_elements / static_cast<std::uint64_t>(layout.machine.vlen),
                     static_cast<double>(layout.weight_bytes) * 1e-9);
}

}  // namespace dllm::npu
