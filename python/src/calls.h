#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>

namespace dllm::python {

/// A call of Python into the engine that runs without the GIL, or a stream's thread. When the interpreter exits, it
/// waits for them: a thread that asks for the GIL later is ended by Python in the middle of C++, which aborts the
/// process.
class Call {
 public:
  /// Raises UsageError if the interpreter is exiting, or if calls from callbacks are nested too deep. Needs the GIL.
  Call();
  /// The same, by whom starts a thread, as a part of `outer` calls: the thread begins with enter_thread().
  explicit Call(int outer);
  Call(Call&& other) noexcept;
  Call& operator=(Call&&) = delete;
  ~Call();

  void enter_thread() const;
  /// Calls around this one in this thread, and around that which started the thread.
  static int depth();

 private:
  int outer_ = -1;  ///< >= 0: of another thread
  bool counted_ = true;
};

/// Whether Python's atexit handlers have begun.
bool exiting();

/// The interpreter is exiting: the answer that was asked for is of no use any more.
struct Exiting : std::runtime_error {
  Exiting() : std::runtime_error("the interpreter is exiting") {}
};

/// The GIL in a callback of the engine. Throws Exiting.
class Gil {
 public:
  Gil() = default;

 private:
  static bool asked() { return exiting() ? throw Exiting() : true; }

  bool asked_ = asked();
  nanobind::gil_scoped_acquire held_;
};

/// Runs `work` without the GIL, so that other threads of Python go on.
template <class Work>
auto unlocked(const Work& work) {
  const Call call;
  const nanobind::gil_scoped_release release;
  return work();
}

/// For the engine, between forward passes: false if the interpreter is exiting. Throws what Python's handlers of
/// signals raise (KeyboardInterrupt).
bool poll_python();

}  // namespace dllm::python
