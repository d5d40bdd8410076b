#include "eval/task_kind.h"

namespace dllm {

std::string_view scoring_name(Scoring scoring) {
  switch (scoring) {
    case Scoring::kGenerate:
      return "generate";
    case Scoring::kChoices:
      return "choices";
    case Scoring::kLikelihood:
      return "likelihood";
  }
  return "unknown";
}

}  // namespace dllm
