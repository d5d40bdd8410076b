// GSM8K: the last number of a worked solution (lm-evaluation-harness' flexible match); strict: the number after ####.
#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

Expected<EvalItem> read_gsm8k(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(const std::string question, fields.text("question"));
  DLLM_TRY(item.solution, fields.text("answer"));
  const auto number = marked_number(item.solution);
  if (!number) return fields.error("answer", "'answer' does not end with #### and a number");
  item.answer = *number;
  item.prompt = "Question: " + question + "\nAnswer:";
  return item;
}

Expected<Verdict> judge_gsm8k(const EvalItem& item, std::string_view text, const JudgeOptions&) {
  // A model that continues with another question has answered this one.
  const std::string_view answer = before(text, {"Question:", "</s>", "<|im_end|>"});
  const auto found = last_number(answer);
  return Verdict{
      .correct = found == item.answer, .extracted = found.value_or(""), .strict = marked_number(answer) == item.answer};
}

}  // namespace

const TaskKind& gsm8k_kind() {
  static const TaskKind kind = {.name = "gsm8k",
                                .summary = "the last number of the answer; strict: the number after ####",
                                .fields = {{"question"}, {"answer"}},
                                .read = read_gsm8k,
                                .judge = judge_gsm8k};
  return kind;
}

}  // namespace dllm
