// LoRA adapters that rank 0 sends to workers, which have none of their own.
#include "engine/backend/rank_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/hash.h"
#include "base/to_size.h"
#include "base/try.h"
#include "engine/backend/rank_flags.h"
#include "format/tensor_info.h"
#include "ranks/agree.h"
#include "ranks/wire.h"

namespace dllm {
namespace {

constexpr std::size_t kAdapterPiece = std::size_t{4} << 20;
constexpr std::uint64_t kMostAdapters = std::uint64_t{1} << 36;

Error not_adapters() {
  return {ErrorCode::kIo, "rank 0 sent something else than adapters", "ranks", "start all ranks with the same version"};
}

bool in_file(const Adapter& adapter) { return adapter.files.empty() && adapter.owner == nullptr; }

void put_tensor(WireWriter& to, const SourceTensor& tensor) {
  std::vector<std::byte> reordered;
  const std::span<const std::byte> bytes = tensor_bytes(tensor, reordered);
  to.put(tensor.name).put(static_cast<std::uint32_t>(tensor.type));
  to.put(tensor.shape[0]).put(tensor.shape[1]);
  to.put(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// A matrix, whose bytes `owner` keeps.
void get_tensor(WireReader& from, std::vector<std::unique_ptr<std::string>>& owner, SourceTensor& tensor) {
  constexpr std::int64_t kMostSide = std::int64_t{1} << 24;
  tensor.name = from.text();
  const auto type = from.get<std::uint32_t>();
  const auto columns = from.get<std::int64_t>(), rows = from.get<std::int64_t>();
  owner.push_back(std::make_unique<std::string>(from.text()));
  const Codec* const format = find_codec(type);
  if (format == nullptr || columns < 1 || rows < 1 || columns > kMostSide || rows > kMostSide ||
      columns % format->block_elems != 0 || owner.back()->size() != to_size(format->row_bytes(columns)) * to_size(rows))
    return from.fail();
  tensor.type = format->type;
  tensor.shape = {columns, rows};
  tensor.data = std::as_bytes(std::span(*owner.back()));
}

}  // namespace

std::vector<std::byte> encode_adapters(const Model& model) {
  std::vector<const Adapter*> sent;
  for (const Adapter& adapter : model.adapters())
    if (!in_file(adapter)) sent.push_back(&adapter);
  WireWriter to;
  to.list(sent, [&to](const Adapter* adapter) {
    to.put(adapter->name).put(adapter->drafts_only);
    to.list(adapter->parts, [&to](const AdapterPart& part) {
      to.put(part.weight).put(part.scale);
      put_tensor(to, part.a), put_tensor(to, part.b);
    });
  });
  return to.take();
}

Expected<std::vector<Adapter>> decode_adapters(std::span<const std::byte> bytes) {
  constexpr std::size_t kLeastPart = 64;  // texts, types, shapes and the scale, with nothing in the texts
  std::vector<Adapter> adapters;
  WireReader from(bytes);
  from.list(adapters, 9, [&from](Adapter& adapter) {
    const auto owner = std::make_shared<std::vector<std::unique_ptr<std::string>>>();
    adapter.name = from.text();
    from.get(adapter.drafts_only);
    from.list(adapter.parts, kLeastPart, [&](AdapterPart& part) {
      part.weight = from.text();
      from.get(part.scale);
      if (!std::isfinite(part.scale)) from.fail();
      get_tensor(from, *owner, part.a), get_tensor(from, *owner, part.b);
    });
    adapter.owner = owner;
  });
  if (from.ended()) return adapters;
  return not_adapters();
}

std::string adapters_fingerprint(const Model& model) {
  if (model.adapters().empty()) return "";
  Fnv1a hash;
  for (const Adapter& adapter : model.adapters())
    for (const AdapterPart& part : adapter.parts) {
      hash.add(part.weight).add(static_cast<std::uint8_t>(adapter.drafts_only));
      hash.add(fmt::format("{:a}", part.scale));
      for (const SourceTensor* const half : {&part.a, &part.b}) {
        constexpr std::size_t kSample = 4096;
        hash.add(static_cast<std::uint8_t>(half->type)).add(to_string(half->shape));
        hash.add(half->data.first(std::min(kSample, half->data.size())));
      }
    }
  return fmt::format("{:016x}", hash.value());
}

Expected<std::vector<Adapter>> share_adapters(const Model* model, bool lacks, Communicator& ranks) {
  DLLM_TRY(const std::vector<std::byte> flags, gather_flags(ranks, lacks));
  if (!any(flags)) return std::vector<Adapter>();
  const std::vector<std::byte> own = ranks.rank() == 0 ? encode_adapters(*model) : std::vector<std::byte>();
  WireWriter size;
  DLLM_TRY(const std::vector<std::byte> told, ranks.broadcast(size.put(std::uint64_t{own.size()}).take()));
  WireReader from(told);
  const auto all = from.get<std::uint64_t>();
  if (!from.ended() || all > kMostAdapters) return not_adapters();
  std::vector<std::byte> bytes;
  for (std::uint64_t at = 0; at < all;) {
    const auto count = to_size(std::min<std::uint64_t>(kAdapterPiece, all - at));
    std::vector<std::byte> piece;
    if (ranks.rank() == 0)
      piece.assign(own.begin() + static_cast<std::ptrdiff_t>(at),
                   own.begin() + static_cast<std::ptrdiff_t>(at + count));
    DLLM_TRY(piece, ranks.broadcast(std::move(piece)));
    if (piece.size() != count) return not_adapters();
    if (lacks) bytes.insert(bytes.end(), piece.begin(), piece.end());
    at += count;
  }
  auto decoded = lacks ? decode_adapters(bytes) : Expected<std::vector<Adapter>>(std::vector<Adapter>());
  DLLM_CHECK_OK(agree(ranks, decoded ? Expected<void>() : Expected<void>(decoded.error())));
  return decoded;
}

}  // namespace dllm
