// CRUXEval, output prediction: a Python function and its arguments; the answer is a literal, compared as a value.
#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/python_literal.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

Expected<EvalItem> read_cruxeval(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(const std::string code, fields.text("code"));
  DLLM_TRY(const std::string input, fields.text("input"));
  DLLM_TRY(item.answer, fields.text("output"));
  item.prompt = code + "\n\nWrite the value of f(" + input + ") as a Python literal.\nassert f(" + input + ") ==";
  return item;
}

/// The literal of an answer: after the last "==" of its first [ANSWER] part, code block or line.
std::string_view literal_of(std::string_view text) {
  if (const auto open = text.find("[ANSWER]"); open != std::string_view::npos)
    text = before(text.substr(open + 8), {"[/ANSWER]"});
  text = strip(text);
  if (const auto equal = text.rfind("=="); equal != std::string_view::npos) text = strip(text.substr(equal + 2));
  return strip(before(text, {"\n"}));
}

Expected<Verdict> judge_cruxeval(const EvalItem& item, std::string_view text, const JudgeOptions&) {
  const auto block = code_block(text);
  const std::string_view found = literal_of(block ? std::string_view(*block) : text);
  const auto value = canonical_python_literal(found), wanted = canonical_python_literal(item.answer);
  // A few expected outputs are not literals that we parse; those are compared as text.
  const bool correct = value && wanted ? *value == *wanted : found == strip(item.answer);
  return Verdict{.correct = correct, .extracted = std::string(found)};
}

}  // namespace

const TaskKind& cruxeval_kind() {
  static const TaskKind kind = {.name = "cruxeval",
                                .summary = "the value of a Python call, compared as a literal",
                                .fields = {{"code"}, {"input"}, {"output"}, {"id", false}},
                                .read = read_cruxeval,
                                .judge = judge_cruxeval};
  return kind;
}

}  // namespace dllm
