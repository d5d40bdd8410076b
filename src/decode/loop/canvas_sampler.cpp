#include "decode/loop/canvas_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "decode/decoder/shared_rows.h"
#include "decode/loop/canvas_methods.h"
#include "decode/registry.h"

namespace dllm {
namespace {

constexpr std::string_view kGrowing = "adaptive";

template <class O>
OptionRow<O> passes_row() {
  return option("steps", &O::steps, 1, kMostPositions, "", "maximum number of passes over one canvas")
      .flag("--diffusion-steps")
      .otherwise("as the model recommends", [](const O&, const ModelDesc& desc, const MethodContext&) {
        return OptionValue(std::int64_t{desc.canvas.max_steps});
      });
}

OptionRows<CanvasOptions> canvas_rows() {
  using O = CanvasOptions;
  return {
      passes_row<O>(),
      option("entropy_bound", &O::entropy_bound, 0, 1e6, "nats", "bound on the sum of the entropies accepted in a pass")
          .otherwise("as the model recommends", [](const O&, const ModelDesc& desc, const MethodContext&) {
            return OptionValue(desc.canvas.entropy_bound);
          })};
}

struct SureOptions : ThresholdOptions {
  std::optional<std::int32_t> steps;
};

OptionRows<SureOptions> sure_rows() {
  return join_rows<SureOptions>(threshold_rows(), OptionRows<SureOptions>{passes_row<SureOptions>()});
}

MethodDeclaration without_options(std::string name, std::string meaning) {
  return {{std::move(name), {}, std::move(meaning), {}},
          {},
          [](const OptionMap&, const ModelDesc&, const MethodContext&) { return Expected<OptionMap>(OptionMap()); }};
}

}  // namespace

bool canvases_grow(std::string_view window) { return window == kGrowing; }

const std::vector<MethodDeclaration>& canvas_windows() {
  static const std::vector<MethodDeclaration> all = {
      without_options("block", "a canvas"),
      without_options(std::string(kGrowing),
                      "a canvas as long as the answer so far, from --block-length to the model's")};
  return all;
}

const std::vector<MethodDeclaration>& canvas_caches() {
  static const std::vector<MethodDeclaration> all = {without_options("prefix", "everything before the canvas is kept")};
  return all;
}

CanvasEntry canvas_entropy_bound() {
  return declare_method<CanvasOptions>(
      "entropy-bound", "for models that refine whole canvases: keeps tokens of low entropy (DiffusionGemma)",
      canvas_rows(),
      [](const CanvasOptions& options, const MethodContext&) { return std::make_unique<CanvasOptions>(options); });
}

CanvasEntry canvas_threshold() {
  return declare_method<CanvasOptions>(
             "threshold", "for models that refine whole canvases: the next passes are shown its sure tokens (mlx-vlm)",
             sure_rows(),
             [](const SureOptions& options, const MethodContext&) {
               return std::make_unique<CanvasOptions>(CanvasOptions{options.steps, {}, options.threshold});
             })
      .alias("confidence-threshold");
}

void CanvasSampler::begin() {
  passes_ = 0;
  kept_.clear();
  finished_ = false;
  history_.clear();
}

double CanvasSampler::temperature() const {
  const double left = config_.max_steps - passes_;
  return config_.t_min + (config_.t_max - config_.t_min) * (left / config_.max_steps);
}

bool CanvasSampler::is_stable(const std::vector<TokenId>& best) const {
  return static_cast<std::int32_t>(history_.size()) >= config_.stability &&
         std::ranges::all_of(history_, [&best](const std::vector<TokenId>& before) { return before == best; });
}

std::vector<TokenId> CanvasSampler::keep_low_entropies(std::span<const CanvasLook> looks) const {
  std::vector<std::size_t> order(looks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [looks](std::size_t a, std::size_t b) { return looks[a].entropy < looks[b].entropy; });
  std::vector<TokenId> shown(looks.size(), -1);
  double before = 0;
  for (const std::size_t i : order) {
    if (before > config_.entropy_bound) break;
    shown[i] = looks[i].drawn;
    before += looks[i].entropy;
  }
  return shown;
}

void CanvasSampler::keep_sure(std::span<const CanvasLook> looks) {
  kept_.resize(looks.size(), -1);
  std::size_t surest = looks.size();
  bool any = false;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    if (kept_[i] >= 0) continue;
    if (surest == looks.size() || looks[i].confidence > looks[surest].confidence) surest = i;
    if (looks[i].confidence >= *config_.threshold) kept_[i] = looks[i].best, any = true;
  }
  if (!any && surest < looks.size()) kept_[surest] = looks[surest].best;
}

std::vector<TokenId> CanvasSampler::absorb(std::span<const CanvasLook> looks) {
  if (config_.threshold) keep_sure(looks);
  std::vector<TokenId> shown = config_.threshold ? kept_ : keep_low_entropies(looks);
  std::vector<TokenId> best;
  double sum = 0;
  for (const CanvasLook& look : looks) {
    best.push_back(look.best);
    sum += look.entropy;
  }
  const bool confident = sum / static_cast<double>(looks.size()) < config_.confidence;
  ++passes_;
  const bool all_kept = config_.threshold && std::ranges::find(kept_, -1) == kept_.end();
  finished_ = passes_ >= config_.max_steps || all_kept || (confident && is_stable(best));
  history_.push_back(std::move(best));
  if (static_cast<std::int32_t>(history_.size()) > config_.stability) history_.erase(history_.begin());
  return shown;
}

TokenId canvas_noise(const RngKey& key, std::uint32_t pass, Position position, std::int64_t vocab) {
  // This loop draws nothing else for the purpose "transfers", which is Dream's.
  const double u = uniform01(key, RngPurpose::kTransfer, pass, static_cast<std::uint32_t>(position));
  return static_cast<TokenId>(std::min(std::floor(u * static_cast<double>(vocab)), static_cast<double>(vocab - 1)));
}

}  // namespace dllm
