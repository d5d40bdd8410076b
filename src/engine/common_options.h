#pragma once

#include <vector>

#include "decode/option_row.h"
#include "dllm/options.h"

namespace dllm {

/// An option of every generation: a typed field of GenerateOptions (absent: not given) and of ResolvedOptions (whose
/// initial value is the default).
struct CommonOption {
  OptionRow<GenerateOptions> given;
  OptionRow<ResolvedOptions> resolved;
  bool canvas = false;  ///< also read by models that refine whole canvases

  const OptionInfo& info() const { return resolved.info; }
};

const std::vector<CommonOption>& common_options();

}  // namespace dllm
