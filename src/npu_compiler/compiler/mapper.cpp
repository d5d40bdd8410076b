#include "npu_compiler/compiler/mapper.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/integers.h"
#include "base/try.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/compiler/feasible.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu {
namespace {

/// Tiles of keys per chunk, but no more than there are: all up to 8, then in steps of a quarter.
std::vector<std::int64_t> sizes_of_chunks(std::int64_t needed) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < needed; size += size < 8 ? 1 : size / 4) sizes.push_back(size);
  sizes.push_back(needed);
  return sizes;
}

/// Prices mappings of steps that are cut in one of the ways that fit.
class MappingPricer {
 public:
  MappingPricer(const Device& device, const ModelShape& shape, const MappingQuestion& question, double gbps)
      : device_(device), question_(question), gbps_(gbps), schedule_(shape) {}

  std::vector<const FittingParts*> cut;  ///< by step
  std::int64_t priced = 0;

  Expected<double> cycles(const Mapping& mapping) {
    ++priced;
    double sum = 0;
    for (std::size_t i = 0; i < question_.steps.size(); ++i) {
      DLLM_TRY(const double one, schedule_.cycles(device_, question_.steps[i].step,
                                                  {.logits = question_.logits,
                                                   .logit_bytes = device_.numerics.logit_bytes,
                                                   .gbps = gbps_,
                                                   .queue = device_.issue.queue,
                                                   .choices = question_.choices,
                                                   .mapping = &mapping,
                                                   .overlap = cut[i]->overlapped},
                                                  cut[i]->parts));
      sum += question_.steps[i].times * one;
    }
    return sum;
  }

 private:
  const Device& device_;
  const MappingQuestion& question_;
  double gbps_;
  ModelSchedule schedule_;
};

class MappingSearch {
 public:
  MappingSearch(const Device& device, const ModelShape& shape, const MappingQuestion& question, MappingChoices choices,
                double gbps)
      : device_(device),
        question_(question),
        choices_(std::move(choices)),
        sram_(sram_shape(device)),
        feasibility_(shape),
        pricer_(device, shape, question, gbps) {}

  Expected<FoundMapping> run() {
    const std::vector<std::int64_t> none = {0};
    for (const std::int64_t chunk : choices_.chunk_tiles.empty() ? none : choices_.chunk_tiles) {
      Mapping mapping;
      mapping.chunk_tiles = std::max<std::int64_t>(1, chunk);
      mapping.kv_rows = round_up(chunk * choices_.key_rows, unit());
      room_ = (sram_.matrix_rows - sram_.ones_rows() - 2 * mapping.kv_rows) / 2 / unit() * unit();
      if (room_ < choices_.buffers.front() || chunk > sram_.vector_rows / 16 / score_rows(sram_)) continue;
      if (find_parts(mapping)) DLLM_CHECK_OK(with_cuts(mapping, 0));
    }
    if (best_.parts.empty()) return nothing_fits();
    best_.priced = pricer_.priced;
    return std::move(best_);
  }

 private:
  static constexpr std::int64_t kMostSlots = 8;
  /// Smaller panels save what the first one is waited for, a few per cent of a step.
  static constexpr double kHopeless = 1.5;

  std::int64_t unit() const { return std::max(sram_.blen, sram_.hlen); }

  /// In the words of the mapping by rule, which name the memory that is too small.
  Error nothing_fits() {
    if (error_) return *error_;
    for (const MappedStep& one : question_.steps)
      if (const auto parts = feasibility_.step_parts(device_, one.step, question_.choices); !parts)
        return parts.error();
    return {ErrorCode::kUsage, "no mapping fits the device's memories", "npu mapper",
            "--set sram.matrix_tiles=N or sram.vector_rows=N with a larger N, or --mapping rule"};
  }

  /// Whether the steps can be cut so that they fit. That depends on vector SRAM, of which only the chunks' scores are
  /// the mapping's.
  bool find_parts(Mapping mapping) {
    mapping.weight_rows = room_;
    mapping.expert_slots = kMostSlots;
    fitting_.clear();
    for (const MappedStep& one : question_.steps) {
      auto parts = feasibility_.fitting_parts(device_, one.step, question_.choices, mapping);
      if (!parts) {
        error_ = parts.error();
        return false;
      }
      fitting_.push_back(*std::move(parts));
    }
    pricer_.cut.resize(fitting_.size());
    return true;
  }

  /// Each way to cut each step. A search of its own for each: one that compared them on the way could end elsewhere if
  /// there are more of them.
  Expected<void> with_cuts(const Mapping& mapping, std::size_t step) {
    if (step < fitting_.size()) {
      for (const FittingParts& cut : fitting_[step]) {
        pricer_.cut[step] = &cut;
        DLLM_CHECK_OK(with_cuts(mapping, step + 1));
      }
      return {};
    }
    for (const std::int64_t buffer : choices_.buffers)
      for (std::int64_t slots = 0; slots <= (choices_.expert_rows > 0 ? kMostSlots : 0); ++slots)
        DLLM_CHECK_OK(with_buffer(mapping, buffer, slots));
    return {};
  }

