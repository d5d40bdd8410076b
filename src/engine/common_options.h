#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "decode/option_row.h"
#include "dllm/options.h"

namespace dllm {

/// An option of every generation: a typed field of GenerateOptions (absent: not given) and of ResolvedOptions (whose
/// initial value is the default).
struct CommonOption {
  OptionRow<GenerateOptions> given;
  OptionRow<ResolvedOptions> resolved;
  std::function<void(GenerateOptions&)> clear;  ///< as if it were not given
  bool canvas = false;                          ///< also read by models that refine whole canvases
  bool filter = false;  ///< of sampling: leaves out tokens that could be drawn. The default leaves out none

  const OptionInfo& info() const { return resolved.info; }
};

const std::vector<CommonOption>& common_options();

/// The filter with this flag; null: there is none.
const CommonOption* filter_of(std::string_view flag);
/// The first filter that leaves out tokens; null: none does.
const CommonOption* filter_in(const ResolvedOptions& resolved);

}  // namespace dllm
