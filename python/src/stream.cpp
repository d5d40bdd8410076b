// dllm.Stream: a generation in a thread of its own, whose steps Python takes one by one.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/forks.h"
#include "bindings.h"
#include "calls.h"
#include "model.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

constexpr auto kBetweenPolls = std::chrono::milliseconds(50);

/// What the reader and the generation's thread share. It lives until both have left it: a reader that gives up, perhaps
/// in the generation's own thread, waits for nothing.
struct Generating {
  ModelPtr model;
  Prompt prompt;
  GenerateOptions options;

  std::mutex mutex{};  ///< guards the members below
  std::condition_variable wake{}, room{};
  std::deque<StepEvent> steps{};
  bool done = false, abandoned = false;
  std::optional<Expected<Generation>> result{};
  std::exception_ptr thrown{};
  std::stop_source stop{};
  std::thread::id thread{};

  void run() {
    std::optional<Expected<Generation>> ended;
    std::exception_ptr error;
    try {
      ended =
          run_generate(*model, prompt, options, [&](const StepEvent& event) { return put(event); }, stop.get_token());
    } catch (const Exiting&) {
    } catch (...) {  // of a decoder in Python
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    result = std::move(ended);
    // Nobody would ask for it, and Python's objects must go before the interpreter.
    if (!abandoned) thrown = std::exchange(error, nullptr);
    done = true;
    wake.notify_all();
  }

  /// Waits while the reader is far behind. Polls: the interpreter may exit meanwhile.
  bool put(const StepEvent& event) {
    constexpr std::size_t kAhead = 256;
    std::unique_lock lock(mutex);
    const auto ready = [&] { return steps.size() < kAhead || stop.stop_requested(); };
    while (!room.wait_for(lock, kBetweenPolls, ready))
      if (exiting()) return false;
    if (stop.stop_requested() || exiting()) return false;
    steps.push_back(event);
    wake.notify_one();
    return true;
  }
};

class Stream {
 public:
  Stream(ModelPtr model, Prompt prompt, GenerateOptions options)
      : forks_(fork_count()), shared_(new Generating{std::move(model), std::move(prompt), std::move(options)}) {
    Call call(Call::depth());
    try {
      std::thread(
          [shared = shared_](const Call& own) mutable {  // `own` ends last: the interpreter waits for it
            own.enter_thread();
            {
              const std::lock_guard lock(shared->mutex);
              shared->thread = std::this_thread::get_id();
            }
            shared->run();
            shared.reset();
          },
          std::move(call))
          .detach();
    } catch (const std::system_error&) {
      raise({ErrorCode::kResource, "the system starts no thread for the stream", "", "generate() needs none"});
    }
  }

  ~Stream() {
    if (forked()) {
      new std::shared_ptr<Generating>(std::move(shared_));  // its locks may be held for ever
      return;
    }
    std::exception_ptr thrown;  // Python's, whose end may run code that uses the stream
    const std::lock_guard lock(shared_->mutex);
    shared_->abandoned = true;
    thrown = std::exchange(shared_->thrown, nullptr);
    stop();
  }
  Stream(const Stream&) = delete;

  /// The next step; nullopt after the last one. Raises the generation's error.
  std::optional<StepEvent> next() {
    check_place("the next step of a stream is asked in its own decoder", "steps come when decode() has returned");
    Generating& own = *shared_;
    for (;;) {
      const bool ready = wait_for([&own] { return !own.steps.empty() || own.done; });
      const std::lock_guard lock(own.mutex);
      if (!own.steps.empty()) {
        StepEvent event = std::move(own.steps.front());
        own.steps.pop_front();
        own.room.notify_one();
        return event;
      }
      if (!ready || !own.done) continue;  // another reader has taken it
      if (own.thrown) std::rethrow_exception(std::exchange(own.thrown, nullptr));
      if (own.result && !*own.result) raise(own.result->error());
      return std::nullopt;
    }
  }

  /// The answer, if the generation has ended.
  const Generation* answer() {
    if (forked()) return nullptr;
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->done) return nullptr;
    return shared_->result && *shared_->result ? &**shared_->result : nullptr;
  }

  /// Ends the generation at its next step, and waits for that; in its own thread, it goes on until it has returned.
  void close() {
    if (forked()) return;
    {
      const std::lock_guard lock(shared_->mutex);
      stop();
      if (shared_->thread == std::this_thread::get_id()) return;
    }
    while (!wait_for([own = shared_.get()] { return own->done; })) {
    }
  }

 private:
  bool forked() const { return forks_ != fork_count(); }

  /// Precondition: the lock is held.
  void stop() {
    shared_->stop.request_stop();
    shared_->room.notify_all();
  }

  void check_place(const char* what, const char* hint) const {
    if (forked())
      raise({ErrorCode::kUsage, "the stream's thread is in the parent process", "", "begin a stream in this process"});
    const std::lock_guard lock(shared_->mutex);
    if (shared_->thread == std::this_thread::get_id()) raise({ErrorCode::kUsage, what, "", hint});
  }

  /// Waits a little, without the GIL; then lets Ctrl-C end the wait.
  template <class Ready>
  bool wait_for(Ready ready) {
    {
      const nb::gil_scoped_release release;
      std::unique_lock lock(shared_->mutex);
      if (shared_->wake.wait_for(lock, kBetweenPolls, ready)) return true;
    }
    check_signals();
    return false;
  }

  std::uint32_t forks_;
  std::shared_ptr<Generating> shared_;
};

}  // namespace

void bind_stream(nb::module_& module) {
  nb::class_<Stream>(module, "Stream", "An iterator over the steps of a generation; `answer` has its result.")
      .def("__init__",
           [](Stream* self, const Model& model, PythonPrompt prompt, const Dict& given) {
             new (self) Stream(model.model, to_prompt(std::move(prompt)), to_options(given));
           })
      .def(
          "__iter__", [](nb::object self) { return self; }, nb::sig("def __iter__(self) -> Stream"))
      .def(
          "__next__",
          [](Stream& self) {
            auto event = self.next();
            if (!event) throw nb::stop_iteration();
            return *std::move(event);
          },
          nb::sig("def __next__(self) -> Step"))
      .def_prop_ro(
          "answer", [](Stream& self) { return self.answer(); }, nb::rv_policy::copy,
          "the result, once the last step was taken; before, None")
      .def("close", &Stream::close, "Ends the generation at its next step.")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Stream"))
      .def(
          "__exit__", [](Stream& self, nb::args) { self.close(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace dllm::python
