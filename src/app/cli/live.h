#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "app/cli/canvas_view.h"
#include "app/cli/flags.h"
#include "app/cli/step_log.h"
#include "app/cli/terminal.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// Flags for the display of an answer while it is generated.
struct LiveFlags {
  bool visual = false;
  std::int32_t visual_delay_ms = 0;
  double timeout_s = 0;  ///< 0: none

  void add(Flags& flags);
};

/// What is written to standard output during a generation.
enum class AnswerForm {
  kText,   ///< the text as it becomes final, in pipes as on terminals: written text is never taken back
  kSteps,  ///< every step as a line of JSON (StepLog)
  kNone,
};

using TraceSink = std::function<void(const StepEvent&, double seconds)>;

/// The listener of one generation: shows the canvas, the text, the steps, or a progress line.
class LiveAnswer {
 public:
  /// `trace`: called with every step and the seconds until then; empty if unused.
  LiveAnswer(Terminal& terminal, const LanguageModel& model, const LiveFlags& flags, AnswerForm form,
             TraceSink trace = {});

  /// Empty if nothing is shown: then the engine need not describe its steps.
  StepCallback callback();
  /// Prints the remaining text.
  void finish(const Generation& generation);
  bool timed_out() const { return timed_out_; }

 private:
  bool on_step(const StepEvent& event);
  void stream(const std::string& text);

  Terminal& terminal_;
  const LiveFlags& flags_;
  AnswerForm form_;
  TraceSink trace_;
  bool streaming_;
  StepLog log_;
  CanvasView view_;
  ProgressLine progress_;
  std::string streamed_;
  bool timed_out_ = false;
  std::chrono::duration<double> slept_{};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace dllm::app
