#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "graph/graph.h"
#include "model/source.h"
#include "model/weights.h"

namespace dllm {

/// Gemma 4's vision tower (transformers' models/gemma4; llama.cpp's projector "gemma4v"): square patches of an image of
/// any shape, learned embeddings of columns and lines, layers that see all patches, means of squares of patches, and a
/// projection into the embeddings of the language model.
struct VisionDesc {
  std::int64_t width = 0, layers = 0, heads = 0, head_dim = 0, ffn_width = 0;
  std::int64_t text_width = 0;     ///< of the embeddings that it makes
  std::int64_t positions = 0;      ///< columns or lines that have an embedding
  std::int32_t patch = 16;         ///< pixels a side
  std::int32_t pool = 3;           ///< patches a side of the square that becomes one embedding
  std::int32_t most_tokens = 280;  ///< embeddings of an image, at most
  float norm_eps = 1e-6f;
  bool standardizes = false;  ///< means are shifted and scaled before the projection

  std::int64_t patch_values() const { return std::int64_t{3} * patch * patch; }
  friend bool operator==(const VisionDesc&, const VisionDesc&) = default;
};

/// The base of its RoPE, which no file names.
inline constexpr float kVisionRopeTheta = 100.f;

/// The description and the weights of a tower: views of the source's bytes.
struct VisionModel {
  ModelSource source;
  VisionDesc desc;
  Weights tower, projector;         ///< by the weight ids of the two graphs below
  WeightView positions;             ///< {width, positions, 2}: columns, then lines
  std::vector<float> shift, scale;  ///< of VisionDesc::standardizes

  /// `source`: of vision_source(). Errors: kInvalidFile, kUnsupported.
  static Expected<std::shared_ptr<const VisionModel>> load(ModelSource source);

  /// The embedding of a patch's place, `width` values.
  std::vector<float> place(std::int64_t column, std::int64_t line) const;
};

/// A vision tower in GGUF terms: a file in llama.cpp's form (`general.architecture` clip), or the vision part of a
/// Hugging Face directory. Errors: kInvalidFile (it has none), kUnsupported (another projector, clipped products), kIo.
Expected<ModelSource> vision_source(const std::string& path);

/// One image: rows are its patches, line by line, at positions 0, 1, ... of StepPlan::columns. Reads by op::HiddenIn
/// VisionDesc::patch_values() pixels as 2 v - 1, v in [0, 1] (first all reds, line by line, then greens and blues), and
/// `width` values of the embeddings of column and line. Hands out the last layer's rows.
Graph build_vision_tower(const VisionDesc& desc, StepShape shape);
/// Reads `width` values per row, hands out `text_width`.
Graph build_vision_projector(const VisionDesc& desc, StepShape shape);

}  // namespace dllm
