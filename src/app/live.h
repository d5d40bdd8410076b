#pragma once

#include <chrono>
#include <string>

#include "app/canvas_view.h"
#include "app/flags.h"
#include "app/terminal.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// Flags of what is shown while an answer is made.
struct LiveFlags {
  bool visual = false;
  std::int32_t visual_delay_ms = 0;
  double timeout_s = 0;  ///< 0: none

  void add(Flags& flags);
};

/// The listener of one generation: the canvas, or text as it becomes final on a terminal, or a progress line.
class LiveAnswer {
 public:
  /// `print`: the answer's text goes to standard output.
  LiveAnswer(Terminal& terminal, const LanguageModel& model, const LiveFlags& flags, bool print);

  /// Empty if nobody looks: then the engine need not describe its steps.
  StepCallback callback();
  /// Prints what is not on the screen yet; takes the waiting between frames out of the statistics.
  void finish(Generation& generation);
  bool timed_out() const { return timed_out_; }

 private:
  bool on_step(const StepEvent& event);
  void stream(const std::string& text);

  Terminal& terminal_;
  const LiveFlags& flags_;
  bool print_, streaming_;
  CanvasView view_;
  ProgressLine progress_;
  std::string streamed_;
  bool timed_out_ = false;
  std::chrono::duration<double> slept_{};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace dllm::app
