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

/// `given` on top of its preset. If another method is given for a part, the preset's options of that part are dropped.
/// Errors: kUsage (unknown name, a preset that does not support this model).
Expected<GenerateOptions> with_preset(const GenerateOptions& given, const ModelDesc& desc);

}  // namespace dllm
