#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "ranks/communicator.h"

namespace dllm {

/// Rank 0: a backend whose steps run on all ranks. The other ranks run follow_ranks() with backends of the same model.
class RankedBackend final : public Backend {
 public:
  /// `own` runs this rank's part with `ranks`, which must outlive it.
  RankedBackend(std::unique_ptr<Backend> own, std::shared_ptr<Communicator> ranks)
      : ranks_(std::move(ranks)), own_(std::move(own)) {}
  ~RankedBackend() override;

  const ModelDesc& desc() const override { return own_->desc(); }
  bool runs_shadows() const override { return own_->runs_shadows(); }
  /// Errors: kResource on any rank, and those of Communicator.
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  /// After an error of Communicator, all further calls fail with it.
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

 private:
  class Cache;
  Expected<void> send(std::vector<std::byte> message);

  std::shared_ptr<Communicator> ranks_;
  std::unique_ptr<Backend> own_;
  std::uint32_t next_ = 1;
};

/// Every other rank: does what rank 0 asks until it leaves. Errors: those of Communicator, kIo (a message that is no
/// command, or does not fit its caches).
Expected<void> follow_ranks(Backend& own, Communicator& ranks);

/// Tells all ranks whether each has succeeded; the error of the first that has not.
Expected<void> agree(Communicator& ranks, const Expected<void>& own);

}  // namespace dllm
