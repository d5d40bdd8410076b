#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "text/thoughts.h"

namespace dllm::browser {

/// {"error": {"message", "param"}}, one line.
std::string error_text(const Error& error);

/// One answer on its way to the page: collects the events that `dllm serve` would send (docs/guide/serving.md,
/// `diffusion_events`), of which the page takes what there is after each pass.
class PageAnswer {
 public:
  /// `model` must outlive it. `opening`: TemplatedPrompt::opening.
  PageAnswer(const LanguageModel& model, std::string opening);

  /// Control tokens that the answer's text must have, so that thoughts can be told apart.
  std::vector<std::int32_t> shown_tokens() const;
  void on_step(const StepEvent& event);
  void on_done(const Expected<Generation>& answer);

  bool ended() const { return ended_; }
  /// What has happened since the last call.
  std::string take_events();

 private:
  void tell(const std::string& text, bool complete);
  double seconds() const;

  const LanguageModel& model_;
  std::string opening_;
  ThoughtFormat format_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string thoughts_, text_;  ///< told so far
  std::string events_;
  bool stepped_ = false, ended_ = false;
};

}  // namespace dllm::browser
