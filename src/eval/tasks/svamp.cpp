// SVAMP: one-step word problems; the last number of the answer, compared as a number (the file has 51.0, models say
// 51).
#include <fmt/format.h>

#include <cmath>

#include "base/parse_text.h"
#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

Expected<EvalItem> read_svamp(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(const std::string body, fields.text("Body"));
  DLLM_TRY(const std::string question, fields.text("Question"));
  DLLM_TRY(const double answer, fields.number("Answer"));
  item.prompt = std::string(strip(body)) + " " + question;
  item.answer = fmt::format("{}", answer);
  return item;
}

Expected<Verdict> judge_svamp(const EvalItem& item, std::string_view text, const JudgeOptions&) {
  const std::string found = last_number(text).value_or("");
  const auto value = parse_double(found), wanted = parse_double(item.answer);
  return Verdict{.correct = value && wanted && std::abs(*value - *wanted) < 1e-6, .extracted = found};
}

}  // namespace

const TaskKind& svamp_kind() {
  static const TaskKind kind = {
      .name = "svamp",
      .summary = "the last number of the answer",
      .fields = {{"Body"}, {"Question"}, {"Answer"}, {"ID", false}, {"Equation", false}, {"Type", false}},
      .read = read_svamp,
      .judge = judge_svamp};
  return kind;
}

}  // namespace dllm
