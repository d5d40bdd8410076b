#include "engine/vision_tower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"

namespace dllm {
namespace {

/// What a CPU backend asks of a model's description.
ModelDesc backend_desc(const VisionDesc& vision) {
  ModelDesc desc;
  desc.architecture = "clip";
  desc.width = vision.width;
  desc.layers = vision.layers;
  desc.heads = desc.kv_heads = vision.heads;
  desc.head_dim = vision.head_dim;
  desc.ffn_width = vision.ffn_width;
  return desc;
}

}  // namespace

Expected<VisionSize> vision_image_size(const VisionDesc& desc, std::int32_t width, std::int32_t height,
                                       const std::string& name) {
  const std::int32_t side = desc.patch * desc.pool;
  const std::int64_t most_patches = std::int64_t{desc.most_tokens} * desc.pool * desc.pool;
  const double pixels = static_cast<double>(most_patches) * desc.patch * desc.patch;
  const double factor = std::sqrt(pixels / (static_cast<double>(width) * height));
  const auto whole = [side](double ideal) { return static_cast<std::int32_t>(std::floor(ideal / side)) * side; };
  VisionSize size{whole(factor * width), whole(factor * height)};
  // A side that is shorter than a square becomes one.
  const std::int32_t longest = desc.most_tokens * side;
  if (size.width == 0 && size.height > 0) size = {side, std::min(height / width * side, longest)};
  if (size.height == 0 && size.width > 0) size = {std::min(width / height * side, longest), side};
  if (size.width > 0 && size.height > 0 && static_cast<double>(size.width) * size.height <= pixels &&
      std::max(size.width, size.height) / desc.patch <= desc.positions)
    return size;
  return Error{ErrorCode::kUsage, fmt::format("the model has no size for images of {} x {} pixels", width, height),
               name, "cut the image, or make its sides more alike"};
}

Expected<std::unique_ptr<VisionTower>> VisionTower::create(std::shared_ptr<const VisionModel> model,
                                                           const CpuOptions& options) {
  std::unique_ptr<VisionTower> tower(new VisionTower(std::move(model)));
  const VisionModel& weights = *tower->model_;
  CpuOptions own = options;
  own.weight_cache = {};
  own.profile = nullptr;
  own.progress = {};
  own.kv = CpuKvType::kF32;
  const VisionDesc& desc = weights.desc;
  DLLM_TRY(tower->tower_, CpuBackend::create(
                              backend_desc(desc), [desc](StepShape shape) { return build_vision_tower(desc, shape); },
                              weights.tower, own));
  DLLM_TRY(tower->projector_,
           CpuBackend::create(
               backend_desc(desc), [desc](StepShape shape) { return build_vision_projector(desc, shape); },
               weights.projector, own));
  return tower;
}

Expected<std::vector<float>> VisionTower::embed(const RgbImage& image) {
  const std::int32_t columns = image.width / desc().patch;
  const std::int64_t inputs = desc().patch_values() + desc().width;
  DLLM_TRY(const std::vector<float> rows, run(*tower_, patches(image), inputs, columns));
  return run(*projector_, pooled(rows, columns), desc().width, 0);
}

/// What the graph of the tower reads: pixels of a patch by colour, then the embeddings of its column and line.
std::vector<float> VisionTower::patches(const RgbImage& image) const {
  const std::int32_t side = desc().patch, columns = image.width / side, lines = image.height / side;
  std::vector<float> out;
  out.reserve(to_size(std::int64_t{columns} * lines * (desc().patch_values() + desc().width)));
  for (std::int32_t line = 0; line < lines; ++line)
    for (std::int32_t column = 0; column < columns; ++column) {
      for (std::int32_t colour = 0; colour < 3; ++colour)
        for (std::int32_t y = line * side; y < (line + 1) * side; ++y)
          for (std::int32_t x = column * side; x < (column + 1) * side; ++x) {
            const auto at = to_size((std::int64_t{y} * image.width + x) * 3 + colour);
            out.push_back(2 * (static_cast<float>(image.pixels[at]) * (1.f / 255) - 0.5f));
          }
      const std::vector<float> place = model_->place(column, line);
      out.insert(out.end(), place.begin(), place.end());
    }
  return out;
}

/// Means of squares of patches, times sqrt(width); shifted and scaled, if the tower standardizes.
std::vector<float> VisionTower::pooled(const std::vector<float>& rows, std::int32_t columns) const {
  const auto width = to_size(desc().width);
  const std::int32_t pool = desc().pool;
  const auto lines = static_cast<std::int32_t>(rows.size() / width / to_size(columns));
  const float share = 1.f / static_cast<float>(pool * pool);
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(width)));
  std::vector<float> out(to_size(std::int64_t{columns / pool} * (lines / pool)) * width);
  float* to = out.data();
  for (std::int32_t line = 0; line < lines; line += pool)
    for (std::int32_t column = 0; column < columns; column += pool, to += width) {
      for (std::int32_t y = line; y < line + pool; ++y)
        for (std::int32_t x = column; x < column + pool; ++x) {
          const float* const from = rows.data() + to_size(std::int64_t{y} * columns + x) * width;
          for (std::size_t i = 0; i < width; ++i) to[i] += from[i] * share;
        }
      for (std::size_t i = 0; i < width; ++i) to[i] *= root;
      if (desc().standardizes)
        for (std::size_t i = 0; i < width; ++i) to[i] = (to[i] - model_->shift[i]) * model_->scale[i];
    }
  return out;
}

/// One pass over rows of `width` inputs, each of which sees all of them.
Expected<std::vector<float>> VisionTower::run(CpuBackend& backend, std::vector<float> inputs, std::int64_t width,
                                              std::int32_t columns) {
  const auto rows = static_cast<Position>(inputs.size() / to_size(width));
  DLLM_TRY(const std::unique_ptr<KvCache> cache, backend.make_cache(rows));
  SequenceStep step{cache.get(), {}, {}, std::nullopt};
  for (Position row = 0; row < rows; ++row) step.plan.rows.push_back({row, 0});
  step.plan.visible = {{0, rows}};
  step.plan.columns = columns;
  step.plan.hidden = std::move(inputs);
  step.request.hidden = true;
  DLLM_TRY(std::vector<Scores> scores, backend.forward({&step, 1}));
  return std::move(scores.front().hidden);
}

}  // namespace dllm
