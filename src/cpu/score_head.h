#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/linear.h"
#include "cpu/rank_gather.h"
#include "cpu/reduction.h"

namespace dllm::cpu {

inline constexpr std::int64_t kHeadChunk = 1024;  ///< tokens per tile: 64 panels of weights

/// Writes the logits of rows [first, first + rows) of the head's input for tokens [begin, end) to `tile`, kHeadChunk
/// floats from row to row. Called by several workers at once.
using LogitTile = std::function<void(std::int64_t first, std::int64_t rows, std::int64_t begin, std::int64_t end,
                                     float* tile, int worker)>;

/// Most tokens of a row whose logits a device reports beside its reduction.
inline constexpr std::int64_t kMostAsked = 64;

/// A token whose logit is asked for; with a rule, it is left out of the reduction.
struct AskedToken {
  TokenId token = 0;
  bool ruled = false;
};

/// What is needed of a row of the head's input.
struct HeadRow {
  bool logits = true;               ///< all of its logits; else its reduced chunks
  double beta = 1;                  ///< of their sums
  std::vector<AskedToken> asked{};  ///< with rules, in the order of ReductionSpec, then with queries
};

/// What a device computed of the rows.
struct DeviceHead {
  LogitTile logits;                      ///< before the cap, of rows with HeadRow::logits
  std::span<const ReducedChunk> chunks;  ///< [rows][chunks], after the cap; others' are not read
  std::span<const float> asked;          ///< [rows][kMostAsked], after the cap
};

/// The part of the vocabulary whose logits a rank has: whole chunks, the last one maybe shorter.
struct HeadShare {
  RankGather* ranks = nullptr;  ///< nullptr, or inactive: all tokens are here
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// LM head and reduction in one operator. A task computes one tile, at most 32 rows by 1024 tokens (128 rows for the
/// arithmetic `super`), in the worker's scratch memory, and reduces it to one Partial per row; partials are merged in
/// chunk order. Chunks and groups do not depend on the number of threads, and a row's result does not depend on the
/// other rows, so neither changes a bit.
///
/// Memory: tiles 128 (512) KiB per worker, 160 bytes per (row, chunk), and the lists that top_k, top_p and top_tokens
/// need. A nucleus that extends beyond its list is collected in a second pass, for one group of rows at a time; with
/// ranks, for all.
class ScoreHead {
 public:
  ScoreHead(const KernelSet& kernels, ThreadPool& pool, LinearRunner& linear)
      : kernels_(kernels), pool_(pool), linear_(linear) {}

  /// Assigns scored rows to rows of the head's input: guided pairs must share a tile. Fills gather(). Throws
  /// std::bad_alloc, as run() does.
  /// `reduces`: a device reduces the rows that need no more than rows() can ask for.
  void arrange(std::span<const SequenceStep> batch, std::int64_t vocab, bool reduces = false);
  /// For each row of the head's input: its index among the rows of the batch, all sequences concatenated.
  std::span<const std::int64_t> gather() const { return gather_; }
  std::span<const HeadRow> rows() const { return rows_; }

  /// `args` as prepared for the gathered rows; `softcap` as in op::ScoreHead. Writes the scores of every sequence. With
  /// ranks, `args` is of the share's outputs, and all ranks get all scores; throws RanksFailed too. `residual`: rows
  /// whose logits are added (LinearRunner::residual_rows).
  void run(const LinearArgs& args, std::int64_t vocab, std::vector<Scores>& scores, float softcap = 0.f,
           const HeadShare& share = {}, const std::optional<QuantizedRows>& residual = std::nullopt);
  /// The same with what was computed elsewhere.
  void reduce(const DeviceHead& device, std::int64_t vocab, std::vector<Scores>& scores, float softcap = 0.f);

 private:
  /// One row to be scored: one row of input, or two under guidance (conditional, then unconditional).
  struct Unit {
    std::int32_t sequence;
    std::int32_t index;  ///< into StepPlan::scored
    Position position;
    std::int64_t row;
    bool guided;
    float scale;
  };
  /// Units that share tiles; their rows are contiguous.
  struct Group {
    std::size_t first_unit;
    std::size_t units;
    std::int64_t first_row;
    std::int64_t rows;
  };

