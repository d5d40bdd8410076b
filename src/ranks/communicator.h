#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// A rank's exchanges so far, and the passes in which it made them.
struct RankTimes {
  std::uint64_t passes = 0;   ///< of its part of the model
  double pass_s = 0;          ///< their seconds: work, waiting and moving
  std::uint64_t gathers = 0;  ///< all_gather()
  std::uint64_t bytes = 0;    ///< that it received in them
  double wait_s = 0;          ///< until the first of another's bytes were there
  double move_s = 0;          ///< from then on
};

/// What one rank of several uses to reach the others. All ranks make the same calls in the same order; each call is
/// made by one thread. After an error, every later call gives it again.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  ///< in [0, size())
  virtual int size() const = 0;

  /// Gives every rank the bytes of all, in the order of ranks. `sizes` (of every rank) are known to all; `own` has
  /// sizes[rank()] bytes and `all` their sum. The two do not overlap. Returns when `all` is complete. Errors: kIo (a
  /// rank is lost or sent something else, named), kCancelled (abort()).
  virtual Expected<void> all_gather(std::span<const std::byte> own, std::span<const std::size_t> sizes,
                                    std::span<std::byte> all) = 0;

  /// Rank 0 sends a message to all others, who ignore `message`; each returns it. Waits as long as rank 0 lives.
  /// Errors: those of all_gather().
  virtual Expected<std::vector<std::byte>> broadcast(std::vector<std::byte> message) = 0;

  /// Rank 0 sends parts[r] to rank r > 0, of which it has size(); the others ignore `parts`, and return what came for
  /// them. Errors: those of all_gather(), and kIo (more than `most` bytes).
  virtual Expected<std::vector<std::byte>> scatter(std::vector<std::vector<std::byte>> parts, std::uint64_t most) = 0;

  /// Of all_gather() alone: no passes.
  virtual RankTimes times() const { return {}; }
  /// Seconds that this rank has waited for each other in all_gather(); empty: not known.
  virtual std::vector<double> waits() const { return {}; }
  virtual std::string name(int rank) const { return "rank " + std::to_string(rank); }

  /// Whether a call has failed, and all further ones will.
  virtual bool lost() const { return false; }

  /// Ends this rank's later calls, and those of the others now or when they next receive, with an error that says
  /// `why`. Called by the thread that makes the other calls.
  virtual void abort(const std::string& why) = 0;
};

}  // namespace dllm
