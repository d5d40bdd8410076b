#pragma once

#include <string_view>
#include <vector>

#include "app/experiment/figure.h"
#include "app/experiment/lab.h"

namespace dllm::app {

/// What a figure is made of; sums of these.
enum Reads : unsigned {
  kReadsShape = 1,    ///< --shape
  kReadsPhones = 2,   ///< profiles of the phones
  kReadsAnswers = 4,  ///< --model and --items
  kReadsUnseen = 8,   ///< --model, --unseen, --unseen-embedded, --limit
};

/// A figure that can be made anew.
struct Experiment {
  std::string_view name, meaning;
  Expected<Figure> (*make)(Lab& lab);
  unsigned reads = 0;  ///< Reads
  double seconds = 1;  ///< roughly, for the progress bar
};
const std::vector<Experiment>& experiments();

Expected<Figure> step_latency(Lab& lab);
Expected<Figure> gemm_stairs(Lab& lab);
Expected<Figure> weight_budget(Lab& lab);
Expected<Figure> memory_boundary(Lab& lab);
Expected<Figure> answer_latency(Lab& lab);
Expected<Figure> lookahead_trigger(Lab& lab);
Expected<Figure> answer_energy(Lab& lab);
Expected<Figure> answer_sensitivity(Lab& lab);
Expected<Figure> quality(Lab& lab);

}  // namespace dllm::app
