// The ways of decoding of models that were trained for several (Nemotron-Labs-Diffusion, I-DLM), which ModeLoop runs,
// and of models with slots (ReFusion), which SlotLoop runs.
#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

/// What the loop of these models does in a way of its own. Decoders choose positions in the mode `diffusion` only.
std::vector<std::string> replaced(std::vector<std::string> more = {}) {
  std::vector<std::string> keys = {"block_origin", "defer_eos", "cfg_scale", "compat",
                                   "window",       "cache",     "suffix",    "smoothing"};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

auto trained_for(DecodingMode mode) {
  return [mode](const ModelDesc& desc) -> Expected<void> {
    if (desc.has_mode(mode)) return {};
    return Error{ErrorCode::kUsage, "the model was not trained for this mode", "", "leave the option out"};
  };
}

/// A model that was trained for nothing else may be asked for it too, so that one command line serves both kinds.
Expected<void> of_one_way(const ModelDesc& desc) {
  if (desc.autoregressive()) return {};
  return trained_for(DecodingMode::kAutoregressive)(desc);
}

/// Self-speculation if the model can: it brings ar's words in the fewest passes.
auto best_of(DecodingMode mode) {
  return [mode](const ModelDesc& desc) { return desc.has_mode(mode); };
}

ModeEntry plain_mode(std::string name, std::string meaning, DecodingMode mode, std::vector<std::string> unread) {
  return declare_method<ModeConfig>(
             std::move(name), std::move(meaning), OptionRows<NoOptions>{},
             [mode](const NoOptions&, const MethodContext&) { return std::make_unique<ModeConfig>(ModeConfig{mode}); })
      .not_read(std::move(unread))
      .only_for(trained_for(mode));
}

constexpr double kWidestDraft = 512;
constexpr Position kInsideDraft = 4;  ///< of I-DLM's published configuration

auto inside_width(Position DraftOptions::* width) {
  return [width](const DraftOptions& own, const ModelDesc& desc, const MethodContext&) {
    return OptionValue(std::int64_t{desc.introspective ? kInsideDraft : own.*width});
  };
}

/// Introspective models draft in the pass that verifies.
Expected<void> of_a_pass_of_its_own(const DraftOptions& o, const ModelDesc& desc) {
  if (!desc.introspective || (o.draft_confidence == 0 && o.draft_objective == DraftObjective::kAcceptance)) return {};
  return Error{ErrorCode::kUsage, "the model drafts in the pass that verifies, so no pass of a draft can be chosen", "",
               "leave --draft-confidence and --draft-objective out"};
}

OptionRows<DraftOptions> draft_option_rows() {
  using O = DraftOptions;
  return {
      option("draft_min", &O::draft_min, 2, kWidestDraft, "positions", "narrowest draft, its known first token too")
          .otherwise("8; 4 for models that draft in the pass that verifies", inside_width(&O::draft_min)),
      option("draft_max", &O::draft_max, 2, kWidestDraft, "positions", "widest draft; a drafter's block bounds it too")
          .flag("--spec-draft-n-max")
          .otherwise("32; 4 for models that draft in the pass that verifies", inside_width(&O::draft_max))
          .checked([](const O& o, const ModelDesc&) -> Expected<void> {
            if (o.draft_min <= o.draft_max) return {};
            return Error{ErrorCode::kUsage, "the widest draft is narrower than --draft-min", "", ""};
          }),
      option("draft_confidence", &O::draft_confidence, 0, 1, "",
             "a pass of the draft keeps tokens of this confidence, at least one; 0: all, in one pass")
          .checked(of_a_pass_of_its_own),
      option("draft_cut", &O::draft_cut, 0, 1, "",
             "the draft ends in front of a token that is less sure than this; the answer is the same")
          .flag("--spec-draft-conf-min"),
      option("draft_objective", &O::draft_objective,
             {{"acceptance", DraftObjective::kAcceptance}, {"rate", DraftObjective::kRate}},
             "width by what became of the last draft, or for the most tokens per millisecond; the answer is the same"),
      option("draft_latency", &O::draft_latency,
             "cost of a pass. nominal: of no machine; a file of dllm bench latency; auto: measured here and kept")
          .only("with --draft-objective rate", [](const O& o) { return o.draft_objective == DraftObjective::kRate; })};
}

/// Defaults of generate_refusion() in ReFusion's repository.
OptionRows<SlotOptions> slot_option_rows() {
  using O = SlotOptions;
  return {option("slot_threshold", &O::slot_threshold, 0, 2, "",
                 "slots whose first token is surer than this are filled next, at least the surest"),
          option("token_threshold", &O::token_threshold, 0, 2, "",
                 "tokens of a slot stand up to the first that is not surer than this"),
          option("slot_length", &O::slot_length, 1, kMostPositions, "positions", "of a slot")
              .otherwise("the model's", [](const O&, const ModelDesc& desc, const MethodContext&) {
                return OptionValue(std::int64_t{desc.slot_length});
              })};
}

}  // namespace

ModeEntry slots_mode() {
  return declare_method<ModeConfig>(
             "slots", "runs of positions in any order, each filled from left to right and verified", slot_option_rows(),
             [](const SlotOptions& options, const MethodContext&) {
               return std::make_unique<ModeConfig>(ModeConfig{DecodingMode::kSlots, {}, options});
             })
      .not_read(replaced({"decoder"}))
      .only_for(trained_for(DecodingMode::kSlots))
      .standard_for("for models with slots", best_of(DecodingMode::kSlots));
}

ModeEntry autoregressive_mode() {
  return plain_mode("ar", "one token after the other", DecodingMode::kAutoregressive,
                    replaced({"decoder", "block_length"}))
      .only_for(of_one_way)
      .always({.in_order = true})
      .standard_for("where the model has none", best_of(DecodingMode::kAutoregressive));
}

ModeEntry diffusion_mode() {
  return plain_mode("diffusion", "blocks of masks; --algorithm chooses what a pass commits", DecodingMode::kDiffusion,
                    replaced())
      .always({.by_decoder = true})
      .standard_for("where it has neither", best_of(DecodingMode::kDiffusion));
}

ModeEntry self_speculation_mode() {
  return declare_method<ModeConfig>(
             "self-speculation", "the words of ar in fewer passes: the model verifies drafts of its own",
             draft_option_rows(),
             [](const DraftOptions& options, const MethodContext&) {
               return std::make_unique<ModeConfig>(ModeConfig{DecodingMode::kSelfSpeculation, options});
             })
      .not_read(replaced({"decoder", "block_length"}))
      .only_for(trained_for(DecodingMode::kSelfSpeculation))
      .always({.in_order = true})
      .standard_for("", best_of(DecodingMode::kSelfSpeculation));
}

}  // namespace dllm
