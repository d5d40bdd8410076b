#include "experiment/quant_models.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "app/cli/masked_predictions.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "base/try.h"

namespace dllm::app {

Expected<QuantFolder> QuantFolder::make() {
  std::error_code failure;
  std::string name = (std::filesystem::temp_directory_path(failure) / "dllm-quant-XXXXXX").string();
  if (failure || mkdtemp(name.data()) == nullptr)
    return Error{ErrorCode::kIo, "cannot make a folder for quantized models", name, "set TMPDIR"};
  return QuantFolder(std::move(name));
}

QuantFolder::~QuantFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Expected<LanguageModel> open_in_numerics(const std::string& path, const std::string& profile,
                                         const QuantFolder& folder) {
  LoadOptions load;
  load.numerics = profile;
  load.warnings = false;
  if (profile.find('=') != std::string::npos) {
    load.numerics = fmt::format("{}/{:016x}.toml", folder.path(), Fnv1a().add(profile).value());
    DLLM_CHECK_OK(write_file(load.numerics, profile));
  }
  return LanguageModel::load(path, load);
}

Expected<Divergence> mask_divergence(const Lab& lab, const LanguageModel& first, const LanguageModel& model,
                                     EvalSet items, std::int32_t limit) {
  items.items.resize(std::min(items.items.size(), static_cast<std::size_t>(limit)));
  std::vector<MaskedContender> pair(2);
  pair[0].model = &first;
  pair[1].model = &model;
  MaskedOptions masked;
  masked.canvases = 1;
  DLLM_TRY(const bool complete, measure_masked(items, pair, {}, masked, [](std::size_t, std::size_t) {}, lab.stop()));
  if (!complete) return Error{ErrorCode::kCancelled, "the experiment was interrupted", "", ""};
  return pair[1].divergence;
}

std::int32_t share_of_limit(const LabInputs& inputs, std::int32_t of) { return std::max(1, inputs.limit / of); }

}  // namespace dllm::app
