// Weights that rank 0 sends to ranks without a model.
#include "engine/backend/rank_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/hash.h"
#include "base/human_bytes.h"
#include "base/to_size.h"
#include "base/try.h"
#include "cpu/rank_weights.h"
#include "engine/backend/rank_flags.h"
#include "ranks/agree.h"
#include "ranks/wire.h"

namespace dllm {

std::uint64_t FilePart::bytes() const {
  std::uint64_t sum = 0;
  for (const Range& range : ranges) sum += range.count;
  return sum;
}

std::vector<std::byte> FilePart::encoded() const {
  WireWriter to;
  to.put(file_bytes).put(checksum);
  to.list(ranges, [&to](const Range& range) { to.put(range.first).put(range.count); });
  return to.take();
}

std::string FilePart::digest() const { return fmt::format("{:016x}", Fnv1a().add(encoded()).value()); }

Expected<FilePart> FilePart::decode(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kMostFile = std::uint64_t{1} << 50;
  FilePart part;
  WireReader from(bytes);
  from.get(part.file_bytes), from.get(part.checksum);
  from.list(part.ranges, 16, [&from](Range& range) { from.get(range.first), from.get(range.count); });
  std::uint64_t end = 0;
  if (part.file_bytes > kMostFile) from.fail();
  for (const Range& range : part.ranges) {
    if (range.first < end || range.first > part.file_bytes || range.count == 0 ||
        range.count > part.file_bytes - range.first)
      from.fail();
    end = range.first + range.count;
  }
  if (from.ended() && !part.ranges.empty()) return part;
  return Error{ErrorCode::kIo, "rank 0 sent something else than a list of weights", "ranks",
               "start all ranks with the same version"};
}

namespace {

/// Joins ranges that touch or overlap.
void join_ranges(std::vector<FilePart::Range>& ranges) {
  std::ranges::sort(ranges, {}, &FilePart::Range::first);
  std::vector<FilePart::Range> joined;
  for (const FilePart::Range& range : ranges) {
    if (joined.empty() || range.first > joined.back().first + joined.back().count) {
      joined.push_back(range);
    } else {
      FilePart::Range& last = joined.back();
      last.count = std::max(last.count, range.first + range.count - last.first);
    }
  }
  ranges = std::move(joined);
}

class PartFinder {
 public:
  explicit PartFinder(std::span<const std::byte> file) : file_(file) {}

  bool holds(std::span<const std::byte> data) const {
    return data.data() >= file_.data() && data.data() + data.size() <= file_.data() + file_.size();
  }
  std::uint64_t place(const std::byte* at) const { return static_cast<std::uint64_t>(at - file_.data()); }
  void add(std::span<const std::byte> data) {
    if (!data.empty()) ranges.push_back({place(data.data()), data.size()});
  }
  /// A weight of which the rest is not read; of a stack, all matrices' parts.
  void add_weight(const WeightView& view) {
    const std::size_t matrices = view.matrix_bytes > 0 ? to_size(view.shape[2]) : 1;
    const std::size_t each = view.data.size() - (matrices - 1) * view.matrix_bytes;
    for (std::size_t m = 0; m < matrices; ++m) add(view.data.subspan(m * view.matrix_bytes, each));
  }

  std::vector<FilePart::Range> ranges{};

