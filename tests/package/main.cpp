#include <dllm/model.h>
#include <iostream>

int main() {
  auto model = dllm::LanguageModel::load("");  // a path, or the embedded model
  if (!model) return std::cerr << model.error().message() << '\n', 1;
  auto answer = model->generate("Solve 17+4.");
  if (!answer) return std::cerr << answer.error().message() << '\n', 1;
  std::cout << answer->text << '\n';
}
