#pragma once

#include <version>

#if defined(__cpp_lib_jthread)
#include <stop_token>
#else
#include <atomic>
#include <memory>
#include <utility>
#endif

namespace dllm {

#if defined(__cpp_lib_jthread)

/// How a caller ends a call that is under way, from any thread: call request_stop() of a source, and give its
/// get_token() to the call.
using StopSource = std::stop_source;
using StopToken = std::stop_token;

#else

// libc++ 19 has std::stop_token only with -fexperimental-library. A program that is compiled without it needs a library
// that was, too: the types of the two choices differ, and so do the names of the functions that take them.

/// Whether a call is to end: asked by the call. One without a source is never stopped.
class StopToken {
 public:
  StopToken() = default;
  bool stop_requested() const noexcept { return state_ != nullptr && state_->load(std::memory_order_acquire); }
  bool stop_possible() const noexcept { return state_ != nullptr; }

 private:
  friend class StopSource;
  explicit StopToken(std::shared_ptr<const std::atomic<bool> > state) : state_(std::move(state)) {}
  std::shared_ptr<const std::atomic<bool> > state_;
};

/// How a caller ends a call that is under way, from any thread. Copies share their state.
class StopSource {
 public:
  StopToken get_token() const { return StopToken(state_); }
  bool stop_requested() const noexcept { return state_->load(std::memory_order_acquire); }
  /// False: it was stopped before.
  bool request_stop() noexcept { return !state_->exchange(true, std::memory_order_acq_rel); }

 private:
  std::shared_ptr<std::atomic<bool> > state_ = std::make_shared<std::atomic<bool> >(false);
};

#endif

}  // namespace dllm
