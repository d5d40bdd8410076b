#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"

namespace dllm {

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

  /// Seconds that this rank has waited for each other in all_gather(); empty: not known.
  virtual std::vector<double> waits() const { return {}; }
  virtual std::string name(int rank) const { return "rank " + std::to_string(rank); }

  /// Ends this rank's later calls, and those of the others now or when they next receive, with an error that says
  /// `why`. Called by the thread that makes the other calls.
  virtual void abort(const std::string& why) = 0;
};

}  // namespace dllm
