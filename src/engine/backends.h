#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "decode/second_path.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/latency_key.h"
#include "model/model.h"

namespace dllm {

/// A model on what runs it.
struct RunningBackend {
  std::unique_ptr<Backend> backend;
  std::string isa;           ///< kernel set; empty: not a notion of this backend
  std::string arithmetic;    ///< of products with quantized weights; empty: not a notion of this backend
  std::int32_t threads = 0;  ///< 0: not a notion of this backend
  /// What latency tables measured on it depend on; absent: this machine's clock does not time its steps.
  std::optional<LatencyKey> latency;
  /// Whether the files that it reads besides the model's are unchanged, so that its scores are valid; null: no files.
  std::function<Expected<void>()> check;
  /// Runs passes on `threads` of their own while the backend runs others, and must not outlive it; null: cannot.
  std::function<Expected<std::unique_ptr<PassRunner>>(int threads)> second_path;
};

/// A kind of backend. `make` reads from `options` what concerns it and refuses what does not. The model outlives the
/// result; `path` is where it came from.
struct BackendEntry {
  std::string name;
  std::string meaning;
  Expected<RunningBackend> (*make)(const Model& model, const std::string& path, const LoadOptions& options,
                                   const Log& log);
};

/// The backends of this build; the first is the default. A new one is a file of engine/backend/ and its line.
const std::vector<BackendEntry>& backends();

/// Errors: kUsage.
Expected<const BackendEntry*> find_backend(const std::string& name);

}  // namespace dllm
