#pragma once

#include <string>
#include <string_view>

#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "cpu/weight_cache.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/backends.h"
#include "model/model.h"

namespace dllm {

namespace cpu {
class Profile;
}

/// The load options that run_on_cpu() reads without --numerics. A backend that computes by it and has options of its
/// own checks these first, and passes the others on.
const LoadReader& cpu_reader();

/// The CPU backend for the model loaded from `path`, as backends() makes it. `profile`: borrowed, records the time of
/// every operator; nullptr: none. Errors: kUsage naming the flag, and those of CpuBackend::create().
Expected<RunningBackend> run_on_cpu(const Model& model, const std::string& path, const LoadOptions& options,
                                    const Log& log, cpu::Profile* profile = nullptr);

/// Errors: kUnsupported, for an arithmetic that only another backend has.
Expected<void> check_cpu_arithmetic(const LoadOptions& options);

/// Values of the names in `options`, which check_load() has accepted.
CpuOptions cpu_options(const LoadOptions& options);

/// The type of K and V that a name is of; kAuto: of none.
CpuKvType kv_type_of(std::string_view name);

/// The weight cache is identified by the file at `path`, but holds what was mapped: whether they are still the same.
/// Errors: kIo.
Expected<void> check_unreplaced(const Model& model, const std::string& path);

/// Where the packed weights of the model at `path` are stored, and the key that identifies the model. No path in the
/// result if the options request none. Errors: kUsage ("auto" for the embedded model).
Expected<WeightCacheOptions> weight_cache_options(const std::string& model, const LoadOptions& load, const Log& log);

}  // namespace dllm
