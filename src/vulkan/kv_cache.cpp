#include "vulkan/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/try.h"

namespace dllm::vulkan {

CacheLayout::CacheLayout(std::span<const cpu::KvShape> layers, const CacheFormat& format) : format_(format) {
  for (const cpu::KvShape& shape : layers) {
    const std::int64_t row = format.row_bytes(shape.head_dim), head = kTilePositions * row, all = shape.kv_heads * head;
    places_.push_back(
        {0, static_cast<std::uint32_t>(tile_bytes_ / 4), static_cast<std::uint32_t>((tile_bytes_ + all) / 4)});
    for (std::int64_t h = 0; h < 2 * shape.kv_heads; ++h) heads_.push_back({tile_bytes_ + h * head, row});
    tile_bytes_ += 2 * all;
  }
  for (CachePlace& place : places_) place.tile_words = static_cast<std::uint32_t>(tile_bytes_ / 4);
}

std::vector<VkBufferCopy> CacheLayout::pieces(PositionRange rows, Position to) const {
  std::vector<VkBufferCopy> all;
  const auto add = [&](std::int64_t from, std::int64_t at, std::int64_t bytes) {
    all.push_back({static_cast<VkDeviceSize>(from), static_cast<VkDeviceSize>(at), static_cast<VkDeviceSize>(bytes)});
  };
  std::int64_t left = rows.size();
  for (std::int64_t from = rows.begin, at = to, count = 0; left > 0; from += count, at += count, left -= count) {
    const std::int64_t in = from % kTilePositions, out = at % kTilePositions;
    const std::int64_t source = from / kTilePositions * tile_bytes_, target = at / kTilePositions * tile_bytes_;
    if (in == 0 && out == 0 && left >= kTilePositions) {
      // Whole tiles follow each other.
      const std::int64_t tiles = left / kTilePositions;
      count = tiles * kTilePositions;
      add(source, target, tiles * tile_bytes_);
      continue;
    }
    count = std::min({kTilePositions - in, kTilePositions - out, left});
    for (const Head& head : heads_)
      add(source + head.offset + in * head.row_bytes, target + head.offset + out * head.row_bytes,
          count * head.row_bytes);
  }
  return all;
}

Expected<std::unique_ptr<VulkanKvCache>> VulkanKvCache::create(std::shared_ptr<Device> device,
                                                               std::shared_ptr<const CacheLayout> layout,
                                                               Position capacity) {
  std::unique_ptr<VulkanKvCache> cache(new VulkanKvCache(capacity));
  cache->layout_ = std::move(layout);
  DLLM_TRY(cache->memory_, Buffer::make(device, cache->layout_->bytes(capacity), Place::kDevice,
                                        fmt::format("a KV cache of {} positions", capacity)));
  cache->device_ = std::move(device);
  return cache;
}

Expected<void> VulkanKvCache::copy_pieces(const VulkanKvCache& from, std::span<const VkBufferCopy> pieces) {
  DLLM_TRY(Commands commands, Commands::begin(device_));
  commands.copy(from.memory_, memory_, pieces);
  DLLM_CHECK_OK(commands.end());
  return commands.run("the copy of a KV cache");
}

bool VulkanKvCache::settle() {
  if (!ahead) return true;
  const std::shared_ptr<const UndoPasses> undo = undo_.lock();
  return undo && (*undo)(*this);
}

/// The casts are safe: no cache is a const object.
void VulkanKvCache::followed(const KvCache& parent, std::span<const PlanRow>) {
  auto& other = const_cast<VulkanKvCache&>(static_cast<const VulkanKvCache&>(parent));
  if (!other.settle()) invalidate({0, capacity()});
}

void VulkanKvCache::copy(const KvCache& from, PositionRange rows, Position to) {
  auto& other = const_cast<VulkanKvCache&>(static_cast<const VulkanKvCache&>(from));
  assert(other.layout_ == layout_ && to + rows.size() <= capacity());
  if (rows.size() <= 0 || !settle() || !other.settle() || !copy_pieces(other, layout_->pieces(rows, to))) return;
  std::vector<PlanRow> written;
  for (Position p = rows.begin; p < rows.end; ++p) written.push_back({to + p - rows.begin, from.token_of(p)});
  record(written);
}

bool VulkanKvCache::take(const KvCache& branch, std::span<const PositionRange> rows) {
  std::vector<BranchRows::Copy> copies;
  for (const PositionRange& range : rows) copies.push_back({&branch, this, range});
  return share(device_, copies).has_value();
}

Expected<void> VulkanKvCache::share(const std::shared_ptr<Device>& device, std::span<const BranchRows::Copy> copies) {
  if (copies.empty()) return {};
  DLLM_TRY(Commands commands, Commands::begin(device));
  for (const BranchRows::Copy& copy : copies) {
    const auto &from = static_cast<const VulkanKvCache&>(*copy.from), &to = static_cast<const VulkanKvCache&>(*copy.to);
    commands.copy(from.memory_, to.memory_, from.layout_->pieces(copy.rows, copy.rows.begin));
  }
  DLLM_CHECK_OK(commands.end());
  return commands.run("the rows of branches");
}

}  // namespace dllm::vulkan
