#pragma once

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
class RankedBackend final : public Backend {
 public:
  /// `own` runs this rank's part with `ranks`.
  /// `log` gets the name of a rank for which the others wait.
  RankedBackend(std::unique_ptr<Backend> own, std::shared_ptr<Communicator> ranks, Log log = Log())
      : others_(std::make_shared<Others>(Others{std::move(ranks)})), own_(std::move(own)), log_(std::move(log)) {}
  ~RankedBackend() override;

  const ModelDesc& desc() const override { return own_->desc(); }
  bool runs_shadows() const override { return own_->runs_shadows(); }
  /// Errors: kResource on any rank, and those of Communicator.
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  /// After an error of Communicator, all further calls fail with it.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  class Cache;
  /// What caches need, which may outlive their backend.
  struct Others {
    std::shared_ptr<Communicator> ranks;
    bool left = false;  ///< the others have been told to end
    Expected<void> send(std::vector<std::byte> message);
  };
  void name_slow_rank(const std::vector<double>& before, double seconds);

  std::shared_ptr<Others> others_;
  std::unique_ptr<Backend> own_;
  Log log_;
  std::uint32_t next_ = 1;
  std::set<int> slow_;  ///< ranks that were named
};

/// Every other rank: does what rank 0 asks until it leaves. Errors: those of Communicator, kIo (a message that is no
/// command, or does not fit its caches).
Expected<void> follow_ranks(Backend& own, Communicator& ranks);

/// Tells all ranks whether each has succeeded; the error of the first that has not.
Expected<void> agree(Communicator& ranks, const Expected<void>& own);

}  // namespace dllm
