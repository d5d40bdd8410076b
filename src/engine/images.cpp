#include "engine/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/to_size.h"
#include "base/try.h"
#include "image/resize.h"

namespace dllm {
namespace {

/// Pixels and embeddings of images that are kept: some fifty images of 280 embeddings.
constexpr std::int64_t kMostKeptBytes = std::int64_t{256} << 20;

constexpr std::size_t kMostImages = 64;  ///< of a prompt

/// The texts of Gemma 4's image tokens: in place of an image, before it, after it.
constexpr const char *kImageText = "<|image|>", *kBeginText = "<|image>", *kEndText = "<image|>";

Expected<TokenId> image_token(const Tokenizer& tokenizer, const char* text) {
  const std::vector<TokenId> ids = tokenizer.encode(text, /*parse_special=*/true);
  if (ids.size() == 1) return ids.front();
  return Error{ErrorCode::kUnsupported, fmt::format("the vocabulary has no token '{}'", text), "--mmproj",
               "the model was not made for images"};
}

Error stopped() { return {ErrorCode::kCancelled, "nobody waits for the images any more", "images", ""}; }

}  // namespace

std::int64_t Images::Kept::bytes() const {
  return static_cast<std::int64_t>(image.pixels.size() + embedding->rows.size() * sizeof(float));
}

Expected<std::unique_ptr<Images>> Images::load(const std::string& path, std::int64_t width, const Tokenizer& tokenizer,
                                               const CpuOptions& options) {
  DLLM_TRY(ModelSource source, vision_source(path));
  DLLM_TRY(std::shared_ptr<const VisionModel> model, VisionModel::load(std::move(source)));
  if (model->desc.text_width != width)
    return Error{
        ErrorCode::kMismatch,
        fmt::format("the tower makes embeddings of {} values, the model has {}", model->desc.text_width, width), path,
        "give the tower of this model"};
  Tokens tokens;
  DLLM_TRY(tokens.image, image_token(tokenizer, kImageText));
  DLLM_TRY(tokens.begin, image_token(tokenizer, kBeginText));
  DLLM_TRY(tokens.end, image_token(tokenizer, kEndText));
  DLLM_TRY(std::unique_ptr<VisionTower> tower, VisionTower::create(std::move(model), options));
  return std::unique_ptr<Images>(new Images(std::move(tower), tokens));
}

Expected<Images::Sized> Images::sized(const std::string& file, const std::string& name) {
  const std::lock_guard lock(mutex_);  // one at a time: an image may take hundreds of megabytes before it is resized
  DLLM_TRY(const RgbImage image, decode_image(file, name));
  DLLM_TRY(const VisionSize size, vision_image_size(tower_->desc(), image.width, image.height, name));
  return Sized{resize_bicubic(image, size.width, size.height), size.tokens(tower_->desc()), name};
}

Expected<std::shared_ptr<const ImageEmbedding>> Images::embedding(Sized sized) {
  const std::lock_guard lock(mutex_);
  RgbImage& image = sized.image;
  const auto found = std::ranges::find(kept_, image, &Kept::image);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().embedding;
  }
  if (next_ == std::numeric_limits<TokenId>::max())
    return Error{ErrorCode::kResource, "the process has read as many images as it can tell apart", sized.name,
                 "restart it"};
  ImageEmbedding made{.id = next_++, .count = sized.count, .width = tower_->desc().text_width, .rows = {}};
  DLLM_TRY(made.rows, tower_->embed(image));
  auto embedding = std::make_shared<const ImageEmbedding>(std::move(made));
  keep({std::move(image), embedding});
  return embedding;
}

/// The latest one is kept, however large.
void Images::keep(Kept kept) {
  kept_.push_front(std::move(kept));
  std::int64_t bytes = 0;
  for (const Kept& one : kept_) bytes += one.bytes();
  for (; kept_.size() > 1 && bytes > kMostKeptBytes; kept_.pop_back()) bytes -= kept_.back().bytes();
}

Expected<std::vector<Images::Sized>> Images::fitting(const std::vector<std::string>& files, std::size_t text,
                                                     std::int64_t context, const StopToken& stop) {
  if (files.size() > kMostImages)
    return Error{ErrorCode::kUsage, fmt::format("{} images; a prompt may have {}", files.size(), kMostImages), "images",
                 "leave some out"};
  std::vector<Sized> all;
  auto positions = static_cast<std::int64_t>(text);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (stop.stop_requested()) return stopped();
    DLLM_TRY(Sized one, sized(files[i], fmt::format("image {}", i + 1)));
    positions += one.count + 1;
    if (positions > context)
      return Error{ErrorCode::kUsage,
                   fmt::format("the prompt has more positions, with its images, than the context of {}", context),
                   one.name, "shorten the prompt or leave images out"};
    all.push_back(std::move(one));
  }
  return all;
}

Expected<TemplatedPrompt> Images::place(TemplatedPrompt prompt, const std::vector<std::string>& files,
                                        std::int64_t context, const StopToken& stop) {
  const auto wanted = std::ranges::count(prompt.ids, tokens_.image);
  if (wanted != static_cast<std::ptrdiff_t>(files.size()))
    return Error{ErrorCode::kUsage,
                 fmt::format("the chat template has places for {} images, and {} are given", wanted, files.size()),
                 "images", "the model's own template writes one for each"};
  DLLM_TRY(std::vector<Sized> all, fitting(files, prompt.ids.size(), context, stop));
  std::vector<TokenId> ids;
  std::vector<PromptImages::Image> images;
  for (const TokenId id : prompt.ids) {
    if (id != tokens_.image) {
      ids.push_back(id);
      continue;
    }
    if (stop.stop_requested()) return stopped();
    DLLM_TRY(auto image, embedding(std::move(all[images.size()])));
    ids.push_back(tokens_.begin);
    ids.push_back(image->id);
    ids.insert(ids.end(), to_size(image->count) - 1, tokens_.image);
    ids.push_back(tokens_.end);
    const auto begin = static_cast<Position>(ids.size()) - 1 - image->count;
    images.push_back({begin, std::move(image)});
  }
  prompt.ids = std::move(ids);
  if (!images.empty()) prompt.images = std::make_shared<const PromptImages>(tokens_.image, std::move(images));
  return prompt;
}

}  // namespace dllm