  /// Panels of at most `buffer` rows, and a ring of that many slots: next to them, or, if it has room for one expert
  /// only, over them. No slots: streamed, or what two such buffers hold.
  Expected<void> with_buffer(Mapping mapping, std::int64_t buffer, std::int64_t slots) {
    const std::int64_t ring = slots * choices_.expert_rows;
    mapping.weight_rows =
        round_up(slots >= 2 ? buffer + ceil_div(ring, 2) : std::max(buffer, ceil_div(ring, 2)), unit());
    mapping.expert_slots = std::max<std::int64_t>(1, slots);
    // Experts are only streamed if no ring fits: the schedule knows streaming where memory limits it, not where the
    // array does. Streamed panels are the largest that do not yet make a ring.
    if (choices_.expert_rows > 0 && slots == 0) {
      const std::int64_t most = (choices_.expert_rows / 2 - 1) / unit() * unit();
      if (round_up(ceil_div(choices_.expert_rows, 2), unit()) <= room_) return {};
      mapping.weight_rows = std::max(mapping.weight_rows, std::min(room_, most));
      if (mapping.weight_rows > most) return {};
    }
    if (mapping.weight_rows > room_) return {};
    for (const PanelChoice& matrix : choices_.matrices) {
      PanelChoice panel = matrix;
      while (panel.lanes > sram_.blen && panel.lanes * panel.k_tiles > buffer) panel.lanes /= 2;
      if (panel.lanes * panel.k_tiles > buffer) return {};
      mapping.panels.push_back(panel);
    }
    DLLM_TRY(double cycles, pricer_.cycles(mapping));
    if (!best_.parts.empty() && cycles > kHopeless * best_.cycles) return {};
    for (bool better = true; better;) {
      better = false;
      for (PanelChoice& panel : mapping.panels)
        while (panel.lanes > 2 * sram_.blen) {  // single column blocks only if the buffer holds no more
          panel.lanes /= 2;
          DLLM_TRY(const double smaller, pricer_.cycles(mapping));
          if (smaller < cycles) {
            cycles = smaller;
            better = true;
            continue;
          }
          panel.lanes *= 2;
          break;
        }
    }
    if (!best_.parts.empty() && cycles >= best_.cycles) return {};
    best_.mapping = mapping;
    best_.cycles = cycles;
    best_.parts.clear();
    for (const FittingParts* cut : pricer_.cut) best_.parts.push_back(cut->parts);
    return {};
  }

  const Device& device_;
  const MappingQuestion& question_;
  const MappingChoices choices_;
  const SramShape sram_;
  Feasibility feasibility_;
  MappingPricer pricer_;
  std::vector<std::vector<FittingParts>> fitting_;  ///< by step
  std::int64_t room_ = 0;                           ///< rows of one of the two buffers for panels, at most
  FoundMapping best_;
  std::optional<Error> error_;
};

}  // namespace

Expected<MappingChoices> mapping_choices(const Device& device, const ModelShape& shape,
                                         std::span<const MappedStep> steps) {
  std::int64_t keys = 1;
  for (const MappedStep& one : steps) keys = std::max(keys, one.step.keys);
  const Graph graph = shape.architecture->build(shape.desc, {1, 1});
  std::vector<bool> present;
  for (const WeightDecl& decl : graph.weights) present.push_back(decl.required);
  // Shapes of matrices do not depend on the SRAM, as long as nothing is refused for lack of it.
  DLLM_TRY(MachineConfig machine, machine_config(device));
  machine.mram_elements = machine.vram_elements = kAnySram;
  DLLM_TRY(const ModelLayout layout, make_layout(graph, present, machine, keys));
  MappingChoices choices;
  choices.expert_rows = layout.mram.expert_slot_rows;
  std::set<std::int64_t> buffers;
  for (const WeightPlace& w : layout.weights) {
    if (w.use != WeightUse::kMatrix || w.expert_stride != 0) continue;
    PanelChoice shape_of{w.matrix.n, w.matrix.k_tiles, machine.vlen};
    while (shape_of.lanes > machine.blen && shape_of.lanes / 2 >= shape_of.n) shape_of.lanes /= 2;
    if (std::ranges::find(choices.matrices, shape_of) != choices.matrices.end()) continue;
    choices.matrices.push_back(shape_of);
    for (std::int64_t lanes = shape_of.lanes; lanes >= machine.blen; lanes /= 2)
      buffers.insert(lanes * shape_of.k_tiles);
  }
  choices.buffers.assign(buffers.begin(), buffers.end());
  if (choices.buffers.empty()) choices.buffers.push_back(0);
  const SramShape sram = sram_shape(device);
  for (const dllm::Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Attention>(&any))
      choices.key_rows = std::max(choices.key_rows, key_rows(sram, o->head_dim));
  if (choices.key_rows > 0)
    choices.chunk_tiles = sizes_of_chunks(
        std::min({ceil_div(keys, layout.key_tile), std::int64_t{64}, sram.longest / layout.key_tile - 1}));
  return choices;
}

Expected<FoundMapping> search_mapping(const Device& device, const ModelShape& shape, const MappingQuestion& question) {
  DLLM_TRY(MappingChoices choices, mapping_choices(device, shape, question.steps));
  DLLM_TRY(const double gbps, achieved_bandwidth(device));
  return MappingSearch(device, shape, question, std::move(choices), gbps).run();
}

}  // namespace dllm::npu
