#include "calls.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/forks.h"
#include "bindings.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

/// A level takes some kilobytes of stack, Python's own included: a decoder that asks the model with itself would
/// overflow it before Python's limit of recursions.
constexpr int kDeepest = 24;

std::atomic<bool> is_exiting{false};
std::atomic<std::uint32_t> counted_forks{0};
std::atomic<int> calls{0};
std::atomic<unsigned long> main_thread{0};
thread_local int depth_here = 0;

/// A child process does not have the parent's other threads, whose calls would be waited for at its exit.
void enter() {
  const std::uint32_t forks = fork_count();
  if (counted_forks.exchange(forks) != forks) {
    calls.store(0);
    main_thread.store(PyThread_get_thread_ident());
  }
  calls.fetch_add(1);
}

void check(int depth) {
  if (exiting())
    raise({ErrorCode::kUsage, "the interpreter is exiting", "", "wait for answers before the program ends"});
  if (depth >= kDeepest)
    raise({ErrorCode::kUsage, "calls of a model in callbacks are nested " + std::to_string(kDeepest) + " deep", "",
           "does a decoder or a callback ask the model with itself?"});
}

/// Registered with atexit, whose handlers run while threads may still take the GIL.
void at_exit() {
  is_exiting.store(true);
  // Answers end at their next pass. Callbacks that wait for something that never comes are not waited for.
  const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (calls.load() > 0 && std::chrono::steady_clock::now() < most) {
    {
      const nb::gil_scoped_release release;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    check_signals();
  }
}

}  // namespace

Call::Call() {
  check(depth_here);
  enter();
  ++depth_here;
}

Call::Call(int outer) : outer_(outer) {
  check(outer);
  enter();
}

Call::Call(Call&& other) noexcept : outer_(other.outer_), counted_(std::exchange(other.counted_, false)) {}

Call::~Call() {
  if (!counted_) return;
  if (outer_ < 0) --depth_here;
  calls.fetch_sub(1);
}

void Call::enter_thread() const { depth_here = outer_ + 1; }

int Call::depth() { return depth_here; }

bool exiting() { return is_exiting.load(std::memory_order_relaxed); }

bool poll_python() {
  if (exiting()) return false;
  // Handlers run in Python's main thread only; the others need not wait for the GIL at every pass.
  if (counted_forks.load(std::memory_order_relaxed) == fork_count() &&
      PyThread_get_thread_ident() != main_thread.load())
    return true;
  const Gil gil;
  check_signals();
  return true;
}

void bind_calls(nb::module_& module) {
  (void)module;
  counted_forks.store(fork_count());
  const nb::object main = nb::module_::import_("threading").attr("main_thread")();
  main_thread.store(nb::cast<unsigned long>(main.attr("ident")));
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&at_exit));
}

}  // namespace dllm::python
