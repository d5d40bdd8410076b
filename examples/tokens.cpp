// Works below the chat: a template's token ids followed by masks, one forward pass, the likeliest token per mask.
//
//   example_tokens [MODEL.gguf [PROMPT]]        an empty MODEL is the embedded one
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "dllm/model.h"

int main(int argc, char** argv) {
  auto model = dllm::LanguageModel::load(argc > 1 ? argv[1] : "");
  if (!model) return std::fprintf(stderr, "error: %s\n", model.error().message().c_str()), 1;

  auto ids = model->apply_template({{"user", argc > 2 ? argv[2] : "Solve 17+4."}});
  const auto masks = model->tokenize("<|mdm_mask|><|mdm_mask|><|mdm_mask|>", /*special=*/true);
  if (!ids || !masks) return std::fprintf(stderr, "error: the model has no tokenizer\n"), 1;
  const std::size_t prompt = ids->size();
  ids->insert(ids->end(), masks->begin(), masks->end());

  const auto logits = model->logits(*ids, /*causal=*/false);  // [ids x vocabulary]
  if (!logits) return std::fprintf(stderr, "error: %s\n", logits.error().message().c_str()), 1;
  const std::ptrdiff_t vocabulary = model->vocab_size();
  for (std::size_t i = prompt; i < ids->size(); ++i) {
    const auto row = logits->begin() + static_cast<std::ptrdiff_t>(i) * vocabulary;
    const auto best = static_cast<std::int32_t>(std::max_element(row, row + vocabulary) - row);
    const auto text = model->detokenize({best}, /*special=*/true);
    std::printf("position %zu: %d '%s'\n", i, best, text ? text->c_str() : "?");
  }
}
