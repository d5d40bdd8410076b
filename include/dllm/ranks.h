#pragma once

#include <cstdint>
#include <string>

namespace dllm {

/// The ranks on which a model runs, while some may leave and return.
struct RanksStatus {
  std::int32_t ranks = 0;    ///< that compute now, this one too; 0: there is no group
  std::int32_t wanted = 0;   ///< that were asked for
  std::uint64_t groups = 0;  ///< groups made so far: nothing that one of them has cached is known to the next
  std::uint64_t lost = 0;    ///< groups that lost a rank
  std::string failure;       ///< why there is no group; empty: there is one
  std::int32_t retry_s = 0;  ///< without a group: seconds until the ranks are looked for again, at least 1
};

/// What happened to a group.
struct RanksEvent {
  enum class Kind {
    kLost,      ///< a rank of it is lost: what ran on it has ended
    kMade,      ///< another one computes
    kReturned,  ///< a rank that the group has not got is there again: it joins when nothing runs
  };
  Kind kind = Kind::kLost;
  RanksStatus status;
};

}  // namespace dllm
