#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "graph/split.h"
#include "model/model.h"
#include "ranks/communicator.h"

namespace dllm {

/// What all ranks must have in common, as rank 0 offers it.
struct RankSetup {
  std::string version, model;  ///< the model's fingerprint
  std::string cache_type, activations, arithmetic, attention_arithmetic;
  std::string beside;  ///< fingerprints of adapters and of what drafts; workers get both from rank 0

  std::vector<std::byte> encoded() const;
  /// Errors: kIo.
  static Expected<RankSetup> decode(std::span<const std::byte> bytes);
};

/// A hash of the metadata that can decide what is computed (all but the tokenizer's and the names for people), as
/// options have changed it, and of the names, types, shapes and some of the bytes of the tensors.
std::string model_fingerprint(const Model& model);

/// What exchanges between the ranks cost, and what memory each has.
struct RankFacts {
  double latency_s = 0;                ///< of a gather of nothing
  double seconds_per_byte = 0;         ///< of what a rank receives
  std::vector<std::int64_t> memory;    ///< free bytes by rank, of its whole machine; 0: not known
  std::vector<std::uint64_t> machine;  ///< by rank: equal for ranks of one machine; 0: not known
};
/// All ranks call it together.
Expected<RankFacts> measure_ranks(Communicator& ranks);

/// A split, and why: "rows: ...".
struct SplitChoice {
  SplitKind kind = SplitKind::kOutputs;
  std::string reason;
};
/// What a rank exchanges in one step of a graph's shape.
struct StepExchange {
  double gathers = 0;
  double bytes = 0;  ///< that it receives
};
/// `part`: of rank `rank` of `ranks`, of `model`'s graph. `cpu`: activations and the type of K and V decide in which
/// form they are sent.
StepExchange step_exchange(const Model& model, const RankGraph& part, int rank, int ranks, const CpuOptions& cpu);

/// For steps of `rows` rows: of the splits that fit into the memory of each machine, the one whose step is predicted to
/// be the shortest. `multiplications_per_second`: of one rank. `cpu`: as step_exchange(). `drafts`: a copy or a
/// drafter, which takes memory too; null: none.
Expected<SplitChoice> choose_split(const Model& model, const RankFacts& facts, std::int64_t rows,
                                   double multiplications_per_second, const CpuOptions& cpu = {},
                                   const Model* drafts = nullptr);

/// Rows of a step, for which a split is chosen: those of a drafter's or the model's block, of a whole canvas, or one
/// where a token follows the other. `drafts`: as choose_split().
std::int64_t usual_rows(const ModelDesc& model, const Model* drafts);

/// `drafts`: as choose_split(). Errors: kResource (the parts exceed the memory of a machine).
Expected<void> check_fits(const Model& model, const RankFacts& facts, SplitKind kind, const Model* drafts = nullptr);

std::string_view split_name(SplitKind kind);

/// Rank 0 tells the split to all, or why it has none; then each makes its part of the model, and all agree that every
/// rank has one of the same arithmetic. Errors: the same on all ranks.
/// `options` get the ranks and the split. `hidden_layers`: whose outputs a drafter reads.
Expected<std::unique_ptr<CpuBackend>> make_part(const Model& model, CpuOptions& options, Communicator& ranks,
                                                const Expected<SplitKind>& split,
                                                const std::vector<std::int32_t>& hidden_layers = {});

/// Whether all ranks compute as rank 0 does, by its name for it. All call it together. Errors: kMismatch, the same on
/// all ranks.
Expected<void> check_same_arithmetic(const std::string& own, Communicator& ranks);

}  // namespace dllm
