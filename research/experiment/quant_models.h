#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "eval/divergence.h"
#include "eval/eval_set.h"
#include "experiment/lab.h"

namespace dllm::app {

/// A temporary folder that is removed with this object.
class QuantFolder {
 public:
  /// Errors: kIo.
  static Expected<QuantFolder> make();
  QuantFolder(QuantFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  QuantFolder& operator=(QuantFolder&&) = delete;
  ~QuantFolder();
  const std::string& path() const { return path_; }

 private:
  explicit QuantFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// A model under a numerics profile, which is the name of a shipped one, or TOML that is then put into the folder.
Expected<LanguageModel> open_in_numerics(const std::string& path, const std::string& profile,
                                         const QuantFolder& folder);

/// Predictions of masks in one canvas for each of the first `limit` items, against those of `first`. Errors: those of
/// the models; kCancelled.
Expected<Divergence> mask_divergence(const Lab& lab, const LanguageModel& first, const LanguageModel& model,
                                     EvalSet items, std::int32_t limit);

/// Of --limit, one in `of`, at least one.
std::int32_t share_of_limit(const LabInputs& inputs, std::int32_t of);

}  // namespace dllm::app