 private:
  std::span<const std::byte> file_;
};

Error not_sent(const std::string& why, const std::string& where) {
  return {ErrorCode::kUnsupported, fmt::format("a worker has no model, and this one cannot be sent: {}", why), where,
          "give the workers the model: dllm worker -m FILE"};
}

/// The only file of the model.
Expected<const MappedFile*> sendable_file(const Model& model) {
  if (model.files().size() != 1) return not_sent("it is not a single GGUF file", "--workers");
  const MappedFile& file = *model.files().front();
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0) return not_sent("it is no GGUF file", file.name());
  return &file;
}

/// The part of these ranges.
FilePart summed(std::span<const std::byte> bytes, std::vector<FilePart::Range> ranges, PartSums* known) {
  FilePart part{bytes.size(), std::move(ranges), 0};
  join_ranges(part.ranges);
  if (known != nullptr)
    if (const auto before = known->find(part.ranges); before != known->end()) {
      part.checksum = before->second;
      return part;
    }
  Checksum sum;
  for (const FilePart::Range& range : part.ranges) sum.add(bytes.subspan(to_size(range.first), to_size(range.count)));
  part.checksum = sum.value();
  if (known != nullptr) known->emplace(part.ranges, part.checksum);
  return part;
}

}  // namespace

Expected<FilePart> whole_file(const Model& model, PartSums* known) {
  DLLM_TRY(const MappedFile* const file, sendable_file(model));
  return summed(file->bytes(), {{0, file->bytes().size()}}, known);
}

Expected<FilePart> part_of_file(const Model& model, const RankSplit& split, PartSums* known, const Model* drafter) {
  DLLM_TRY(const MappedFile* const only, sendable_file(model));
  const MappedFile& file = *only;
  const std::span<const std::byte> bytes = file.bytes();
  PartFinder finder(bytes);
  std::uint64_t header = bytes.size();
  for (const SourceTensor& tensor : model.tensors()) {
    if (!finder.holds(tensor.data)) return not_sent(fmt::format("'{}' is not in its file", tensor.name), file.name());
    header = std::min(header, finder.place(tensor.data.data()));
  }
  finder.add(bytes.first(to_size(header)));
  const RankGraph own = split_graph(model.build({1, 1}), split);
  DLLM_TRY(const Weights weights, cpu::rank_weights(own, model.weights()));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!weights[i].present() || own.graph.weights[i].adapter) continue;
    if (!finder.holds(weights[i].data))
      return not_sent(fmt::format("options have changed '{}'", own.graph.weights[i].name), file.name());
    finder.add_weight(weights[i]);
  }
  for (const Adapter& adapter : model.adapters())
    for (const AdapterPart& part : adapter.parts)
      for (const SourceTensor* const half : {&part.a, &part.b})
        if (finder.holds(half->data)) finder.add(half->data);
  if (drafter != nullptr)
    for (const SourceTensor& tensor : drafter->tensors())
      if (finder.holds(tensor.data)) finder.add(tensor.data);
  return summed(bytes, std::move(finder.ranges), known);
}

