#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/prompt_images.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "dllm/stop_token.h"
#include "engine/vision_tower.h"
#include "image/image.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// Images of prompts: decodes and embeds them, and puts them where the chat template wrote its image token. What was
/// embedded lately is kept, so that an image of an earlier turn is not computed again. Thread-safe.
class Images {
 public:
  /// Loads the tower of `path` (vision_source()) for a model whose embeddings have `width` values. Errors: those of
  /// VisionModel::load(); kMismatch (another model's tower); kUnsupported (the vocabulary has no image tokens).
  static Expected<std::unique_ptr<Images>> load(const std::string& path, std::int64_t width, const Tokenizer& tokenizer,
                                                const CpuOptions& options);

  /// The prompt with its images, in the order of their tokens: each token becomes the begin of an image, its positions
  /// and its end. No image is embedded before all are known to fit into `context` positions. Errors: kUsage (more or
  /// fewer images than tokens, too many of them, or of positions), kCancelled (stopped before some image), and those of
  /// decode_image(), vision_image_size() and VisionTower::embed().
  Expected<TemplatedPrompt> place(TemplatedPrompt prompt, const std::vector<std::string>& files, std::int64_t context,
                                  const StopToken& stop);

  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return tower_->files(); }

 private:
  struct Tokens {
    TokenId image = 0, begin = 0, end = 0;
  };
  struct Sized {
    RgbImage image;  ///< as the tower reads it
    std::int32_t count = 0;
    std::string name;
  };
  struct Kept {
    RgbImage image;
    std::shared_ptr<const ImageEmbedding> embedding;
    std::int64_t bytes() const;
  };

  Images(std::unique_ptr<VisionTower> tower, Tokens tokens) : tower_(std::move(tower)), tokens_(tokens) {}
  Expected<Sized> sized(const std::string& file, const std::string& name);
  /// `text`: positions of the prompt with one for each image.
  Expected<std::vector<Sized>> fitting(const std::vector<std::string>& files, std::size_t text, std::int64_t context,
                                       const StopToken& stop);
  Expected<std::shared_ptr<const ImageEmbedding>> embedding(Sized sized);
  void keep(Kept kept);

  std::mutex mutex_;
  std::unique_ptr<VisionTower> tower_;
  const Tokens tokens_;
  TokenId next_ = kFirstImageId;
  std::list<Kept> kept_;  ///< latest first
};

}  // namespace dllm
