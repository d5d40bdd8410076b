// A DiffusionGemma that reads images, against an independent tower, network and sampler (PyTorch, float64;
// golden/models/gemma_vision.py, which is itself checked against transformers): features of an image, passes over a
// prompt with it, whole generations; and the conversion of its checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/generate.h"
#include "engine/resolve.h"
#include "engine/vision_tower.h"
#include "golden_model.h"
#include "image/image.h"
#include "model/model.h"
#include "model/vision.h"
#include "quant/write_vision.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::deviation;
using test::GoldenModel;

constexpr TokenId kImageToken = 263;

const GoldenModel& golden() {
  static const GoldenModel model("gemma-vision");
  return model;
}

/// gemma_vision.py's pixels().
RgbImage image_of(const json& description) {
  RgbImage image{description["image"]["width"], description["image"]["height"], {}};
  const std::int64_t count = std::int64_t{image.width} * image.height * 3;
  for (std::int64_t i = 0; i < count; ++i)
    image.pixels.push_back(static_cast<std::uint8_t>(127 + 64 * test::tiny_value("image", i)));
  return image;
}

std::unique_ptr<VisionTower> tower_of(const std::string& path, int threads = 2) {
  auto source = vision_source(path);
  if (!source) throw std::runtime_error(source.error().message());
  auto model = VisionModel::load(*std::move(source));
  if (!model) throw std::runtime_error(model.error().message());
  CpuOptions options;
  options.threads = threads;
  return *VisionTower::create(*model, options);
}

/// The golden file begins with the features.
std::vector<double> golden_numbers(bool features) {
  const auto middle = golden().logits().begin() + 6 * 64;
  return features ? std::vector(golden().logits().begin(), middle) : std::vector(middle, golden().logits().end());
}

/// The golden model, its prompt and its image.
struct Reader {
  explicit Reader(int threads = 2) : model(*Model::load(golden().path(), Log())) {
    CpuOptions options;
    options.threads = threads;
    backend = *CpuBackend::create(
        model->desc(), [this](StepShape shape) { return model->build(shape); }, model->weights(), options);
    cache = *backend->make_cache(64);
    const json& description = golden().description();
    auto embedding =
        std::make_shared<ImageEmbedding>(ImageEmbedding{kFirstImageId, description["image"]["tokens"], 64, {}});
    embedding->rows = *tower_of(golden().path(), threads)->embed(image_of(description));
    images = std::make_shared<const PromptImages>(
        kImageToken, std::vector<PromptImages::Image>{{description["image"]["begin"], embedding}});
    prompt = golden().ids();
    prompt[description["image"]["begin"].get<std::size_t>()] = kFirstImageId;
  }

  std::vector<float> pass(SequenceStep step) {
    step.cache = cache.get();
    for (std::size_t i = 0; i < step.plan.rows.size(); ++i) step.plan.scored.push_back(static_cast<std::int32_t>(i));
    step.request.logits = true;
    return (*backend->forward({&step, 1}))[0].logits;
  }
  /// The prompt from `first` on.
  std::vector<float> context(Position first) {
    SequenceStep step{nullptr, {}, {}, {}};
    const PromptImages::Image& image = images->images().front();
    const PositionRange group = image.positions();
    for (Position p = first; p < static_cast<Position>(prompt.size()); ++p) {
      step.plan.rows.push_back({p, prompt[static_cast<std::size_t>(p)]});
      if (group.contains(p))
        step.plan.given.push_back({p - first, image.embedding->rows.data() + (p - group.begin) * 64});
    }
    step.plan.groups = {group};
    step.plan.visible = {{0, static_cast<Position>(prompt.size())}};
    step.plan.causal_block = 1;
    return pass(step);
  }
  std::vector<float> canvas(const std::vector<RowMixture>& mixtures = {}) {
    SequenceStep step{nullptr, {}, {}, {}};
    auto position = static_cast<Position>(prompt.size());
    for (const json& token : golden().description()["canvas"]) step.plan.rows.push_back({position++, token});
    step.plan.visible = {{0, position}};
    step.plan.region = Region::kCanvas;
    step.plan.mixtures = mixtures;
    return pass(step);
  }

  std::shared_ptr<const Model> model;
  std::unique_ptr<CpuBackend> backend;
  std::unique_ptr<KvCache> cache;
  std::shared_ptr<const PromptImages> images;
  std::vector<TokenId> prompt;
};

