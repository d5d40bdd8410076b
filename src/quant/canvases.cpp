#include "quant/canvases.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"

namespace dllm {
namespace {

/// Positions of an answer that are masks, ascending; all from `rest` on are, too, and do not count.
struct Masks {
  std::vector<std::int32_t> counted;
  std::int32_t rest = 0;
};

Masks draw_masks(std::int32_t length, const CanvasOptions& options, std::uint32_t canvas) {
  const RngKey key{options.seed, canvas};
  const double ratio = uniform01(key, RngPurpose::kTransfer, 0, 0);
  Masks masks;
  std::int32_t first = 0;
  masks.rest = length;
  if (options.masks == CalibrationMasks::kDecoding) {
    const std::int32_t blocks = (length + options.block - 1) / options.block;
    first = static_cast<std::int32_t>(uniform01(key, RngPurpose::kOrder, 0, 0) * blocks) * options.block;
    masks.rest = std::min(length, first + options.block);
  }
  for (std::int32_t i = first; i < masks.rest; ++i)
    if (uniform01(key, RngPurpose::kToken, 0, static_cast<std::uint32_t>(i)) < ratio) masks.counted.push_back(i);
  if (masks.counted.empty()) masks.counted.push_back(first);
  return masks;
}

CalibrationCanvas unmasked(std::vector<TokenId> tokens) {
  CalibrationCanvas canvas;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    canvas.scored.push_back(static_cast<std::int32_t>(i));
    canvas.targets.push_back(tokens[i + 1]);
  }
  canvas.tokens = std::move(tokens);
  return canvas;
}

CalibrationCanvas masked(std::vector<TokenId> tokens, std::int32_t prompt, const ModelDesc& desc,
                         const CanvasOptions& options, std::uint32_t number) {
  const auto length = static_cast<std::int32_t>(tokens.size()) - prompt;
  const Masks masks = draw_masks(length, options, number);
  CalibrationCanvas canvas;
  for (const std::int32_t i : masks.counted) {
    TokenId& token = tokens[static_cast<std::size_t>(prompt + i)];
    if (prompt + i >= desc.logit_shift) {
      canvas.scored.push_back(prompt + i - desc.logit_shift);
      canvas.targets.push_back(token);
    }
    token = *desc.mask;
  }
  std::fill(tokens.begin() + prompt + masks.rest, tokens.end(), *desc.mask);
  if (options.masks == CalibrationMasks::kDecoding) {
    const auto most = std::min<std::int64_t>(desc.context_length, std::int64_t{prompt} + options.canvas);
    if (const auto size = static_cast<std::size_t>(most); size > tokens.size()) tokens.resize(size, *desc.mask);
  }
  canvas.tokens = std::move(tokens);
  return canvas;
}

}  // namespace

Expected<std::vector<CalibrationCanvas>> make_canvases(const std::vector<CalibrationText>& texts, const ModelDesc& desc,
                                                       const CanvasOptions& options) {
  if (texts.empty()) return Error{ErrorCode::kUsage, "there is nothing to calibrate with", "--calibration", ""};
  if (options.masks != CalibrationMasks::kNone && !desc.mask)
    return Error{ErrorCode::kUsage, "the model has no mask token", "--calibration-masks", "none"};
  std::vector<CalibrationCanvas> canvases;
  for (const CalibrationText& text : texts)
    for (std::int32_t copy = 0; copy < options.per_text; ++copy) {
      std::vector<TokenId> tokens = text.prompt;
      tokens.insert(tokens.end(), text.answer.begin(), text.answer.end());
      tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(desc.context_length)));
      const std::size_t prompt = std::min(text.prompt.size(), tokens.size());
      if (tokens.size() < 2) continue;
      if (options.masks == CalibrationMasks::kNone || prompt == tokens.size())
        canvases.push_back(unmasked(std::move(tokens)));
      else
        canvases.push_back(masked(std::move(tokens), static_cast<std::int32_t>(prompt), desc, options,
                                  static_cast<std::uint32_t>(canvases.size())));
    }
  if (canvases.empty()) return Error{ErrorCode::kUsage, "all texts are shorter than two tokens", "--calibration", ""};
  return canvases;
}

}  // namespace dllm
