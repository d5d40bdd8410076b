#include "npu_compiler/compiler/feasible.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <optional>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/compiler/counted_model.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/make_step.h"
#include "npu_compiler/compiler/split_step.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kFewLayers = 2;

}  // namespace

struct Feasibility::State {
  explicit State(const ModelShape& of)
      : shape(of), fewer(of, layers(of, 0)), more(of, layers(of, 1)), left_out(of.desc.layers - layers(of, 1)) {
    if (left_out > 0) alike = fewer.repeats(more, all(), left_out);
  }
  /// Of the short models; layers of two kinds are all counted.
  static std::int64_t layers(const ModelShape& of, std::int64_t more) {
    if (has_two_kinds_of_layers(of.desc)) return of.desc.layers;
    return std::min(of.desc.layers, of.desc.experts.leading_dense + kFewLayers + more);
  }
  CountedModel& all() {
    if (!whole) whole.emplace(shape, std::int64_t{0});
    return *whole;
  }

  struct Layouts {
    MachineConfig machine;
    std::optional<Mapping> mapping;
    ModelLayout fewer, more;
    std::optional<ModelLayout> whole = {};  ///< once it was needed
  };
  /// The layouts of the short models, whose RoPE tables have one position, for steps of up to `positions`.
  Expected<Layouts*> layouts(const MachineConfig& machine, const Mapping* mapping, std::int64_t positions) {
    DLLM_TRY(Layouts * one, any_layouts(machine, mapping));
    one->fewer.positions = one->more.positions = positions;
    return one;
  }
  Expected<Layouts*> any_layouts(const MachineConfig& machine, const Mapping* mapping) {
    constexpr std::size_t kMostLayouts = 16;
    const auto same = [&](const Layouts& one) {
      return one.machine == machine && one.mapping.has_value() == (mapping != nullptr) &&
             (mapping == nullptr || *one.mapping == *mapping);
    };
    const auto found = std::ranges::find_if(kept, same);
    if (found != kept.end()) {
      kept.splice(kept.begin(), kept, found);
      return &kept.front();
    }
    DLLM_TRY(ModelLayout of_fewer, fewer.layout(machine, mapping));
    DLLM_TRY(ModelLayout of_more, more.layout(machine, mapping));
    if (kept.size() >= kMostLayouts) kept.pop_back();
    kept.push_front({machine, mapping != nullptr ? std::optional(*mapping) : std::nullopt, std::move(of_fewer),
                     std::move(of_more), std::nullopt});
    return &kept.front();
  }

  /// Valid until the next one is asked for.
  Expected<const StepSpec*> spec(const StepSize& size) {
    constexpr std::size_t kMostSpecs = 64;
    if (size.sequences < 1) return step_of(size).error();
    const std::array key = {size.rows, size.keys, size.scored};
    auto found = specs.find(key);
    if (found == specs.end()) {
      StepSize one = size;
      one.sequences = 1;
      Expected<StepSpec> made = step_of(one);
      if (!made) return step_of(size).error();  // names all sequences
      if (specs.size() >= kMostSpecs) specs.clear();
      found = specs.emplace(key, *std::move(made)).first;
    }
    found->second.alike = size.sequences;
    return &found->second;
  }

  Expected<MemoryNeed> need(const MachineConfig& machine, std::int64_t positions) {
    if (!alike) return whole_need(machine, positions);
    DLLM_TRY(const Layouts* one, layouts(machine, nullptr, positions));
    const auto sum = [&](std::uint64_t less, std::uint64_t more_) {
      return more_ + static_cast<std::uint64_t>(left_out) * (more_ - less);
    };
    const std::uint64_t weights = sum(one->fewer.weight_bytes, one->more.weight_bytes) - rope_bytes(one->more, 1) +
                                  rope_bytes(one->more, positions);
    DLLM_CHECK_OK(check_weights(one->more, weights));
    DLLM_TRY(const std::uint64_t fewer_bytes, cache_bytes(fewer, one->fewer, positions));
    DLLM_TRY(const std::uint64_t more_bytes, cache_bytes(more, one->more, positions));
    return MemoryNeed{weights, sum(fewer_bytes, more_bytes), one->more.step_base};
  }
  Expected<MemoryNeed> whole_need(const MachineConfig& machine, std::int64_t positions) {
    DLLM_TRY(ModelLayout layout, all().layout(machine, nullptr));
    layout.positions = positions;
    const std::uint64_t weights = layout.weight_bytes - rope_bytes(layout, 1) + rope_bytes(layout, positions);
    DLLM_CHECK_OK(check_weights(layout, weights));
    DLLM_TRY(const std::uint64_t bytes, cache_bytes(all(), layout, positions));
    return MemoryNeed{weights, bytes, layout.step_base};
  }
  static Expected<std::uint64_t> cache_bytes(CountedModel& model, const ModelLayout& layout, std::int64_t positions) {
    DLLM_TRY(const KvLayout kv, kv_layout(model.graph(), layout, positions));
    return kv.bytes;
  }

