#pragma once

#include <string_view>
#include <vector>

#include "dllm/options.h"
#include "model/model_desc.h"

namespace dllm {

/// A named set of options.
struct Preset {
  PresetInfo info;
  bool (*fits)(const ModelDesc&);  ///< the models that it was chosen for
};

const std::vector<Preset>& presets();

/// Errors: kUsage.
Expected<const Preset*> preset_named(std::string_view name);

/// `given` on top of the preset that it names (on_top_of()). Errors: kUsage (unknown name, a preset that does not
/// support this model).
Expected<GenerateOptions> with_preset(const GenerateOptions& given, const ModelDesc& desc);

}  // namespace dllm
