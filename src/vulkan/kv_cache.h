#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/branch_rows.h"
#include "backend/kv_cache.h"
#include "backend/unrolling.h"
#include "cpu/cpu_kv_cache.h"
#include "dllm/error.h"
#include "numerics/tensor_type.h"
#include "vulkan/buffer.h"
#include "vulkan/operators.h"
#include "vulkan/passes_ahead.h"

namespace dllm::vulkan {

/// How K and V of a model are arranged (shaders/cache.glsl).
class CacheLayout {
 public:
  CacheLayout(std::span<const cpu::KvShape> layers, const CacheFormat& format);

  const CacheFormat& format() const { return format_; }
  const CachePlace& layer(std::int32_t layer) const { return places_[static_cast<std::size_t>(layer)]; }
  std::int64_t tile_bytes() const { return tile_bytes_; }
  std::int64_t bytes(Position capacity) const { return (capacity + kTilePositions - 1) / kTilePositions * tile_bytes_; }
  /// The pieces of memory that `rows` have in a cache, and where they go in one whose rows begin at `to`.
  std::vector<VkBufferCopy> pieces(PositionRange rows, Position to) const;

 private:
  /// K or V of a head of a layer, in a tile.
  struct Head {
    std::int64_t offset = 0;
    std::int64_t row_bytes = 0;  ///< of a position
  };
  CacheFormat format_;
  std::int64_t tile_bytes_ = 0;
  std::vector<CachePlace> places_;
  std::vector<Head> heads_;
};

class VulkanKvCache;
/// Undoes the passes of a cache that nobody has asked for. Errors: kResource.
using UndoPasses = std::function<Expected<void>(VulkanKvCache&)>;

/// K and V in a device's memory.
class VulkanKvCache final : public KvCache, public UnrollingCache {
 public:
  /// Errors: kResource.
  static Expected<std::unique_ptr<VulkanKvCache>> create(std::shared_ptr<Device> device,
                                                         std::shared_ptr<const CacheLayout> layout, Position capacity);

  VkDeviceAddress address() const { return memory_.address(); }
  std::int64_t bytes() const override { return memory_.bytes(); }
  /// If the device fails, the rows stay empty.
  void copy(const KvCache& from, PositionRange rows, Position to) override;
  /// Makes the copies, between caches of this kind. Errors: kResource.
  static Expected<void> share(const std::shared_ptr<Device>& device, std::span<const BranchRows::Copy> copies);
  /// Called once per pass, by the backend.
  void wrote(std::span<const PlanRow> rows) { record(rows); }

  /// Its backend makes so many passes in a row at most, and undoes them while it lives.
  void unroll(std::int32_t most, const std::shared_ptr<const UndoPasses>& undo) { most_passes_ = most, undo_ = undo; }
  std::int32_t most_passes() const override { return most_passes_; }
  void expect(std::optional<CommitRule> rule) override { rule_ = std::move(rule); }
  /// What was said of the coming pass; it holds no longer.
  std::optional<CommitRule> take_rule() { return std::exchange(rule_, std::nullopt); }
  /// Passes that have run and were not asked for: its memory is that of the last of them.
  std::optional<PassesAhead> ahead{};
  bool foreseeable = true;  ///< false: another pass came than was foreseen, so none is foreseen any more

 protected:
  void followed(const KvCache& parent, std::span<const PlanRow> pending) override;
  bool take(const KvCache& branch, std::span<const PositionRange> rows) override;

 private:
  explicit VulkanKvCache(Position capacity) : KvCache(capacity) {}
  Expected<void> copy_pieces(const VulkanKvCache& from, std::span<const VkBufferCopy> pieces);
  /// Whether the memory is that of the last pass which was asked for.
  bool settle();

  std::shared_ptr<Device> device_;
  std::shared_ptr<const CacheLayout> layout_;
  Buffer memory_;
  std::int32_t most_passes_ = 1;
  std::weak_ptr<const UndoPasses> undo_;
  std::optional<CommitRule> rule_;
};

}  // namespace dllm::vulkan