  ModelShape shape;
  CountedModel fewer, more;
  std::optional<CountedModel> whole = {};
  std::int64_t left_out = 0;
  bool alike = true;             ///< layers that the short models leave out are like their last one
  std::list<Layouts> kept = {};  ///< the latest first
  std::map<std::array<std::int64_t, 3>, StepSpec> specs = {};
};

namespace {

/// How many sequences of a step fit at once, as steps of the short models show.
class StepFitter {
 public:
  StepFitter(Feasibility::State& state, Feasibility::State::Layouts& layouts, const MachineConfig& machine,
             const StepSize& step, CompileOptions options)
      : state_(state), layouts_(layouts), machine_(machine), size_(step), options_(std::move(options)) {
    options_.token_rows = step.sequences * step.rows;  // tokens of all parts are in INT_MEM
    size_.sequences = 1, size_.scored = std::min(step.scored, step.rows);
  }

  /// Appends the parts of that many sequences, as compile_split() cuts them. Errors: a single one does not fit.
  Expected<void> cut(std::int64_t sequences, std::vector<RowPart>& parts) const {
    const Expected<bool> one = fits(sequences);
    if (one) {
      parts.emplace_back(sequences);
      return {};
    }
    if (one.error().code != ErrorCode::kUsage) return one.error();
    if (sequences == 1) return cut_rows(parts);
    DLLM_CHECK_OK(cut(sequences / 2, parts));
    return cut(sequences - sequences / 2, parts);
  }

  /// Halves, quarters, ... of the sequences, as far as they fit; a single sequence's rows only if it must be cut.
  Expected<std::vector<FittingParts>> all(std::int64_t sequences) const {
    std::vector<FittingParts> found;
    std::vector<std::int64_t> sizes = {sequences};
    while (true) {
      const std::int64_t largest = *std::ranges::max_element(sizes);
      const Expected<bool> fitting = fits(largest);
      if (fitting) {
        found.push_back({{sizes.begin(), sizes.end()}, *fitting});
      } else if (fitting.error().code != ErrorCode::kUsage) {
        return fitting.error();
      } else if (largest == 1) {
        std::vector<RowPart> one;
        DLLM_CHECK_OK(cut_rows(one));
        found.push_back({});
        for (std::int64_t s = 0; s < sequences; ++s)
          found.back().parts.insert(found.back().parts.end(), one.begin(), one.end());
      }
      if (largest == 1) return found;
      std::vector<std::int64_t> halves;
      for (const std::int64_t size : sizes)
        for (const std::int64_t half : {size / 2, size - size / 2})
          if (half > 0) halves.push_back(half);
      sizes = std::move(halves);
    }
  }

 private:
  /// The rows of a single sequence that does not fit. Segments of other layers use as much vector SRAM as those of the
  /// first ones.
  Expected<void> cut_rows(std::vector<RowPart>& parts) const {
    DLLM_TRY(const StepSpec* spec, state_.spec(size_));
    for (const std::vector<RowPart>& cut : row_cuts(state_.more.graph(), machine_, spec->sequences.front().positions)) {
      const Expected<void> used = state_.more.use_rows(layouts_.more, *spec, cut, options_);
      if (used) {
        parts.insert(parts.end(), cut.begin(), cut.end());
        return {};
      }
      if (used.error().code != ErrorCode::kUsage) return used;
    }
    return reason();
  }

  /// Whether work overlaps with products in the compiled step. If a short model's first layers do not fit, the whole
  /// model's do not either. Errors: kUsage if the sequences do not fit.
  Expected<bool> fits(std::int64_t sequences) const {
    auto found = fits_.find(sequences);
    if (found == fits_.end()) found = fits_.emplace(sequences, count(sequences)).first;
    return found->second;
  }
  Expected<bool> count(std::int64_t sequences) const {
    StepSize size = size_;
    size.sequences = sequences;
    DLLM_TRY(const StepSpec* spec, state_.spec(size));
    // The allocator reserves BLEN rows, into which the last block of a product may write padding.
    const std::int64_t rows =
        static_cast<std::int64_t>(machine_.vram_elements) / machine_.vlen - std::int64_t{machine_.blen};
    if (state_.more.least_rows(layouts_.more, *spec) > rows) return too_many();
    DLLM_TRY(const StepUse more, state_.more.use(layouts_.more, *spec, options_));
    if (state_.left_out == 0) return more.overlapped;
    DLLM_TRY(const std::int64_t first, whole_rows(more, *spec, options_));
    if (first <= rows) return more.overlapped;
    if (!more.steady || !state_.alike) return count_whole(*spec);
    if (!more.overlapped) return too_many();
    CompileOptions plain = options_;
    plain.overlap = false;
    DLLM_TRY(const StepUse apart, state_.more.use(layouts_.more, *spec, plain));
    DLLM_TRY(const std::int64_t second, whole_rows(apart, *spec, plain));
    if (second <= rows) return false;
    return too_many();
  }
  /// Found without the compiler, whose error names the operator: reason().
  static Error too_many() {
    return {ErrorCode::kUsage, "the rows of these sequences do not fit into vector SRAM", "npu compiler",
            "fewer rows per step (--batch, --rows), or --set sram.vector_rows=N with a larger N"};
  }
  /// Why a single sequence does not fit: the first error of its compilation.
  Error reason() const {
    const auto exactly = [this]() -> Expected<bool> {
      DLLM_TRY(const StepSpec* spec, state_.spec(size_));
      DLLM_CHECK_OK(state_.more.use(layouts_.more, *spec, options_));
      return count_whole(*spec);
    }();
    return exactly ? too_many() : exactly.error();
  }
  /// Of vector SRAM that the whole model takes if `more` of its layers take so many.
  Expected<std::int64_t> whole_rows(const StepUse& more, const StepSpec& spec, const CompileOptions& options) const {
    if (more.steady) return more.vram_rows + state_.left_out * more.layer_rows;
    DLLM_TRY(const StepUse fewer, state_.fewer.use(layouts_.fewer, spec, options));
    return more.vram_rows + state_.left_out * (more.vram_rows - fewer.vram_rows);
  }
  Expected<bool> count_whole(const StepSpec& spec) const {
    if (!layouts_.whole) {
      DLLM_TRY(layouts_.whole, state_.all().layout(machine_, layouts_.mapping ? &*layouts_.mapping : nullptr));
    }
    layouts_.whole->positions = size_.keys;
    DLLM_TRY(const StepUse all, state_.all().use(*layouts_.whole, spec, options_));
    return all.overlapped;
  }

