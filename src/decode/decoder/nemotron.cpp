// The samplers of Nemotron-Labs-Diffusion (mlx-vlm 0.7.10, models/nemotron_labs_diffusion). All rank the masks of the
// block by confidence, from k = 0, and the best always goes. Its `fixed` is low-confidence here: so many per step.
#include <algorithm>
#include <cmath>

#include "decode/registry.h"

namespace dllm {
namespace {

struct NemotronOptions {
  double threshold = 0.9;
};
struct RefOptions : NemotronOptions {
  double factor = 1.0;
};
struct BoundOptions : NemotronOptions {
  double factor = 2.0;
  double min_threshold = 0.45;
};
struct NativeOptions : NemotronOptions {
  std::optional<std::int32_t> block_passes;
};

template <class O>
OptionRow<O> threshold_row() {
  return option("threshold", &O::threshold, 0, 2, "",
                "confidence from which positions are committed together; above 1: only the best");
}
template <class O>
OptionRow<O> factor_row() {
  return option("factor", &O::factor, 0, 1e6, "",
                "Fast-dLLM's factor: a larger one commits more per step; with --compat as upstream computes it");
}

/// Commits the ranked candidates for which `keep(k, confidence)` holds, and the best.
template <class Keep>
std::vector<Edit> commit_kept(std::span<const Candidate> candidates, Keep keep) {
  const std::vector<Edit> ranked =
      commit_best(candidates, candidates.size(), [](const Candidate& candidate) { return candidate.log_odds; });
  std::vector<Edit> edits;
  for (std::size_t k = 0; k < ranked.size(); ++k)
    if (k == 0 || keep(k, ranked[k].confidence)) edits.push_back(ranked[k]);
  return edits;
}

/// 1 - f / (k + 2): what the confidence of the k-th best must reach for k + 1 to be committed together.
double positional(double factor, std::size_t k) { return 1 - factor / static_cast<double>(k + 2); }

class Native : public Decoder {
 public:
  explicit Native(const NativeOptions& options) : options_(options) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const bool last = options_.block_passes && context.window_step + 1 >= *options_.block_passes;
    return commit_kept(candidates, [&](std::size_t, double c) { return last || c >= options_.threshold; });
  }

 private:
  NativeOptions options_;
};

class ConfidenceRef : public Decoder {
 public:
  explicit ConfidenceRef(const RefOptions& options) : options_(options) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    bool going = true;  // a prefix of the order
    return commit_kept(candidates, [&](std::size_t k, double c) {
      going = going && c >= options_.threshold && c >= positional(options_.factor, k);
      return going;
    });
  }

 private:
  RefOptions options_;
};

class CumulativeError : public Decoder {
 public:
  explicit CumulativeError(const NemotronOptions& options) : options_(options) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits =
        commit_best(candidates, candidates.size(), [](const Candidate& candidate) { return candidate.log_odds; });
    double product = 1;
    std::size_t count = 0;
    while (count < edits.size() && (product *= edits[count].confidence) >= options_.threshold) ++count;
    edits.resize(std::min(edits.size(), std::max<std::size_t>(1, count)));
    return edits;
  }

 private:
  NemotronOptions options_;
};

class ConfidenceBound : public Decoder {
 public:
  explicit ConfidenceBound(const BoundOptions& options) : options_(options) {}

  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    return commit_kept(candidates, [&](std::size_t k, double c) {
      return c >= options_.threshold || (c >= options_.min_threshold && c >= positional(options_.factor, k));
    });
  }

 private:
  BoundOptions options_;
};

template <class Method, class O>
DecoderEntry nemotron(const char* name, const char* meaning, OptionRows<O> rows) {
  return declare_method<Decoder>(name, meaning, std::move(rows), [](const O& options, const MethodContext&) {
    return std::make_unique<Method>(options);
  });
}

}  // namespace

DecoderEntry native_decoder() {
  using O = NativeOptions;
  return nemotron<Native, O>("native", "every position of enough confidence, in so many passes per block (Nemotron)",
                             {threshold_row<O>(), option("block_passes", &O::block_passes, 1, kMostPositions, "passes",
                                                         "the last of them commits all of a block")
                                                      .otherwise("as many as a block has positions")})
      .standard_for("for models of several modes", [](const ModelDesc& desc) { return !desc.modes.empty(); });
}

DecoderEntry confidence_ref_decoder() {
  using O = RefOptions;
  return nemotron<ConfidenceRef, O>("confidence-ref", "the surest, while threshold and factor rule allow it (Nemotron)",
                                    {threshold_row<O>(), factor_row<O>()});
}

DecoderEntry cumulative_error_decoder() {
  using O = NemotronOptions;
  return nemotron<CumulativeError, O>("cumulative-error", "the surest, while the product of confidences allows it",
                                      {threshold_row<O>()});
}

DecoderEntry confidence_bound_decoder() {
  using O = BoundOptions;
  return nemotron<ConfidenceBound, O>(
      "confidence-bound", "what reaches the threshold, or a lower one and the factor rule (Nemotron)",
      {threshold_row<O>(), factor_row<O>(),
       option("min_threshold", &O::min_threshold, 0, 1, "", "confidence below which the factor rule does not help")});
}

}  // namespace dllm
