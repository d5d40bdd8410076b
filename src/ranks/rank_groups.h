#pragma once

#include <functional>
#include <vector>

#include "dllm/error.h"
#include "dllm/ranks.h"
#include "graph/split.h"
#include "ranks/communicator.h"

namespace dllm {

/// What was measured and decided when a group was made.
struct GroupFacts {
  double latency_s = 0;         ///< of a gather of nothing
  double seconds_per_byte = 0;  ///< of what a rank receives
  SplitKind split = SplitKind::kOutputs;
  bool one_machine = false;  ///< all ranks run on one machine
};

/// Ranks that may leave and return, as the owner of a backend sees them.
class RankGroups {
 public:
  virtual ~RankGroups() = default;

  virtual RanksStatus status() const = 0;  ///< thread-safe
  virtual GroupFacts facts() const = 0;    ///< of the group that computes
  /// Of every rank of the group, since it was made. By the thread whose turn it is to compute. Errors: those of
  /// Communicator, kResource (there is no group).
  virtual Expected<std::vector<RankTimes>> times() = 0;
  /// From now on, makes another group when one is lost. `tell` is called by any thread, and must not wait for one that
  /// computes. Null: ends that. When nothing runs.
  virtual void keep(std::function<void(const RanksEvent&)> tell) = 0;
  /// Takes ranks that have returned into the group; false of `go_on` ends the attempt. By the thread whose turn it is
  /// to compute, and only when no cache is needed any more: there is none of it in the new group.
  virtual void renew(const std::function<bool()>& go_on) = 0;
};

}  // namespace dllm