  Feasibility::State& state_;
  Feasibility::State::Layouts& layouts_;
  const MachineConfig& machine_;
  StepSize size_;
  CompileOptions options_;
  mutable std::map<std::int64_t, Expected<bool>> fits_;  ///< by sequences
};

CompileOptions step_options(const Device& device, const ChoiceAssumption& choices) {
  CompileOptions options;
  options.choices = choices;
  if (const auto format = mx_format_from_name(device.numerics.logits)) options.logits = *format;
  return options;
}

}  // namespace

Feasibility::Feasibility(const ModelShape& shape) : state_(std::make_unique<State>(shape)) {}
Feasibility::Feasibility(Feasibility&&) noexcept = default;
Feasibility::~Feasibility() = default;

Expected<MemoryNeed> Feasibility::memory_need(const Device& device, std::int64_t positions, bool any_sram) {
  DLLM_TRY(MachineConfig machine, machine_config(device));
  if (any_sram) machine.mram_elements = machine.vram_elements = kAnySram;
  return state_->need(machine, positions);
}

Expected<std::vector<RowPart>> Feasibility::step_parts(const Device& device, const StepSize& step,
                                                       const ChoiceAssumption& choices) {
  DLLM_TRY(const MachineConfig machine, machine_config(device));
  DLLM_TRY(State::Layouts * layouts, state_->layouts(machine, nullptr, step.keys));
  std::vector<RowPart> parts;
  const StepFitter fitter(*state_, *layouts, machine, step, step_options(device, choices));
  DLLM_CHECK_OK(fitter.cut(step.sequences, parts));
  return parts;
}

Expected<std::vector<FittingParts>> Feasibility::fitting_parts(const Device& device, const StepSize& step,
                                                               const ChoiceAssumption& choices,
                                                               const Mapping& mapping) {
  DLLM_TRY(const MachineConfig machine, machine_config(device));
  DLLM_TRY(State::Layouts * layouts, state_->layouts(machine, &mapping, step.keys));
  return StepFitter(*state_, *layouts, machine, step, step_options(device, choices)).all(step.sequences);
}

Expected<BlockParts> Feasibility::block_parts(const Device& device, const Workload& workload) {
  BlockParts parts;
  DLLM_TRY(parts.warm, step_parts(device, warm_step(workload), workload.choices));
  DLLM_TRY(parts.refine, step_parts(device, refine_step(workload), workload.choices));
  return parts;
}

Expected<MemoryNeed> memory_need(const Device& device, const ModelShape& shape, std::int64_t positions, bool any_sram) {
  return Feasibility(shape).memory_need(device, positions, any_sram);
}

Expected<std::vector<RowPart>> check_feasible(const Device& device, const ModelShape& shape, const StepSize& step,
                                              const ChoiceAssumption& choices) {
  Feasibility one(shape);
  DLLM_TRY(const MemoryNeed need, one.memory_need(device, step.keys));
  DLLM_CHECK_OK(check_caches(need, step.sequences));
  return one.step_parts(device, step, choices);
}

Expected<BlockParts> check_feasible(const Device& device, const ModelShape& shape, const Workload& workload) {
  Feasibility one(shape);
  const StepSize warm = warm_step(workload);
  DLLM_TRY(const MemoryNeed need, one.memory_need(device, warm.keys));
  DLLM_CHECK_OK(check_caches(need, warm.sequences));
  return one.block_parts(device, workload);
}

}  // namespace dllm::npu
