#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/thread_pool.h"
#include "format/mapped_file.h"
#include "numerics/tensor_type.h"

namespace dllm {

/// Where packed weights are stored between loads, and which model they belong to.
struct WeightCacheOptions {
  std::string path;                ///< empty: none
  std::uint64_t source_size = 0;   ///< bytes of the model's file or files
  std::uint64_t source_stamp = 0;  ///< changes when the files change: a modification time, or a hash of several
  /// Whether the model is still the one that was read; called before its cache is written.
  std::function<Expected<void>()> check_source{};
  Log log{};  ///< receives why a cache was not used or not written
};

namespace cpu {

/// The arithmetic whose kernels read a tensor's panels.
enum class PackedFor : std::uint8_t { kExact, kSuper };

/// The required contents of a model's weight cache: derived from the model alone, so that offsets and sizes in the file
/// are never used, only compared.
struct CachedTensor {
  std::string name;
  TensorType type{};
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::uint64_t offset = 0;           ///< of the panels within the payload; a multiple of a page
  std::uint64_t bytes = 0;            ///< of the panels
  std::span<const std::byte> source;  ///< the weights they are packed from
  PackedFor arithmetic = PackedFor::kExact;
};

/// FNV-1a-like hash of the tensor table and of bytes sampled from every tensor. It detects a model that is rewritten
/// within the clock's resolution with the same size.
std::uint64_t source_fingerprint(std::span<const CachedTensor> tensors);

/// A valid cache. The file stays mapped as long as `file` lives.
struct LoadedPanels {
  std::shared_ptr<const MappedFile> file;
  std::span<const std::byte> payload;
  std::vector<bool> regular;  ///< per tensor, see pack_panel()
};

/// Maps and verifies the whole cache. Errors: kIo (absent, unreadable), kMismatch (another model, another layout),
/// kInvalidFile (damaged, or not a weight cache).
Expected<LoadedPanels> load_panels(const WeightCacheOptions& options, std::span<const CachedTensor> tensors,
                                   ThreadPool& pool);

/// Writes `payload` as the cache of `tensors` (OutputFile). Does not overwrite a file that is not a weight cache.
/// Errors: those of OutputFile, kUsage (not a weight cache).
Expected<void> store_panels(const WeightCacheOptions& options, std::span<const CachedTensor> tensors,
                            const std::vector<bool>& regular, std::span<const std::byte> payload, ThreadPool& pool);

}  // namespace cpu
}  // namespace dllm
