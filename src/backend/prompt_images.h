#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"

namespace dllm {

/// What a model reads in place of an image: `count` rows of embeddings. Equal images of one model share one.
struct ImageEmbedding {
  TokenId id = 0;          ///< stands for the image at its first position; beyond every vocabulary
  std::int32_t count = 0;  ///< positions
  std::int64_t width = 0;
  std::vector<float> rows;  ///< [count][width]
};

/// Ids from here on name images. Only the first position of an image has one, the others its model's image token:
/// caches compare prompts from their beginning, so a prefix that ends inside of an image is still told from others.
inline constexpr TokenId kFirstImageId = TokenId{1} << 30;

/// The images of a prompt, by position.
class PromptImages {
 public:
  struct Image {
    Position begin = 0;
    std::shared_ptr<const ImageEmbedding> embedding;

    PositionRange positions() const { return {begin, begin + embedding->count}; }
  };

  PromptImages(TokenId token, std::vector<Image> images) : token_(token), images_(std::move(images)) {}

  /// Ascending, disjoint.
  std::span<const Image> images() const { return images_; }
  /// The prompt as people read it: the image token, where the model reads an image.
  void show(std::span<TokenId> prompt) const {
    for (const Image& image : images_) prompt[static_cast<std::size_t>(image.begin)] = token_;
  }

 private:
  TokenId token_;
  std::vector<Image> images_;
};

}  // namespace dllm
