// The LM head on several ranks: each reduces its chunks of the vocabulary, then all get the parts of all and finish the
// same rows in the same way. Parts are merged in the order of chunks, as those of one process are.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/to_size.h"
#include "cpu/score_head.h"
#include "graph/split.h"

namespace dllm::cpu {

static_assert(kHeadChunk == kSplitChunk);
static_assert(std::is_trivially_copyable_v<Partial> && std::is_trivially_copyable_v<TopToken>);

namespace {

template <class T>
void put(std::vector<std::byte>& to, const T* values, std::size_t count) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  to.insert(to.end(), bytes, bytes + count * sizeof(T));
}

/// Reads what put() wrote; after the end, nothing.
class BlobReader {
 public:
  explicit BlobReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  bool take(T* values, std::size_t count) {
    if (bytes_.size() / sizeof(T) < count) return false;
    if (count > 0) std::memcpy(values, bytes_.data(), count * sizeof(T));
    bytes_ = bytes_.subspan(count * sizeof(T));
    return true;
  }
  bool ended() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

[[noreturn]] void throw_other_shape(int rank) {
  throw RanksFailed{{ErrorCode::kIo, "rank " + std::to_string(rank) + " sent scores of another shape", "ranks",
                     "start all ranks with the same version and model"}};
}

}  // namespace

std::vector<std::byte> ScoreHead::put_tiles(const std::vector<Scores>& scores) {
  std::vector<std::byte> blob;
  const std::int64_t first = first_chunk() * kHeadChunk, end = std::min(vocab_, end_chunk() * kHeadChunk);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    const Scores& out = scores[to_size(unit.sequence)];
    put(blob, &partial(u, first_chunk()), to_size(end_chunk() - first_chunk()));
    std::vector<TopToken> best = merged_lists(u);
    std::sort(best.begin(), best.end(), better);
    best.resize(std::min(best.size(), to_size(spec(unit).list)));
    const std::uint64_t count = best.size();
    put(blob, &count, 1);
    put(blob, best.data(), best.size());
    const std::vector<LogitQuery>& queries = spec(unit).request.queries;
    for (std::size_t q = 0; q < queries.size(); ++q)
      if (queries[q].scored == unit.index && queries[q].token >= first && queries[q].token < end)
        put(blob, &out.queried[q], 1);
    if (spec(unit).request.logits) put(blob, out.logits.data() + unit.index * vocab_ + first, to_size(end - first));
  }
  return blob;
}

bool ScoreHead::take_tiles(std::span<const std::byte> blob, std::int64_t first_chunk, std::int64_t end_chunk,
                           std::vector<Scores>& scores) {
  BlobReader reader(blob);
  const std::int64_t first = first_chunk * kHeadChunk, end = std::min(vocab_, end_chunk * kHeadChunk);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    Scores& out = scores[to_size(unit.sequence)];
    std::uint64_t count = 0;
    if (!reader.take(&partial(u, first_chunk), to_size(end_chunk - first_chunk)) || !reader.take(&count, 1) ||
        count > to_size(spec(unit).list))
      return false;
    const std::size_t before = remote_[u].size();
    remote_[u].resize(before + static_cast<std::size_t>(count));
    if (!reader.take(remote_[u].data() + before, static_cast<std::size_t>(count))) return false;
    const std::vector<LogitQuery>& queries = spec(unit).request.queries;
    for (std::size_t q = 0; q < queries.size(); ++q)
      if (queries[q].scored == unit.index && queries[q].token >= first && queries[q].token < end &&
          !reader.take(&out.queried[q], 1))
        return false;
    if (spec(unit).request.logits &&
        !reader.take(out.logits.data() + unit.index * vocab_ + first, to_size(end - first)))
      return false;
  }
  return reader.ended();
}

void ScoreHead::share_tiles(std::vector<Scores>& scores) {
  remote_.assign(units_.size(), {});
  const auto blobs = share_.ranks->blobs(put_tiles(scores));
  for (int rank = 0; rank < share_.ranks->size(); ++rank) {
    if (rank == share_.ranks->rank()) continue;
    const UnitRange chunks = share_of(chunks_, rank, share_.ranks->size());
    if (!take_tiles(blobs[to_size(rank)], chunks.first, chunks.end(), scores)) throw_other_shape(rank);
  }
}

/// `found`: by worker, then by unit. What other ranks found counts as the first worker's; it is sorted afterwards.
void ScoreHead::share_found(std::vector<std::vector<TopToken>>& found, std::size_t units) {
  std::vector<std::byte> blob;
  for (std::size_t i = 0; i < units; ++i) {
    std::uint64_t count = 0;
    for (std::size_t at = i; at < found.size(); at += units) count += found[at].size();
    put(blob, &count, 1);
    for (std::size_t at = i; at < found.size(); at += units) put(blob, found[at].data(), found[at].size());
  }
  const auto blobs = share_.ranks->blobs(blob);
  for (int rank = 0; rank < share_.ranks->size(); ++rank) {
    if (rank == share_.ranks->rank()) continue;
    BlobReader reader(blobs[to_size(rank)]);
    for (std::size_t i = 0; i < units; ++i) {
      std::uint64_t count = 0;
      if (!reader.take(&count, 1) || count > to_size(vocab_)) throw_other_shape(rank);
      const std::size_t before = found[i].size();
      found[i].resize(before + static_cast<std::size_t>(count));
      if (!reader.take(found[i].data() + before, static_cast<std::size_t>(count))) throw_other_shape(rank);
    }
    if (!reader.ended()) throw_other_shape(rank);
  }
}

}  // namespace dllm::cpu
