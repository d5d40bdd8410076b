#pragma once

#include <string_view>
#include <vector>

#include "experiment/figure.h"
#include "experiment/lab.h"

namespace dllm::app {

/// What a figure is made of; sums of these.
enum Reads : unsigned {
  kReadsShape = 1,         ///< --shape
  kReadsPhones = 2,        ///< profiles of the phones
  kReadsAnswers = 4,       ///< --model and --items
  kReadsNpus = 16,         ///< profiles of kNpus
  kReadsUnseen = 8,        ///< --model, --unseen, --unseen-embedded, --limit
  kReadsCalibration = 32,  ///< --calibration, --calibration-embedded
};

/// Of DART and PLENA, with d-PLENA's numbers of lanes first.
inline constexpr const char* kNpus[] = {"dart-512", "dart-1024", "dart-2048", "dart-2048-hbm2e-x4", "plena-64-wide"};

inline constexpr std::string_view kPhonePaper = "llada.cpp (arXiv 2606.13740)";
inline constexpr std::string_view kNpuPaper = "DART (arXiv 2601.20706) and d-PLENA";

/// A figure that can be made anew.
struct Experiment {
  std::string_view name, meaning;
  Expected<Figure> (*make)(Lab& lab);
  unsigned reads = 0;  ///< Reads
  double seconds = 1;  ///< roughly, for the progress bar
  std::string_view paper = kPhonePaper;
};
const std::vector<Experiment>& experiments();

Expected<Figure> step_latency(Lab& lab);
Expected<Figure> gemm_stairs(Lab& lab);
Expected<Figure> weight_budget(Lab& lab);
Expected<Figure> memory_boundary(Lab& lab);
Expected<Figure> answer_latency(Lab& lab);
Expected<Figure> dream_latency(Lab& lab);
Expected<Figure> lookahead_trigger(Lab& lab);
Expected<Figure> answer_energy(Lab& lab);
Expected<Figure> answer_sensitivity(Lab& lab);
Expected<Figure> quality(Lab& lab);
Expected<Figure> sampling_share(Lab& lab);
Expected<Figure> block_phases(Lab& lab);
Expected<Figure> block_tail(Lab& lab);
Expected<Figure> commit_order(Lab& lab);
Expected<Figure> quant(Lab& lab);
Expected<Figure> smoothing_alpha(Lab& lab);
Expected<Figure> outlier_persistence(Lab& lab);

}  // namespace dllm::app
