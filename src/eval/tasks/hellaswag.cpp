// HellaSwag: the likeliest of four endings, by sum and by sum per byte (acc and acc_norm of lm-evaluation-harness).
#include <fmt/format.h>

#include <cctype>

#include "base/try.h"
#include "eval/answer_text.h"
#include "eval/task_kind.h"

namespace dllm {
namespace {

/// The harness' cleaning: WikiHow's " [title]" ends a sentence, other brackets are removed, double blanks become one.
std::string cleaned(std::string_view raw) {
  std::string text(strip(raw)), result;
  for (auto at = text.find(" [title]"); at != std::string::npos; at = text.find(" [title]")) text.replace(at, 8, ". ");
  for (auto open = text.find('['); open != std::string::npos; open = text.find('[', open)) {
    const auto close = text.find(']', open);
    if (close == std::string::npos) break;
    text.erase(open, close - open + 1);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == ' ' && i + 1 < text.size() && text[i + 1] == ' ') ++i;
  }
  return result;
}

std::string capitalized(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(i == 0 ? std::toupper(c) : std::tolower(c));
  }
  return text;
}

Expected<EvalItem> read_hellaswag(JsonObject& fields) {
  EvalItem item;
  DLLM_TRY(const std::string activity, fields.text("activity_label"));
  DLLM_TRY(const std::string a, fields.text("ctx_a"));
  DLLM_TRY(std::string b, fields.text("ctx_b"));
  DLLM_TRY(const std::vector<std::string> endings, fields.texts("endings"));
  DLLM_TRY(const std::int64_t label, fields.integer("label"));
  if (label < 0 || label >= static_cast<std::int64_t>(endings.size()))
    return fields.error("label", fmt::format("label {} with {} endings", label, endings.size()));
  item.prompt = cleaned(activity + ": " + a + " " + capitalized(std::move(b)));
  for (const std::string& ending : endings) item.choices.push_back(cleaned(ending));
  item.label = static_cast<std::int32_t>(label);
  item.answer = item.choices[static_cast<std::size_t>(label)];
  return item;
}

Expected<Verdict> judge_hellaswag(const EvalItem&, std::string_view, const JudgeOptions&) {
  return Error{ErrorCode::kUsage, "hellaswag items have no generated answers", "--scoring", ""};
}

}  // namespace

const TaskKind& hellaswag_kind() {
  static const TaskKind kind = {.name = "hellaswag",
                                .summary = "the likeliest of the endings, also per byte",
                                .fields = {{"activity_label"},
                                           {"ctx_a"},
                                           {"ctx_b"},
                                           {"endings"},
                                           {"label"},
                                           {"ind", false},
                                           {"ctx", false},
                                           {"split", false},
                                           {"split_type", false},
                                           {"source_id", false}},
                                .scoring = Scoring::kChoices,
                                .scorings = {Scoring::kChoices},
                                .read = read_hellaswag,
                                .judge = judge_hellaswag};
  return kind;
}

}  // namespace dllm
