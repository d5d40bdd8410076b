// Presets: `exact` is the default, spelled out. The others trade accuracy for fewer passes; research/lab/methods.md has
// their figures and how they were chosen.
#include "engine/presets.h"

#include <fmt/format.h>

#include "base/nearest.h"
#include "base/try.h"
#include "engine/method.h"

namespace dllm {
namespace {

bool every_model(const ModelDesc&) { return true; }

/// Models that fill masks with full attention: on others these caches save nothing.
bool full_attention(const ModelDesc& desc) {
  return desc.mask.has_value() && desc.causal_block == 0 && desc.canvas.length == 0 && desc.modes.empty();
}

GenerateOptions balanced() {
  GenerateOptions options;
  options.cache = {"vicinity", {{"cache_warmup", 1}}};
  return options;
}

GenerateOptions fast() {
  GenerateOptions options;
  options.cache = {"dual"};
  options.decoder = {"revision", {{"stable_threshold", 0.99}}};
  return options;
}

/// Each pass computes the masks of the block and the tokens that have just been committed.
GenerateOptions frugal() {
  GenerateOptions options = fast();
  options.cache = {"delayed-greedy"};
  return options;
}

/// Drafts of runs are reviewed, so that a wrong one costs a pass and no point.
GenerateOptions swift() {
  GenerateOptions options = frugal();
  options.decoder.options["run_threshold"] = 0.3;
  return options;
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {{"exact", "the default: every pass computes the whole model", {}}, every_model},
      {{"balanced", "fewer rows per pass: the window and the rows next to it", balanced()}, full_attention},
      {{"fast", "fewer rows and passes; for models that were trained with wrong tokens in their input", fast()},
       full_attention},
      {{"frugal", "fewest rows: only masks and tokens just committed; for models as those of fast", frugal()},
       full_attention},
      {{"swift", "fewest passes: frugal, and of each run of masks one is drafted", swift()}, full_attention},
  };
  return all;
}

Expected<const Preset*> preset_named(std::string_view name) {
  std::vector<std::string> known;
  for (const Preset& preset : presets()) {
    if (preset.info.name == name) return &preset;
    known.push_back(preset.info.name);
  }
  return Error{ErrorCode::kUsage, fmt::format("'{}' is unknown", name), "--preset", choice_hint(name, known)};
}

Expected<GenerateOptions> with_preset(const GenerateOptions& given, const ModelDesc& desc) {
  DLLM_TRY(const Preset* const preset, preset_named(given.preset));
  if (!preset->fits(desc))
    return Error{ErrorCode::kUsage,
                 fmt::format("'{}' is for models that fill masks and attend to the whole canvas", given.preset),
                 "--preset", "leave it out, or give exact"};
  return on_top_of(preset->info.options, given);
}

}  // namespace dllm
