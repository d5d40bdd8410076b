#pragma once

#include <string>
#include <string_view>

#include "eval/eval_set.h"

namespace dllm {

/// The body of fuzz/fuzz_eval_set.cpp, which a test replays over its corpus: any text is a set of items or gives an
/// error with a place; every item can be judged (programs are not run).
inline void fuzz_eval_set(std::string_view text) {
  auto set = parse_eval_set(std::string(text), "input", "");
  if (!set) {
    if (set.error().what.empty()) __builtin_trap();
    return;
  }
  for (const EvalItem& item : set->items)
    for (const std::string& answer : {std::string(), item.answer, std::string("```python\n1\n``` #### 5, (A)")})
      (void)set->kind->judge(item, answer, {});
  (void)use_shots(*set, 1);
}

}  // namespace dllm
