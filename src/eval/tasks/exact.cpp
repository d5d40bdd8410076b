// Custom items: the whole answer counts, or the last number in it.
#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

Expected<EvalItem> read_exact(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(item.prompt, fields.text("prompt"));
  DLLM_TRY(item.answer, fields.text("answer"));
  if (fields.contains("task")) {
    DLLM_TRY(item.task, fields.text("task"));
  }
  return item;
}

Expected<Verdict> judge_whole(const EvalItem& item, std::string_view text, const JudgeOptions&) {
  return Verdict{.correct = exact_match(text, item.answer), .extracted = std::string(strip_end(text))};
}

Expected<Verdict> judge_number(const EvalItem& item, std::string_view text, const JudgeOptions&) {
  const auto wanted = last_number(item.answer), found = last_number(text);
  return Verdict{
      .correct = wanted && found == wanted, .extracted = found.value_or(""), .strict = exact_match(text, item.answer)};
}

}  // namespace

const TaskKind& exact_kind() {
  static const TaskKind kind = {.name = "exact",
                                .summary = "the whole answer",
                                .fields = {{"prompt"}, {"answer"}, {"task", false}},
                                .scorings = {Scoring::kGenerate, Scoring::kLikelihood},
                                .read = read_exact,
                                .judge = judge_whole};
  return kind;
}

const TaskKind& number_kind() {
  static const TaskKind kind = {.name = "number",
                                .summary = "the last number of the answer; strict: the whole answer",
                                .fields = {{"prompt"}, {"answer"}, {"task", false}},
                                .detectable = false,
                                .scorings = {Scoring::kGenerate, Scoring::kLikelihood},
                                .read = read_exact,
                                .judge = judge_number};
  return kind;
}

}  // namespace dllm
