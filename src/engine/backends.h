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
#include "engine/virtual_time.h"
#include "model/model.h"

namespace dllm {

/// A model and the backend that runs it.
struct RunningBackend {
  std::unique_ptr<Backend> backend;
  std::string isa;           ///< kernel set; empty: does not apply to this backend
  std::string arithmetic;    ///< of products with quantized weights; empty: does not apply to this backend
  std::int32_t threads = 0;  ///< 0: does not apply to this backend
  /// What latency tables measured on it depend on; absent: its steps cannot be timed by this machine's clock.
  std::optional<LatencyKey> latency;
  /// What it reads besides the model's files: the weight cache, and the model that computes drafts. Its scores are
  /// valid as long as these files are unchanged.
  std::vector<std::shared_ptr<const MappedFile>> files;
  /// Makes a runner with its own `threads` that works concurrently and must not outlive the backend; null: unsupported.
  std::function<Expected<std::unique_ptr<PassRunner>>(int threads)> second_path;
  /// Present exactly if the entry says `virtual_time`; must not outlive the backend.
  std::unique_ptr<VirtualClock> clock;
};

/// The runner of the second path that these options ask for, with its own threads; null: they ask for none. Errors:
/// kUnsupported, kUsage, kResource.
Expected<std::unique_ptr<PassRunner>> make_second_path(const RunningBackend& running, const ResolvedOptions& resolved,
                                                       const ModelDesc& desc);

/// Builds the graph of a step.
using GraphOfStep = std::function<Graph(StepShape)>;

/// A kind of backend, and what it can do, as far as others must know before it runs. Nothing outside engine/backend/
/// asks for a backend's name.
struct BackendEntry {
  std::string name;
  std::string meaning;
  /// Reads its settings from `options` and refuses the others. The model must outlive the result; `path` is where it
  /// was loaded from. Null: this build has not got it (`missing`).
  Expected<RunningBackend> (*make)(const Model& model, const std::string& path, const LoadOptions& options,
                                   const Log& log) = nullptr;
  std::string missing{};      ///< how to get a build or a machine that has it: "install libvulkan-dev and build again"
  bool virtual_time = false;  ///< RunningBackend::clock times its answers, so this machine's clock measures nothing
  bool device_tiles = false;  ///< it reads matrices in a device's tiles (ModelSource::device_tiles)
  /// The same without weights, for replays of recorded commits, which need no values; null: it has no such mode.
  Expected<RunningBackend> (*make_valueless)(const ModelDesc& desc, const GraphOfStep& graph,
                                             const LoadOptions& options) = nullptr;
};

/// The backends that are known; the first is the default. A new one needs a file in engine/backend/ and a line in
/// backends.cpp.
const std::vector<BackendEntry>& backends();

/// Adds one from outside this library, which a static initialiser may do. Returns true.
bool add_backend(BackendEntry entry);

/// Empty: the default. Errors: kUsage (unknown); kUnsupported (missing from this build).
Expected<const BackendEntry*> find_backend(const std::string& name);

/// The known backends with virtual time, as the hint of an error: "add --backend npu".
std::string virtual_time_hint();

}  // namespace dllm
