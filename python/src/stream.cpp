// dllm.Stream: a generation in a thread of its own, whose steps Python takes one by one.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "bindings.h"
#include "model.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

class Stream {
 public:
  Stream(ModelPtr model, Prompt prompt, GenerateOptions options)
      : model_(std::move(model)), prompt_(std::move(prompt)), options_(std::move(options)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  /// Ends the generation at its next step. Without the GIL, which a decoder in Python may be waiting for.
  ~Stream() {
    const nb::gil_scoped_release release;
    close();
  }
  Stream(const Stream&) = delete;

  /// The next step; nullopt after the last one. Raises the generation's error.
  std::optional<StepEvent> next() {
    for (;;) {
      {
        const nb::gil_scoped_release release;
        std::unique_lock lock(mutex_);
        // Ctrl-C is noticed between these waits.
        wake_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !steps_.empty() || done_; });
        if (!steps_.empty()) {
          StepEvent event = std::move(steps_.front());
          steps_.pop_front();
          room_.notify_one();
          return event;
        }
        if (done_) break;
      }
      check_signals();
    }
    check_failure();
    return std::nullopt;
  }

  /// The answer, if the generation has ended.
  const Generation* answer() {
    const std::lock_guard lock(mutex_);
    if (!done_) return nullptr;
    return result_ && *result_ ? &**result_ : nullptr;
  }

  void close() {
    thread_.request_stop();
    room_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run(const std::stop_token& stop) {
    std::optional<Expected<Generation>> result;
    std::exception_ptr thrown;
    try {
      result = run_generate(*model_, prompt_, options_, [&](const StepEvent& event) { return put(event, stop); }, stop);
    } catch (...) {  // of a decoder in Python
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    thrown_ = thrown;
    done_ = true;
    wake_.notify_all();
  }

  /// Waits while the reader is far behind.
  bool put(const StepEvent& event, const std::stop_token& stop) {
    constexpr std::size_t kAhead = 256;
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return steps_.size() < kAhead || stop.stop_requested(); });
    if (stop.stop_requested()) return false;
    steps_.push_back(event);
    wake_.notify_one();
    return true;
  }

  void check_failure() {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (result_ && !*result_) raise(result_->error());
  }

  const ModelPtr model_;
  const Prompt prompt_;
  const GenerateOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_, room_;
  std::deque<StepEvent> steps_;
  bool done_ = false;
  std::optional<Expected<Generation>> result_;
  std::exception_ptr thrown_;
  std::jthread thread_;  ///< last: it uses the other members
};

}  // namespace

void bind_stream(nb::module_& module) {
  nb::class_<Stream>(module, "Stream", "An iterator over the steps of a generation; `answer` has its result.")
      .def("__init__", [](Stream* self, const Model& model, Prompt prompt,
                          const Dict& given) { new (self) Stream(model.model, std::move(prompt), to_options(given)); })
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
      .def(
          "close",
          [](Stream& self) {
            const nb::gil_scoped_release release;
            self.close();
          },
          "Ends the generation at its next step.")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Stream"))
      .def(
          "__exit__",
          [](Stream& self, nb::args) {
            const nb::gil_scoped_release release;
            self.close();
          },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace dllm::python
