#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "dllm/error.h"
#include "image/image.h"
#include "model/vision.h"

namespace dllm {

/// Pixels to which an image is resized.
struct VisionSize {
  std::int32_t width = 0, height = 0;

  /// Embeddings of an image of this size.
  std::int32_t tokens(const VisionDesc& desc) const {
    const std::int32_t side = desc.patch * desc.pool;
    return (width / side) * (height / side);
  }
  friend bool operator==(const VisionSize&, const VisionSize&) = default;
};

/// The largest size of about the same shape with at most VisionDesc::most_tokens embeddings, whose sides are multiples
/// of a pooled square's (transformers' Gemma4ImageProcessor). Errors: kUsage, for a shape that fits no such size.
Expected<VisionSize> vision_image_size(const VisionDesc& desc, std::int32_t width, std::int32_t height,
                                       const std::string& name);

/// Runs a vision tower on the CPU. One call at a time.
class VisionTower {
 public:
  /// Errors: those of CpuBackend::create().
  static Expected<std::unique_ptr<VisionTower>> create(std::shared_ptr<const VisionModel> model,
                                                       const CpuOptions& options);

  const VisionDesc& desc() const { return model_->desc; }
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return model_->source.files; }
  /// The embeddings of an image of vision_image_size(): [tokens][VisionDesc::text_width], squares of patches line by
  /// line. Errors: kResource.
  Expected<std::vector<float>> embed(const RgbImage& image);

 private:
  explicit VisionTower(std::shared_ptr<const VisionModel> model) : model_(std::move(model)) {}
  std::vector<float> patches(const RgbImage& image) const;
  std::vector<float> pooled(const std::vector<float>& rows, std::int32_t columns) const;
  static Expected<std::vector<float>> run(CpuBackend& backend, std::vector<float> inputs, std::int64_t width,
                                          std::int32_t columns);

  std::shared_ptr<const VisionModel> model_;
  std::unique_ptr<CpuBackend> tower_, projector_;
};

}  // namespace dllm
