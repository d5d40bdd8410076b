// Watches an answer appear out of order, and stops after a number of steps.
//
//   example_stream [MODEL.gguf [STEPS]]        an empty MODEL is the embedded one
#include <cstdio>
#include <cstdlib>
#include <string>

#include "dllm/model.h"

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 4;

  auto model = dllm::LanguageModel::load(path);
  if (!model) return std::fprintf(stderr, "error: %s\n", model.error().message().c_str()), 1;

  dllm::GenerateOptions options;
  options.length = 32;
  options.decoder.name = "low-confidence";  // one token per step, the most confident first
  const auto show = [steps](const dllm::StepEvent& event) {
    std::printf("step %d: ", event.step + 1);
    for (std::size_t i = static_cast<std::size_t>(event.prompt_length); i < event.canvas.size(); ++i)
      std::putchar(event.canvas[i].changed ? '*' : event.canvas[i].masked ? '.' : 'o');
    std::printf("  %d masked\n", event.masked);
    return event.step + 1 < steps;  // false: stop here
  };
  const auto answer = model->generate("Max: 12 16 3 1", options, show);
  if (!answer) return std::fprintf(stderr, "error: %s\n", answer.error().message().c_str()), 1;
  const bool cancelled = answer->finish == dllm::FinishReason::kCancelled;
  std::printf("%s after %d steps\n", cancelled ? "cancelled" : "finished", answer->stats.steps);
}
