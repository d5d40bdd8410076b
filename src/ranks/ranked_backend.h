#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "ranks/communicator.h"

namespace dllm {

/// Rank 0: a backend whose steps run on all ranks. The other ranks run follow_ranks() with backends of the same model.
/// make_cache() and forward() are called by one thread at a time. Caches may be copied and end on any thread: what the
/// others must know of it is sent with the next call. In a child process of fork() every call is an error: the
/// connections are the parent's.
class RankedBackend final : public Backend {
 public:
  /// `own` runs this rank's part with `ranks`. `log` gets the name of a rank for which the others wait.
  RankedBackend(std::unique_ptr<Backend> own, std::shared_ptr<Communicator> ranks, Log log = Log());
  ~RankedBackend() override;

  const ModelDesc& desc() const override { return own_->desc(); }
  bool runs_shadows() const override { return own_->runs_shadows(); }
  bool runs_branches() const override { return own_->runs_branches(); }
  bool runs_lead() const override { return own_->runs_lead(); }
  /// Errors: of any rank; those of Communicator; kUsage (a child of fork()).
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  /// After an error of Communicator, all further calls fail with it. Errors: also kResource, for a cache of another
  /// RankedBackend.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;
  bool lost() const;
  /// Of every rank. Errors: those of Communicator.
  Expected<std::vector<RankTimes>> times();

 private:
  class Cache;
  /// What caches need, which may outlive their backend.
  class Others;
  void name_slow_rank(const std::vector<double>& before, double seconds);

  std::shared_ptr<Others> others_;
  std::unique_ptr<Backend> own_;
  Log log_;
  std::uint32_t next_ = 1;
  RankTimes passes_;    ///< with their exchanges
  std::set<int> slow_;  ///< ranks that were named
};

/// Every other rank: does what rank 0 asks until it leaves. Errors: those of Communicator, kIo (a message that is no
/// command, or does not fit its caches).
Expected<void> follow_ranks(Backend& own, Communicator& ranks);

}  // namespace dllm
