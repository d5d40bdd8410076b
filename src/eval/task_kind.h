#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_object.h"
#include "dllm/error.h"

namespace dllm {

/// How an item is scored.
enum class Scoring {
  kGenerate,    ///< the model writes an answer, from which the result is extracted
  kChoices,     ///< its answer is the likeliest of the given continuations
  kLikelihood,  ///< the likelihood of the expected answer
};

/// One question. The scoring determines which fields matter.
struct EvalItem {
  std::string task = "default";  ///< groups items in the report
  std::string prompt;
  std::string answer;         ///< the right answer, in the form that the kind's judge reads
  std::int64_t line = 0;      ///< 1-based line, or element of a JSON array
  std::string solution = {};  ///< the answer as shown in an example; empty: `answer`
  std::vector<std::string> choices = {};
  std::int32_t label = -1;                                 ///< index of the right choice
  std::string entry_point = {}, test = {}, preamble = {};  ///< of programs: see tasks/humaneval.cpp
};

/// A judge's result for an answer.
struct Verdict {
  bool correct = false;
  std::string extracted = {};       ///< the part of the text that was compared
  std::optional<bool> strict = {};  ///< by the stricter of two rules, if a kind has two
  std::string note = {};            ///< why it is wrong, if that is not obvious (a program's error)
};

/// Whether a model's programs may run, and where (sandbox.h).
enum class RunCode { kNo, kSandboxed, kUnsafe };

/// Limits and permission for judges that run programs.
struct JudgeOptions {
  RunCode run_code = RunCode::kNo;  ///< kNo: such a judge gives an error
  double seconds = 10;              ///< wall clock per program
  std::int64_t memory_mb = 512;
};

struct Field {
  std::string_view name;
  bool required = true;
};

/// A format of benchmark items: one file in src/eval/tasks and one line in its registry.
struct TaskKind {
  std::string_view name;
  std::string_view summary;
  std::vector<Field> fields;                             ///< any other field of an item is an error
  bool detectable = true;                                ///< by its fields; otherwise it must be named
  Scoring scoring = Scoring::kGenerate;                  ///< by default
  std::vector<Scoring> scorings = {Scoring::kGenerate};  ///< allowed
  Expected<EvalItem> (*read)(JsonObject& fields) = nullptr;
  Expected<Verdict> (*judge)(const EvalItem& item, std::string_view text, const JudgeOptions& options) = nullptr;
};

/// Detection prefers earlier entries among equals.
const std::vector<const TaskKind*>& task_kinds();
std::vector<std::string> task_kind_names();
/// nullptr for an unknown name.
const TaskKind* find_task_kind(std::string_view name);

std::string_view scoring_name(Scoring scoring);

}  // namespace dllm
