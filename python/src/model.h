#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "dllm/model.h"

namespace dllm::python {

/// A conversation, or token ids that are used unchanged.
using Prompt = std::variant<std::vector<ChatTurn>, std::vector<std::int32_t>>;
/// The form in which Python passes a conversation: (role, content, bytes of image files) for each turn.
using PythonTurns = std::vector<std::tuple<std::string, std::string, std::vector<nanobind::bytes>>>;
using PythonPrompt = std::variant<PythonTurns, std::vector<std::int32_t>>;

// With the GIL.
std::vector<ChatTurn> to_turns(const PythonTurns& turns);
Prompt to_prompt(PythonPrompt prompt);

/// Runs without the GIL. `on_step` may take it.
Expected<Generation> run_generate(const LanguageModel& model, const Prompt& prompt, const GenerateOptions& options,
                                  const StepCallback& on_step, std::stop_token stop);

/// A model that Python objects share: streams keep it loaded.
using ModelPtr = std::shared_ptr<LanguageModel>;
struct Model {
  ModelPtr model;
};

}  // namespace dllm::python
