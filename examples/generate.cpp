// Loads a model, answers one prompt, and prints the answer and its cost.
//
//   example_generate [MODEL.gguf [PROMPT]]        an empty MODEL is the embedded one
#include <cstdio>
#include <string>

#include "dllm/model.h"

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "";
  const std::string prompt = argc > 2 ? argv[2] : "Solve 17+4.";

  auto model = dllm::LanguageModel::load(path);
  if (!model) {
    std::fprintf(stderr, "error: %s\n", model.error().message().c_str());
    return 1;
  }
  dllm::GenerateOptions options;
  options.length = 64;
  options.decoder = {"threshold", {{"threshold", 0.9}}};  // commit every token with at least this confidence

  const auto answer = model->generate(prompt, options);
  if (!answer) {
    std::fprintf(stderr, "error: %s\n", answer.error().message().c_str());
    return 1;
  }
  std::printf("%s\n", answer->text.c_str());
  std::printf("%d tokens in %d forward passes\n", answer->stats.answer_tokens, answer->stats.nfe);
}
