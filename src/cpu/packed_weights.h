#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/packed.h"
#include "cpu/kernels/super.h"
#include "cpu/page_memory.h"
#include "cpu/weight_cache.h"
#include "graph/graph.h"
#include "model/weights.h"

namespace dllm::cpu {

/// A matrix in the kernels' layout: for `exact` (kernels/packed.h), or for `super` (kernels/super.h).
struct PackedWeight {
  const PackedFormat* format = nullptr;
  PackedLayout layout;
  std::optional<SuperLayout> super;  ///< then `layout` is not used
  const std::uint8_t* panels = nullptr;
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::int64_t experts = 1;  ///< matrices of n outputs in sequence, each starting with a new panel
  bool regular = false;      ///< see pack_panel()
  bool in_steps = false;     ///< BF16 or F16 in the arithmetic `super`, with the panels of `exact`

  std::int64_t panels_per_expert() const { return (n + kPanel - 1) / kPanel; }
  std::int64_t panel_bytes() const { return super ? super->bytes : layout.bytes; }
  std::int64_t panel_count() const { return experts * panels_per_expert(); }
};

/// Thrown by PackedWeights::pack() when its progress callback cancels.
struct PackingStopped {};

/// Weights that use the arithmetic `super`, if their type supports it.
enum class SuperWeights : std::uint8_t { kNone, kQuantized, kAll };

/// The quantized matrices of a model, packed once. The file's pages are released tensor by tensor, so that at most one
/// tensor is in memory twice.
class PackedWeights {
 public:
  PackedWeights() = default;

  /// Packs the weights that Linear, Experts and ScoreHead operators read and that have an integer kernel. Tables for
  /// row look-ups (Embed) are not packed, since a look-up touches only a few of their rows; a tied table is both. With
  /// a cache, maps its contents; otherwise packs and writes it, and reports why. `progress` gets the fraction done, by
  /// bytes. Throws std::bad_alloc, PackingStopped. A cache holds the model: it serves any adapter, whose matrices every
  /// load packs.
  static PackedWeights pack(const Graph& graph, const Weights& weights, ThreadPool& pool,
                            const WeightCacheOptions& cache = {}, const std::function<bool(double)>& progress = {},
                            SuperWeights super = SuperWeights::kNone);

  /// Memory that the panels of pack() take, without packing them.
  static std::int64_t bytes_needed(const Graph& graph, const Weights& weights);

  /// nullptr: not packed.
  const PackedWeight* find(WeightId id) const {
    const auto i = static_cast<std::size_t>(id);
    return i < by_id_.size() && by_id_[i].format != nullptr ? &by_id_[i] : nullptr;
  }
  /// "exact", "super", or "super, exact for ..." with the weights that are packed for `exact`. `residual`: single
  /// matrices of codes have the arithmetic of that name.
  std::string arithmetic(bool residual = false) const;
  /// Memory of the panels packed here, not of those in the cache's file.
  std::size_t bytes() const { return memory_.size() + adapters_.size(); }
  /// Whether the panels are in the cache's file.
  bool mapped() const { return file_ != nullptr; }
  /// The cache's file, if the panels are in it; else null.
  const std::shared_ptr<const MappedFile>& file() const { return file_; }

 private:
  /// Weights to be packed into one stretch of memory.
  struct Stretch {
    std::vector<std::size_t> order;  ///< ids of weights
    std::vector<CachedTensor> tensors;
    std::uint64_t bytes = 0;
  };

  void want_all(const Graph& graph, const Weights& weights, SuperWeights super, Stretch& model, Stretch& adapters);
  void want(const WeightDecl& decl, const WeightView& view, std::size_t id, SuperWeights super, Stretch& stretch);
  bool map(const WeightCacheOptions& cache, const Stretch& stretch, ThreadPool& pool);
  /// Returns which are regular.
  std::vector<bool> pack(const Stretch& stretch, PageMemory& memory, const Weights& weights, ThreadPool& pool,
                         const std::function<bool(double)>& progress);

  std::vector<PackedWeight> by_id_;
  PageMemory memory_;                       ///< of the panels packed here
  std::shared_ptr<const MappedFile> file_;  ///< or of those that were packed before
  PageMemory adapters_;                     ///< of adapters, which a cache never holds
};

/// One matrix in separate memory, for tests and benchmarks.
class PackedMatrix {
 public:
  /// `view.type` has a packed format, and supports `super` if that is requested. Throws std::bad_alloc.
  PackedMatrix(const WeightView& view, ThreadPool& pool, bool super = false);
  const PackedWeight& weight() const { return weight_; }

 private:
  PackedWeight weight_;
  PageMemory memory_;
};

}  // namespace dllm::cpu