namespace {

constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
/// So many pieces are under way at most: who receives keeps them in memory until they are written.
constexpr std::uint64_t kPiecesAtOnce = 8;

/// Bytes [at, at + count) of a part, whose ranges lie one after the other.
std::vector<std::byte> piece_of(std::span<const std::byte> file, const FilePart& part, std::uint64_t at,
                                std::uint64_t count) {
  std::vector<std::byte> piece;
  piece.reserve(to_size(count));
  for (const FilePart::Range& range : part.ranges) {
    if (piece.size() == count) break;
    if (at >= range.count) {
      at -= range.count;
      continue;
    }
    const std::uint64_t here = std::min(range.count - at, count - piece.size());
    const auto bytes = file.subspan(to_size(range.first + at), to_size(here));
    piece.insert(piece.end(), bytes.begin(), bytes.end());
    at = 0;
  }
  return piece;
}

/// Pieces that the longest part has.
Expected<std::uint64_t> count_rounds(Communicator& ranks, const std::vector<FilePart>& parts,
                                     const std::vector<std::byte>& wanted) {
  WireWriter to;
  std::uint64_t rounds = 0;
  for (std::size_t r = 0; r < parts.size(); ++r)
    if (wanted[r] != std::byte{0}) rounds = std::max(rounds, (parts[r].bytes() + kPiece - 1) / kPiece);
  DLLM_TRY(const std::vector<std::byte> told, ranks.broadcast(to.put(rounds).take()));
  WireReader from(told);
  from.get(rounds);
  if (from.ended()) return rounds;
  return Error{ErrorCode::kIo, "rank 0 sent something else than a number", "ranks",
               "start all ranks with the same version"};
}

Expected<void> asked_to_go_on(const SendWatch& watch) {
  if (!watch.go_on || watch.go_on()) return {};
  return Error{ErrorCode::kCancelled, "nobody waits for the ranks any more", "ranks", ""};
}

/// Rank 0's side: `parts` of the ranks that need one. An end that `watch` asks for is returned in `state`, when all
/// ranks have stopped together.
Expected<void> send_pieces(const Model& model, Communicator& ranks, const std::vector<FilePart>& parts,
                           const std::vector<std::byte>& wanted, const SendWatch& watch, Expected<void>& state) {
  const std::span<const std::byte> file = model.files().front()->bytes();
  DLLM_TRY(const std::uint64_t rounds, count_rounds(ranks, parts, wanted));
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::byte>> pieces(parts.size());
    for (std::size_t r = 1; r < parts.size(); ++r) {
      const std::uint64_t all = wanted[r] != std::byte{0} ? parts[r].bytes() : 0, at = round * kPiece;
      if (at < all) pieces[r] = piece_of(file, parts[r], at, std::min(kPiece, all - at));
    }
    DLLM_TRY(const std::vector<std::byte> none, ranks.scatter(std::move(pieces), kPiece));
    if (round % kPiecesAtOnce != kPiecesAtOnce - 1) continue;
    state = asked_to_go_on(watch);
    DLLM_TRY(const std::vector<std::byte> failed, gather_flags(ranks, !state));
    if (any(failed)) break;
  }
  return {};
}

/// The others' side. `part`: null for a rank that has its weights. Errors of the writer are returned in `written`, when
/// all ranks have stopped together.
Expected<void> receive_pieces(Communicator& ranks, const FilePart* part, PartWriter* writer, Expected<void>& written) {
  DLLM_TRY(const std::uint64_t rounds, count_rounds(ranks, {}, {}));
  std::uint64_t left = part == nullptr ? 0 : part->bytes();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t next = std::min(kPiece, left);
    DLLM_TRY(const std::vector<std::byte> piece, ranks.scatter({}, kPiece));
    if (piece.size() != next && written)
      written = Error{ErrorCode::kIo, fmt::format("rank 0 sent {} bytes of weights instead of {}", piece.size(), next),
                      "ranks", "start all ranks with the same version"};
    left -= next;
    if (written && next > 0) written = writer->append(piece);
    if (round % kPiecesAtOnce != kPiecesAtOnce - 1) continue;
    DLLM_TRY(const std::vector<std::byte> failed, gather_flags(ranks, !written));
    if (any(failed)) break;
  }
  return {};
}

/// The list of what each rank without a model reads.
Expected<std::vector<FilePart>> parts_for_all(const SentModel& sent, SplitKind split,
                                              const std::vector<std::byte>& needs, PartSums* known) {
  std::vector<FilePart> parts(needs.size());
  for (std::size_t r = 1; r < needs.size(); ++r) {
    if (needs[r] == std::byte{0}) continue;
    DLLM_TRY(parts[r], sent.part({split, static_cast<int>(r), static_cast<int>(needs.size())}, known));
  }
  return parts;
}

