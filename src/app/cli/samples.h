#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/cli/options.h"
#include "app/cli/terminal.h"
#include "app/cli/verb.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// `dllm run --samples N`: N answers to one prompt, with the seeds S, S + 1, …, S the option's. Up to eight of them
/// share forward passes; each equals the answer of a run of its own.
struct Samples {
  std::int32_t count = 1;

  void add(Flags& flags);
  bool asked() const { return count > 1; }

  /// In the order of their seeds; after an interrupt or `timeout_s` (0: never), the unfinished ones are cancelled.
  /// Errors: kUsage, also at temperature 0, where all would be the same.
  Expected<std::vector<Generation>> draw(const LanguageModel& model, const std::vector<ChatTurn>& turns,
                                         GenerateOptions options, double timeout_s, Session& session) const;
};

/// Each text after a line "--- seed S", or {"samples": [answer, …], "config": …}, or an answer per line. `config`: of
/// the first.
void write_samples(const std::vector<Generation>& answers, const std::string& output, nlohmann::ordered_json config,
                   Terminal& terminal);

}  // namespace dllm::app
