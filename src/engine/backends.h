#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "cpu/peak.h"
#include "decode/loop/second_path.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/latency_key.h"
#include "engine/load_options.h"
#include "engine/virtual_time.h"
#include "model/model.h"
#include "ranks/rank_groups.h"

namespace dllm {

namespace cpu {
class Profile;
}

/// A model and the backend that runs it.
struct RunningBackend {
  std::unique_ptr<Backend> backend;
  std::string isa;                  ///< kernel set, or device and how it rounds; empty: does not apply to this backend
  std::string arithmetic;           ///< of products with quantized weights; empty: does not apply to this backend
  std::string drafts_arithmetic{};  ///< the same of the model that computes drafts; empty: there is none
  std::int32_t threads = 0;         ///< 0: does not apply to this backend
  /// What latency tables measured on it depend on; absent: its steps cannot be timed by this machine's clock.
  std::optional<LatencyKey> latency;
  /// What it reads besides the model's files: the weight cache, and the model that computes drafts. Its scores are
  /// valid as long as these files are unchanged.
  std::vector<std::shared_ptr<const MappedFile>> files;
  /// Makes a runner with its own `threads` that works concurrently and must not outlive the backend; null: unsupported.
  std::function<Expected<std::unique_ptr<PassRunner>>(int threads)> second_path;
  /// Of a device with memory of its own, thread-safe; null: there is none. Must not be called after the backend's end.
  std::function<DeviceStatus()> device;
  /// Adds the time of every shader of a device to a borrowed profile from now on; nullptr: no longer. Null: unsupported
  /// (run_on_cpu() takes its profile when it is called). Must not be called after the backend's end.
  std::function<void(cpu::Profile*)> profile;
  /// Of a model on several ranks; null: it runs on one. Must not be used after the backend's end.
  RankGroups* ranks = nullptr;
  /// Present exactly if the entry says `virtual_time`; must not outlive the backend.
  std::unique_ptr<VirtualClock> clock;
};

/// Measures what a machine or device can do, whenever it is called.
using PeakMeter = std::function<Expected<cpu::Peaks>()>;

/// Builds the graph of a step.
using GraphOfStep = std::function<Graph(StepShape)>;

/// A model of which only the shape counts.
struct ModelOutline {
  std::string name;
  ModelDesc desc;
  GraphOfStep graph;
};

/// What LoadOptions::device means to a backend.
struct DeviceNames {
  std::string kind;  ///< "a profile of an NPU, by name or file"; empty: it reads no name
  /// What a model may run on here, with everything but `backend`. Errors: why there is nothing ("no Vulkan loader is
  /// installed"), with how to get it. Null: not listed.
  Expected<std::vector<DeviceInfo>> (*list)() = nullptr;
  /// Whether it knows a device by this name, which is not empty. Called before the model is read, and with the names
  /// meant for other backends too. Errors: kUsage.
  Expected<void> (*check)(const std::string& name) = nullptr;
};

/// Files whose matrices are in the order of a device's memory (`dllm convert --layout DEVICE`).
struct DeviceTiles {
  struct Report {
    std::int64_t tiled = 0;  ///< matrices in tiles
    std::int64_t kept = 0;   ///< other tensors, in rows
  };
  std::string kind;  ///< of those devices: "a phone's NPU (mobile-sm8750)"
  /// The type that the matrices must have: "Q4_0". Errors: kUsage, and the device's.
  Expected<std::string> (*type)(const std::string& device);
  /// Rewrites a GGUF file with matrices of that type, completely or not at all.
  Expected<Report> (*write)(const std::string& path, const std::string& device);
};

/// A kind of backend, and what it can do, as far as others must know before it runs. Nothing outside engine/backend/
/// asks for a backend's name.
struct BackendEntry {
  std::string name;
  std::string meaning;
  /// Reads its settings from `options` and refuses the others (check_load). The model must outlive the result; `path`
  /// is where it was loaded from. Null: this build has not got it (`missing`).
  Expected<RunningBackend> (*make)(const Model& model, const std::string& path, const LoadOptions& options,
                                   const Log& log) = nullptr;
  std::string missing{};              ///< how to get a build that has it: "install libvulkan-dev and build again"
  std::vector<LoadReader> readers{};  ///< the ways in which it runs, each with the load options that it reads
  std::vector<LoadOption> options{};  ///< load options of its own
  std::string implied_by{};  ///< the key of one of them that asks for the backend where none is named; empty: none does
  DeviceNames devices{};
  /// Peaks to compare its steps with. Null: they are not measured. Errors: kUsage, kUnsupported, kResource.
  Expected<PeakMeter> (*peaks)(const LoadOptions& options) = nullptr;
  bool virtual_time = false;  ///< RunningBackend::clock times its answers: this machine's clock measures nothing
  std::optional<DeviceTiles> tiles{};  ///< absent: a file with matrices in a device's tiles is refused
  /// The same without weights, for replays of recorded commits, which need no values; null: it has no such mode.
  Expected<RunningBackend> (*make_valueless)(const ModelDesc& desc, const GraphOfStep& graph,
                                             const LoadOptions& options) = nullptr;
  /// Models for that mode that have no weights, by name or file; nullopt: the name is of none of them. Null: it knows
  /// none.
  Expected<std::optional<ModelOutline>> (*outline)(const std::string& name) = nullptr;
};

/// The backends that are known; the first is the default. A new one needs a file in engine/backend/ and a line in
/// backend/built.cpp. References stay valid when others are added.
const std::deque<BackendEntry>& backends();

/// Adds one from outside this library, before options are read or a model is loaded: a static initialiser may do it.
/// Returns true.
bool add_backend(BackendEntry entry);

/// Empty: the default. Errors: kUsage (unknown); kUnsupported (missing from this build).
Expected<const BackendEntry*> find_backend(const std::string& name);

/// The backend that the options name or imply, which knows the device that they name. Errors: those of find_backend();
/// kUsage (no such device, or another backend's).
Expected<const BackendEntry*> requested_backend(const LoadOptions& options);

/// "--backend npu or --backend other": those of which `holds` is true; empty: none.
std::string backend_flags(const std::function<bool(const BackendEntry&)>& holds);
/// Those with virtual time.
std::string virtual_time_flags();

}  // namespace dllm