Expected<void> give_weights(const Model& model, const SentModel& sent, Communicator& ranks, SplitKind split,
                            const std::vector<std::byte>& needs, const SendWatch& watch) {
  const auto parts = parts_for_all(sent, split, needs, watch.known);
  DLLM_CHECK_OK(agree(ranks, parts ? Expected<void>() : Expected<void>(parts.error())));
  std::vector<std::vector<std::byte>> lists(needs.size());
  for (std::size_t r = 1; r < needs.size(); ++r)
    if (needs[r] != std::byte{0}) lists[r] = (*parts)[r].encoded();
  DLLM_TRY(const std::vector<std::byte> none, ranks.scatter(std::move(lists), 0));
  DLLM_CHECK_OK(agree(ranks, asked_to_go_on(watch)));  // the others have room
  DLLM_TRY(const std::vector<std::byte> wanted, gather_flags(ranks, false));
  for (std::size_t r = 1; r < needs.size(); ++r)
    if (watch.tell && wanted[r] != std::byte{0})
      watch.tell(fmt::format("{} of weights go to {}", human_bytes(static_cast<double>((*parts)[r].bytes())),
                             ranks.name(static_cast<int>(r))));
  Expected<void> state;
  DLLM_CHECK_OK(send_pieces(model, ranks, *parts, wanted, watch, state));
  return agree(ranks, state ? model.check() : state);
}

/// Of a rank that needs weights (else `needs` is false, and it only takes part).
Expected<std::shared_ptr<const Model>> take_weights(Communicator& ranks, bool needs, const PartFolder& folder,
                                                    const std::function<void(const std::string&)>& tell,
                                                    const SentModel& sent) {
  constexpr std::uint64_t kMostList = std::uint64_t{64} << 20;
  DLLM_CHECK_OK(agree(ranks, {}));
  DLLM_TRY(const std::vector<std::byte> list, ranks.scatter({}, kMostList));
  FilePart part;
  std::string path;
  std::unique_ptr<PartWriter> writer;
  const auto prepare = [&]() -> Expected<void> {
    DLLM_TRY(part, FilePart::decode(list));
    path = folder.find(part);
    if (!path.empty()) return {};
    DLLM_CHECK_OK(folder.make_room(part));
    DLLM_TRY(writer, PartWriter::create(folder, part));
    return {};
  };
  DLLM_CHECK_OK(agree(ranks, needs ? prepare() : Expected<void>()));
  DLLM_TRY(const std::vector<std::byte> wanted, gather_flags(ranks, writer != nullptr));
  Expected<void> state;
  DLLM_CHECK_OK(receive_pieces(ranks, writer ? &part : nullptr, writer.get(), state));
  std::shared_ptr<const Model> model;
  const auto finish = [&]() -> Expected<void> {
    DLLM_CHECK_OK(std::move(state));
    if (writer) {
      DLLM_TRY(path, writer->commit());
      if (tell) tell(fmt::format("received {} of weights", human_bytes(static_cast<double>(part.bytes()))));
    }
    DLLM_TRY(model, sent.open(path));
    return {};
  };
  DLLM_CHECK_OK(agree(ranks, needs ? finish() : Expected<void>()));
  return model;
}

}  // namespace

Expected<std::shared_ptr<const Model>> share_weights(const Model* own, Communicator& ranks,
                                                     const Expected<SplitKind>& split, const PartFolder& folder,
                                                     const SendWatch& watch, SentModel sent) {
  if (!sent.part) sent.part = [own](const RankSplit& part, PartSums* known) { return part_of_file(*own, part, known); };
  if (!sent.open) sent.open = [](const std::string& path) { return Model::load(path); };
  const std::shared_ptr<const Model> not_owned(std::shared_ptr<const Model>(), own);
  DLLM_CHECK_OK(agree(ranks, split ? Expected<void>() : Expected<void>(split.error())));
  DLLM_TRY(const std::vector<std::byte> needs, gather_flags(ranks, own == nullptr));
  if (!any(needs)) return not_owned;
  if (ranks.rank() == 0) {
    DLLM_CHECK_OK(give_weights(*own, sent, ranks, *split, needs, watch));
    return not_owned;
  }
  DLLM_TRY(std::shared_ptr<const Model> model, take_weights(ranks, own == nullptr, folder, watch.tell, sent));
  return own == nullptr ? model : not_owned;
}

}  // namespace dllm