std::vector<RowMixture> fed_back(const std::vector<float>& logits, double temperature) {
  std::vector<RowMixture> mixtures;
  const std::size_t vocab = logits.size() / 8;
  for (std::size_t r = 0; r < 8; ++r) {
    double sum = 0;
    std::vector<double> weights;
    for (std::size_t v = 0; v < vocab; ++v)
      sum += weights.emplace_back(std::exp(static_cast<double>(logits[r * vocab + v]) / temperature));
    mixtures.push_back({static_cast<std::int32_t>(r), {}});
    for (std::size_t v = 0; v < vocab; ++v)
      mixtures.back().tokens.push_back({static_cast<TokenId>(v), static_cast<float>(weights[v] / sum)});
  }
  return mixtures;
}

TEST(GemmaVision, FeaturesAgreeToOneInTenThousand) {
  const RgbImage image = image_of(golden().description());
  const auto features = tower_of(golden().path())->embed(image);
  ASSERT_TRUE(features) << features.error().message();
  EXPECT_LT(deviation(*features, golden_numbers(true)), 1e-4);
  EXPECT_EQ(*tower_of(golden().path(), 1)->embed(image), *features);
}

TEST(GemmaVision, PassesAfterAnImageAgreeToOneInTenThousand) {
  Reader reader;
  std::vector<float> all = reader.context(0);
  const std::vector<float> first = reader.canvas();
  const std::vector<float> second = reader.canvas(fed_back(first, golden().description()["temperature"].get<double>()));
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  EXPECT_LT(deviation(all, golden_numbers(false)), 1e-4);
}

TEST(GemmaVision, RowsOfAnImageMayComeFromACache) {
  Reader reader;
  const std::vector<float> whole = reader.context(0);
  const std::size_t vocab = whole.size() / reader.prompt.size();
  for (const Position first : {3, 7, 9, 12, 13}) {
    const std::vector<float> rest = reader.context(first);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + static_cast<std::ptrdiff_t>(first * vocab)))
        << first;
  }
}

TEST(GemmaVision, GenerationsAreTokenForTokenThoseOfTheReference) {
  for (const json& run : golden().description()["generations"]) {
    Reader reader;
    ModelSource source = *open_source(golden().path());
    const json& options = run["options"];
    for (const auto& [key, option] : {std::pair("t_min", "t_min"),
                                      {"t_max", "t_max"},
                                      {"entropy_bound", "entropy_bound"},
                                      {"confidence_threshold", "confidence"}})
      source.metadata.set(std::string("diffusion.eb_") + key, MetaValue::f32(options[option].get<float>()));
    for (const auto& [key, option] : {std::pair("max_steps", "steps"), {"stability_threshold", "stability"}})
      source.metadata.set(std::string("diffusion.eb_") + key, MetaValue::u32(options[option].get<std::uint32_t>()));
    const auto model = *Model::load(std::move(source), Log());
    const auto backend =
        *CpuBackend::create(model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), {});
    GenerateOptions wanted;
    wanted.length = 8 * run["canvases"].get<std::int32_t>();
    wanted.seed = options["seed"].get<std::uint64_t>();
    const auto answer =
        generate({*backend}, reader.prompt, *resolve_options(wanted, model->desc()), {.images = reader.images});
    ASSERT_TRUE(answer) << answer.error().message();
    const auto ids = run["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(answer->ids, ids) << options.dump();
    EXPECT_EQ(answer->prompt_ids, golden().ids()) << "people see the image token";
    const auto lost = generate({*backend}, reader.prompt, *resolve_options(wanted, model->desc()), {});
    EXPECT_FALSE(lost) << "the ids of an image mean nothing without it";
    const PromptImages::Image& own = reader.images->images().front();
    const PromptImages shifted(kImageToken, {{own.begin + 1, own.embedding}}),
        beyond(kImageToken, {{90, own.embedding}});
    for (const PromptImages& one : {shifted, beyond}) {
      const auto foreign = generate({*backend}, reader.prompt, *resolve_options(wanted, model->desc()),
                                    {.images = std::make_shared<const PromptImages>(one)});
      ASSERT_FALSE(foreign);
      EXPECT_NE(foreign.error().message().find("not this prompt's"), std::string::npos) << foreign.error().message();
    }
  }
}

