#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "app/bench/answers.h"
#include "app/bench/bench.h"
#include "npu/answers/answer_clock.h"
#include "npu/answers/step_timer.h"

namespace dllm::app {

/// How an answer is decoded and on what it runs: one line of the end-to-end experiment.
struct AnswerMode {
  std::string name;
  std::string decoding;  ///< of Lab::passes()
  npu::TimerOptions timing;
};
/// llada.cpp's modes in their order: host, NPU, + memory runtime, + speculative, + staged states, + logits skipping, +
/// sparse refresh.
const std::vector<AnswerMode>& answer_modes();

inline constexpr const char* kPhones[] = {"mobile-sm8650", "mobile-sm8750", "mobile-sm8850"};

/// What a decoder did: a pass, or one of what concerns passes of the second path.
struct PassEvent {
  enum class Kind : std::uint8_t { kPass, kLaunch, kWait, kDrop };
  npu::StepWork work{};
  Kind kind = Kind::kPass;
  std::size_t refresh = 0;  ///< which launch is waited for or dropped
};

/// What the experiments share: passes of a trained model, and timers of a shape on devices.
class Lab {
 public:
  /// `shape`: whose steps are timed. `model`, `items`: whose passes and prompts these are; read when first needed.
  Lab(std::string shape, std::string model, std::string items, std::stop_token stop)
      : shape_name_(std::move(shape)), model_path_(std::move(model)), items_path_(std::move(items)), stop_(stop) {}

  Expected<const ShapeModel*> shape();
  // As given, for settings.
  const std::string& shape_name() const { return shape_name_; }
  const std::string& model_path() const { return model_path_; }
  const std::string& items_path() const { return items_path_; }
  /// Passes of the answers to the first prompts, `tokens` each. Cached. `decoding`: "prefix", "speculative" (one
  /// threshold), "states" (two, without later reviews), "refresh" (reviews on the second path), "folded" (in the dense
  /// passes); all but the first also with the masks of their lookahead: "refresh 8".
  using Passes = std::vector<PassEvent>;
  static double count(const Passes& passes);  ///< without the second path's
  Expected<const std::vector<Passes>*> passes(const std::string& decoding, std::int32_t tokens);
  /// Passes of an autoregressive model of the same shape and prompts.
  Expected<std::vector<Passes>> autoregression(std::int32_t tokens);

  /// Mean over answers. Errors: those of the timer, so also that a mapping failed.
  Expected<npu::StepTime> time(const npu::Device& device, const std::vector<Passes>& answers,
                               const npu::TimerOptions& timing);
  Expected<npu::StepTimer> timer(const npu::Device& device, const npu::StepWork& most, const npu::TimerOptions& timing);

 private:
  Expected<void> open();

  std::string shape_name_, model_path_, items_path_;
  std::stop_token stop_;
  std::unique_ptr<ShapeModel> shape_;
  std::unique_ptr<BenchModel> model_;
  std::vector<std::vector<TokenId>> prompts_;
  std::unique_ptr<LatencyTable> stairs_;
  std::map<std::string, std::vector<Passes>> passes_;
};

}  // namespace dllm::app
