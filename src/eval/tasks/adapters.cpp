// The instruction format in which LLM-Adapters publishes ARC, BoolQ and others: the instruction ends with "Answer
// format: answer1/answer2/…". The first option in the answer counts; by likelihood, the choices are "the correct answer
// is OPTION".
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

constexpr std::string_view kFormat = "Answer format: ";

Expected<std::vector<std::string>> options_of(std::string_view instruction, JsonObject& fields) {
  const auto at = instruction.rfind(kFormat);
  std::vector<std::string> options;
  if (at != std::string_view::npos) {
    std::string_view rest = before(instruction.substr(at + kFormat.size()), {"\n"});
    while (true) {
      const auto slash = rest.find('/');
      if (const auto option = strip(rest.substr(0, slash)); !option.empty()) options.emplace_back(option);
      if (slash == std::string_view::npos) break;
      rest.remove_prefix(slash + 1);
    }
  }
  if (options.size() < 2)
    return fields.error("instruction", "'instruction' does not end with \"Answer format: A/B/...\"");
  return options;
}

std::string option_of(const std::string& choice) { return choice.substr(choice.rfind(' ') + 1); }

Expected<EvalItem> read_adapters(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(item.prompt, fields.text("instruction"));
  DLLM_TRY(const std::vector<std::string> options, options_of(item.prompt, fields));
  DLLM_TRY(item.answer, fields.text("answer"));
  const auto right = std::find(options.begin(), options.end(), item.answer);
  if (right == options.end())
    return fields.error("answer", fmt::format("'answer' {} is not among its options", item.answer));
  item.label = static_cast<std::int32_t>(right - options.begin());
  for (const std::string& option : options) item.choices.push_back("the correct answer is " + option);
  if (fields.contains("input")) {
    DLLM_TRY(const std::string input, fields.text("input"));
    if (!input.empty()) item.prompt += "\n\n" + input;
  }
  item.solution = item.choices[static_cast<std::size_t>(item.label)];
  return item;
}

Expected<Verdict> judge_adapters(const EvalItem& item, std::string_view text, const JudgeOptions&) {
  std::vector<std::string> options;
  for (const std::string& choice : item.choices) options.push_back(option_of(choice));
  const int found = first_option(text, options);
  return Verdict{.correct = found == item.label,
                 .extracted = found < 0 ? "" : options[static_cast<std::size_t>(found)]};
}

}  // namespace

const TaskKind& adapters_kind() {
  static const TaskKind kind = {.name = "adapters",
                                .summary = "ARC, BoolQ, … as LLM-Adapters writes them: the option named first",
                                .fields = {{"instruction"}, {"answer"}, {"input", false}, {"output", false}},
                                .scorings = {Scoring::kGenerate, Scoring::kChoices},
                                .read = read_adapters,
                                .judge = judge_adapters};
  return kind;
}

}  // namespace dllm
