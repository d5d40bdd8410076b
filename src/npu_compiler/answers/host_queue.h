#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dllm::npu {

struct Device;

/// Work of one processor: seconds when it runs alone, and the memory traffic, which is spread evenly over them.
struct Stretch {
  enum class Kind : std::uint8_t {
    kDevice,
    kHost,      ///< a step's own work on the host, which comes before that of the queue
    kDispatch,  ///< by one core of the host
  };
  double seconds = 0, bytes = 0;
  Kind kind = Kind::kDevice;
};

/// What happened while a step and the queue of the host ran at the same time.
struct Overlap {
  double seconds = 0;   ///< that passed
  double lost = 0;      ///< of these, what the step lost because memory was shared
  double busy = 0;      ///< of these, the host worked on its queue
  double dispatch = 0;  ///< of busy, one core dispatched
  double bytes = 0;     ///< moved by the queue's work
};

/// Passes that the host's processor computes one after the other while steps run on the device. Both read one memory,
/// whose bandwidth (`host.shared_gbps`) is divided max-min fairly: a processor that wants less than half gets what it
/// wants. While a step needs the host itself, the queue pauses; during dispatch it has one core less. Deterministic.
class HostQueue {
 public:
  /// Precondition: the device has a described host.
  explicit HostQueue(const Device& device);

  struct Pass {
    std::vector<Stretch> work;
    double start = -1, end = -1;  ///< on the caller's clock; -1: not yet
    bool dropped = false;         ///< it ended before its work did
  };
  /// Adds a pass; returns its index.
  std::size_t push(std::vector<Stretch> work);
  /// Ends a pass that nobody waits for any more.
  void drop(std::size_t pass, double now);
  bool finished(std::size_t pass) const { return passes_[pass].end >= 0; }
  bool empty() const { return next_ >= passes_.size(); }
  const std::vector<Pass>& passes() const { return passes_; }

  /// A step from time `now` on, and what the host does meanwhile.
  Overlap run(std::span<const Stretch> step, double now);
  /// The host alone, until the pass is finished.
  Overlap finish(std::size_t pass, double now);

 private:
  struct Speeds {
    double step = 1, queue = 1;
  };
  Speeds speeds(const Stretch& step, const Stretch& queue) const;
  void skip_ended(double now);
  double advance(const Stretch* step, double left, double now, Overlap& overlap);

  double capacity_;    ///< bytes per second
  double most_cores_;  ///< share of the cores that is left by dispatch
  std::vector<Pass> passes_;
  std::size_t next_ = 0;     ///< the pass that is computed
  std::size_t stretch_ = 0;  ///< of it
  double done_ = 0;          ///< seconds of that stretch
};

}  // namespace dllm::npu
