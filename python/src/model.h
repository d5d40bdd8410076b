#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <variant>
#include <vector>

#include "dllm/model.h"

namespace dllm::python {

/// What is asked: a conversation as (role, content), or token ids as they are.
using Prompt = std::variant<std::vector<std::pair<std::string, std::string>>, std::vector<std::int32_t>>;

std::vector<ChatTurn> to_turns(const std::vector<std::pair<std::string, std::string>>& turns);

/// Runs without the GIL. `on_step` may take it.
Expected<Generation> run_generate(const LanguageModel& model, const Prompt& prompt, const GenerateOptions& options,
                                  const StepCallback& on_step, std::stop_token stop);

/// A model that Python objects share: streams keep it loaded.
using ModelPtr = std::shared_ptr<LanguageModel>;
struct Model {
  ModelPtr model;
};

}  // namespace dllm::python