  void add_sequence(std::span<const SequenceStep> batch, std::size_t sequence, std::span<const std::int64_t> origin);
  void run_tiles(const LogitTile& logits, std::int64_t tile_rows, std::int64_t vocab, std::vector<Scores>& scores,
                 float softcap);
  HeadRow row_of(const Unit& unit) const;
  void size_scores(std::int64_t vocab, std::vector<Scores>& scores) const;
  void group_units();
  void take_chunks(std::size_t unit, std::vector<Scores>& scores);
  void reserve();
  /// Logits of one tile, guidance applied; the row of unit u of the group is tile + row * kHeadChunk.
  float* compute_tile(const LogitTile& logits, const Group& group, std::int64_t chunk, int worker);
  void report_queries(const Unit& unit, TokenId first, std::span<const float> logits, Scores& scores) const;
  void score_tile(const LogitTile& logits, const Group& group, std::int64_t chunk, int worker,
                  std::vector<Scores>& scores);
  /// Merges a unit's partials and lists; false if its nucleus needs the second pass.
  bool finish_unit(std::size_t unit, std::vector<Scores>& scores);
  void collect_nuclei(const LogitTile& logits, std::span<const Group> groups, std::vector<Scores>& scores);

  bool shared() const { return share_.ranks != nullptr && share_.ranks->active(); }
  /// The chunks that are computed here: [first_chunk(), end_chunk()).
  std::int64_t first_chunk() const { return shared() ? share_.first / kHeadChunk : 0; }
  std::int64_t end_chunk() const {
    return shared() ? (share_.first + share_.count + kHeadChunk - 1) / kHeadChunk : chunks_;
  }
  /// With ranks: partials, lists, queried logits and logits of all chunks.
  void share_tiles(std::vector<Scores>& scores);
  std::vector<std::byte> put_tiles(const std::vector<Scores>& scores);
  /// False: not what the rank with chunks [first, end) would have sent.
  bool take_tiles(std::span<const std::byte> blob, std::int64_t first, std::int64_t end, std::vector<Scores>& scores);
  std::vector<TopToken> merged_lists(std::size_t unit);
  void share_found(std::vector<std::vector<TopToken>>& found, std::size_t units);

  std::int64_t chunk_size(std::int64_t chunk) const;
  const ReductionSpec& spec(const Unit& unit) const { return specs_[static_cast<std::size_t>(unit.sequence)]; }
  Partial& partial(std::size_t unit, std::int64_t chunk) {
    return partials_.as<Partial>()[static_cast<std::int64_t>(unit) * chunks_ + chunk];
  }
  TopToken* list(int worker, std::size_t unit) {
    return lists_.as<TopToken>() + (static_cast<std::size_t>(worker) * units_.size() + unit) * list_capacity_;
  }
  std::int32_t* list_size(int worker, std::size_t unit) {
    return list_sizes_.as<std::int32_t>() + static_cast<std::size_t>(worker) * units_.size() + unit;
  }

  const KernelSet& kernels_;
  ThreadPool& pool_;
  LinearRunner& linear_;
  std::int64_t vocab_ = 0;
  std::int64_t chunks_ = 0;
  std::int64_t tile_rows_ = 0;
  float softcap_ = 0.f;
  HeadShare share_;
  std::vector<ReductionSpec> specs_;  ///< by sequence
  std::vector<Unit> units_;
  std::vector<Group> groups_;
  std::vector<std::int64_t> gather_;
  std::vector<HeadRow> rows_;
  const DeviceHead* device_ = nullptr;
  std::vector<std::vector<TopToken>> remote_;  ///< by unit: lists of other ranks
  std::size_t list_capacity_ = 0;
  Buffer tiles_, partials_, lists_, list_sizes_;
  std::vector<std::uint8_t> unfinished_;  ///< by unit; bytes, since workers write them concurrently
};

}  // namespace dllm::cpu
