// Custom multiple-choice items: the likeliest choice counts.
#include <fmt/format.h>

#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

Expected<EvalItem> read_choice(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(item.prompt, fields.text("prompt"));
  DLLM_TRY(item.choices, fields.texts("choices"));
  DLLM_TRY(const std::int64_t label, fields.integer("label"));
  if (label < 0 || label >= static_cast<std::int64_t>(item.choices.size()))
    return fields.error("label", fmt::format("label {} with {} choices", label, item.choices.size()),
                        "labels count from 0");
  item.label = static_cast<std::int32_t>(label);
  item.answer = item.choices[static_cast<std::size_t>(label)];
  if (fields.contains("task")) {
    DLLM_TRY(item.task, fields.text("task"));
  }
  return item;
}

Expected<Verdict> judge_choice(const EvalItem& item, std::string_view text, const JudgeOptions&) {
  const int found = first_option(text, item.choices);
  return Verdict{.correct = found == item.label,
                 .extracted = found < 0 ? "" : item.choices[static_cast<std::size_t>(found)]};
}

}  // namespace

const TaskKind& choice_kind() {
  static const TaskKind kind = {.name = "choice",
                                .summary = "the likeliest of the choices; generated: the one named first",
                                .fields = {{"prompt"}, {"choices"}, {"label"}, {"task", false}},
                                .scoring = Scoring::kChoices,
                                .scorings = {Scoring::kChoices, Scoring::kGenerate},
                                .read = read_choice,
                                .judge = judge_choice};
  return kind;
}

}  // namespace dllm
