// HumanEval: a function from its docstring, judged by its tests in a sandbox (sandbox.h).
#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/sandbox.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

Expected<EvalItem> read_humaneval(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(const std::string head, fields.text("prompt"));
  DLLM_TRY(item.entry_point, fields.text("entry_point"));
  DLLM_TRY(item.answer, fields.text("canonical_solution"));
  DLLM_TRY(item.test, fields.text("test"));
  if (head.find("def " + item.entry_point + "(") == std::string::npos)
    return fields.error("prompt", "'prompt' does not define 'entry_point' " + item.entry_point);
  item.preamble = head;
  item.prompt =
      "Complete this Python function. Answer with the whole function in one code block.\n\n```python\n" + head + "```";
  return item;
}

/// Makes a complete program from an answer: a function keeps the prompt's imports and helpers before it; anything else
/// continues the prompt's function and ends where a new top-level statement begins.
std::string program_of(const EvalItem& item, std::string_view text) {
  const auto block = code_block(text);
  const std::string code = block ? *block : std::string(text);
  const std::string head = "def " + item.entry_point + "(";
  if (code.find(head) != std::string::npos) return item.preamble.substr(0, item.preamble.find(head)) + "\n" + code;
  return item.preamble + std::string(before(code, {"\nclass", "\ndef", "\n#", "\nif", "\nprint", "\n@"}));
}

Expected<Verdict> judge_humaneval(const EvalItem& item, std::string_view text, const JudgeOptions& options) {
  const std::string program = program_of(item, text);
  Verdict verdict{.extracted = program};
  if (options.run_code == RunCode::kNo)
    return Error{ErrorCode::kUsage, "these items are judged by running the model's programs", "",
                 "--run-code allows it, in a sandbox: see docs/guide/evaluating.md"};
  DLLM_TRY(const SandboxResult result, run_python(program, item.test + "\ncheck(" + item.entry_point + ")\n",
                                                  {.seconds = options.seconds,
                                                   .memory_mb = options.memory_mb,
                                                   .unsafe = options.run_code == RunCode::kUnsafe}));
  verdict.correct = result.passed;
  verdict.note = result.reason;
  return verdict;
}

}  // namespace

const TaskKind& humaneval_kind() {
  static const TaskKind kind = {
      .name = "humaneval",
      .summary = "a Python function, judged by its tests; needs --run-code",
      .fields = {{"prompt"}, {"entry_point"}, {"canonical_solution"}, {"test"}, {"task_id", false}},
      .read = read_humaneval,
      .judge = judge_humaneval};
  return kind;
}

}  // namespace dllm