TEST(GemmaVision, GgufsHoldTheSameTower) {
  const ModelSource source = *vision_source(golden().path());
  const test::TempDirectory directory;
  const RgbImage image = image_of(golden().description());
  const std::vector<float> expected = *tower_of(golden().path())->embed(image);
  for (const auto& [type, bound] : {std::pair("F32", 0.0), {"BF16", 0.05}, {"Q4_K_M", 0.01}, {"Q8_0", 0.05}}) {
    const std::string path = directory.file(std::string(type) + ".gguf");
    const auto written = write_vision(source, type, 2, true, path);
    ASSERT_TRUE(written) << written.error().message();
    const std::vector<float> features = *tower_of(path)->embed(image);
    EXPECT_LE(deviation(features, {expected.begin(), expected.end()}), bound) << type;
  }
  const ModelSource file = *vision_source(directory.file("Q8_0.gguf"));
  EXPECT_EQ(file.find("v.patch_embd.weight")->shape, (Shape{4, 4, 3, 32})) << "as llama.cpp has it";
  EXPECT_EQ(file.find("v.patch_embd.weight")->type, TensorType::kF32);
  EXPECT_EQ(file.find("v.blk.1.attn_q.weight")->type, TensorType::kQ8_0);
  EXPECT_EQ(file.find("v.blk.1.ffn_down.weight")->type, TensorType::kF16) << "48 columns are no blocks of 32";
  EXPECT_EQ(file.find("v.blk.1.ln1.weight")->type, TensorType::kF32);
  EXPECT_EQ(**file.metadata.string("clip.vision.projector_type"), "gemma4v");
}

TEST(GemmaVision, TowersThatItCannotRunAreRefused) {
  const auto error = [](const GoldenModel::Damage& damage) {
    const GoldenModel damaged("gemma-vision", damage);
    auto source = vision_source(damaged.path());
    if (!source) return source.error().message();
    const auto model = VisionModel::load(*std::move(source));
    return model ? std::string() : model.error().message();
  };
  using Checkpoint = test::HfCheckpoint;
  const auto config = [&](const char* key, const json& value) {
    return error([&](Checkpoint& c) { c.config["vision_config"][key] = value; });
  };
  const std::string tower = "model.encoder.vision_tower.";
  EXPECT_EQ(error({}), "");
  EXPECT_NE(config("use_clipped_linears", true).find("use_clipped_linears"), std::string::npos);
  EXPECT_NE(config("hidden_activation", "silu").find("hidden_activation"), std::string::npos);
  EXPECT_NE(config("num_key_value_heads", 1).find("share"), std::string::npos);
  EXPECT_NE(config("rope_parameters", {{"rope_theta", 10.0}}).find("rope_theta"), std::string::npos);
  EXPECT_NE(config("num_attention_heads", 3).find("heads"), std::string::npos);
  EXPECT_NE(config("patch_size", 5).find("patches of 5"), std::string::npos);
  EXPECT_NE(config("num_hidden_layers", 3).find("v.blk.2"), std::string::npos);
  EXPECT_NE(config("hidden_size", 16).find("two tables"), std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.config.erase("vision_config"); }).find("no vision tower"), std::string::npos);
  EXPECT_NE(error([&](Checkpoint& c) { c.set(tower + "head.weight", {4, 4}); }).find("head.weight"), std::string::npos);
  EXPECT_NE(error([&](Checkpoint& c) { c.erase(tower + "std_bias"); }).find("v.std_bias"), std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) {
              c.erase("model.encoder.embed_vision.embedding_projection.weight");
            }).find("projection"),
            std::string::npos);
  ModelSource more = *vision_source(golden().path());
  more.tensors.push_back(more.tensors.front());
  more.tensors.back().name = "v.blk.0.attn_q.bias";
  const auto biased = VisionModel::load(std::move(more));
  ASSERT_FALSE(biased);
  EXPECT_NE(biased.error().message().find("v.blk.0.attn_q.bias"), std::string::npos) << biased.error().message();
  const auto text = VisionModel::load(*open_source(golden().path()));
  EXPECT_NE(text.error().message().find("no vision tower"), std::string::npos) << "the model's own file";
}

/// Sizes by transformers' get_aspect_ratio_preserving_size with patches of 16, squares of 3 and 280 embeddings.
TEST(GemmaVision, SizesAreThoseOfTheProcessor) {
  VisionDesc desc;
  desc.positions = 10240;
  const auto size = [&](std::int32_t width, std::int32_t height) {
    const auto found = vision_image_size(desc, width, height, "image");
    return found ? *found : VisionSize{-1, -1};
  };
  EXPECT_EQ(size(640, 480), (VisionSize{912, 672}));
  EXPECT_EQ(size(480, 640), (VisionSize{672, 912}));
  EXPECT_EQ(size(1, 1), (VisionSize{768, 768}));
  EXPECT_EQ(size(4000, 3000), (VisionSize{912, 672}));
  EXPECT_EQ(size(1000, 3), (VisionSize{13440, 48}));
  EXPECT_EQ(size(2, 900), (VisionSize{48, 13440}));
  EXPECT_EQ(size(640, 480).tokens(desc), 266);
  desc.positions = 100;
  EXPECT_EQ(size(1000, 3), (VisionSize{-1, -1})) << "no column has an embedding beyond the table";
}

}  // namespace
}  // namespace dllm
