#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "decode/loop/second_path.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/latency_key.h"
#include "model/model.h"

namespace dllm {

namespace npu {
class TimedBackend;
}

/// A model and the backend that runs it.
struct RunningBackend {
  std::unique_ptr<Backend> backend;
  std::string isa;           ///< kernel set; empty: does not apply to this backend
  std::string arithmetic;    ///< of products with quantized weights; empty: does not apply to this backend
  std::int32_t threads = 0;  ///< 0: does not apply to this backend
  /// What latency tables measured on it depend on; absent: its steps cannot be timed by this machine's clock.
  std::optional<LatencyKey> latency;
  npu::TimedBackend* timed = nullptr;  ///< the backend, if it has a virtual clock
  std::string device;                  ///< of that clock
  /// What it reads besides the model's files: the weight cache, and the model that computes drafts. Its scores are
  /// valid as long as these files are unchanged.
  std::vector<std::shared_ptr<const MappedFile>> files;
  /// Makes a runner with its own `threads` that works concurrently and must not outlive the backend; null: unsupported.
  std::function<Expected<std::unique_ptr<PassRunner>>(int threads)> second_path;
};

/// The runner of the second path that these options ask for, with its own threads; null: they ask for none. Errors:
/// kUnsupported, kUsage, kResource.
Expected<std::unique_ptr<PassRunner>> make_second_path(const RunningBackend& running, const ResolvedOptions& resolved,
                                                       const ModelDesc& desc);

/// A kind of backend. `make` reads its settings from `options` and refuses the others. The model must outlive the
/// result; `path` is where it was loaded from.
struct BackendEntry {
  std::string name;
  std::string meaning;
  Expected<RunningBackend> (*make)(const Model& model, const std::string& path, const LoadOptions& options,
                                   const Log& log);
};

/// The backends of this build; the first is the default. A new one needs a file in engine/backend/ and a line here.
const std::vector<BackendEntry>& backends();

/// Errors: kUsage.
Expected<const BackendEntry*> find_backend(const std::string& name);

}  // namespace dllm
