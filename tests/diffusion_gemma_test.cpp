// DiffusionGemma against an independent forward pass and sampler (PyTorch, float64; golden/models/diffusion_gemma.py,
// which is itself checked against transformers): the tiny Hugging Face checkpoint, the GGUF converted from it, single
// passes in both regions, and whole generations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "dllm/model.h"
#include "engine/generate.h"
#include "engine/resolve.h"
#include "golden_model.h"
#include "model/model.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::deviation;
using test::GoldenModel;

/// The golden model with its two regions, ready to run plans.
struct Runner {
  explicit Runner(ModelSource source, int threads = 2) : model(*Model::load(std::move(source), Log())) {
    CpuOptions options;
    options.threads = threads;
    backend = *CpuBackend::create(
        model->desc(), [this](StepShape shape) { return model->build(shape); }, model->weights(), options);
    cache = *backend->make_cache(64);
  }

  /// Logits of `ids` at positions first, ..., each seeing everything up to the end.
  std::vector<float> pass(const std::vector<std::int32_t>& ids, Position first, Region region,
                          const std::vector<RowMixture>& mixtures = {}) {
    SequenceStep step{cache.get(), {}, {}, {}};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      step.plan.rows.push_back({first + static_cast<Position>(i), ids[i]});
      step.plan.scored.push_back(static_cast<std::int32_t>(i));
    }
    step.plan.visible = {{0, first + static_cast<Position>(ids.size())}};
    step.plan.causal_block = region == Region::kContext ? 1 : 0;
    step.plan.region = region;
    step.plan.mixtures = mixtures;
    step.request.logits = true;
    return (*backend->forward({&step, 1}))[0].logits;
  }

  std::shared_ptr<const Model> model;
  std::unique_ptr<CpuBackend> backend;
  std::unique_ptr<KvCache> cache;
};

ModelSource source_of(const std::string& path) {
  auto source = open_source(path);
  if (!source) throw std::runtime_error(source.error().message());
  return *std::move(source);
}

std::vector<RowMixture> softmax_of(const std::vector<float>& logits, std::size_t rows, double temperature) {
  std::vector<RowMixture> mixtures;
  const std::size_t vocab = logits.size() / rows;
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    mixtures.push_back({static_cast<std::int32_t>(r), {}});
    for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[r * vocab + v]) / temperature);
    for (std::size_t v = 0; v < vocab; ++v)
      mixtures.back().tokens.push_back(
          {static_cast<TokenId>(v),
           static_cast<float>(std::exp(static_cast<double>(logits[r * vocab + v]) / temperature) / sum)});
  }
  return mixtures;
}

/// Prompt, canvas, and canvas with its own prediction fed back, in sequence.
std::vector<float> all_passes(Runner& runner, const json& golden) {
  const auto prompt = golden["input_ids"].get<std::vector<std::int32_t>>();
  const auto canvas = golden["canvas"].get<std::vector<std::int32_t>>();
  const auto end = static_cast<Position>(prompt.size());
  std::vector<float> all = runner.pass(prompt, 0, Region::kContext);
  const std::vector<float> first = runner.pass(canvas, end, Region::kCanvas);
  const auto fed_back = softmax_of(first, canvas.size(), golden["temperature"].get<double>());
  const std::vector<float> second = runner.pass(canvas, end, Region::kCanvas, fed_back);
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

TEST(DiffusionGemma, PassesOfBothRegionsAgreeToOneInTenThousand) {
  const GoldenModel golden("diffusion-gemma");
  Runner runner(source_of(golden.path()));
  EXPECT_LT(deviation(all_passes(runner, golden.description()), golden.logits()), 1e-4);
}

TEST(DiffusionGemma, LogitsReadAPromptCausallyAndACanvasOnRequest) {
  const GoldenModel golden("diffusion-gemma");
  const auto model = LanguageModel::load(golden.path());
  ASSERT_TRUE(model) << model.error().message();
  auto ids = golden.ids();
  const auto rows = ids.size();
  const auto canvas = golden.description()["canvas"].get<std::vector<std::int32_t>>();
  ids.insert(ids.end(), canvas.begin(), canvas.end());
  const auto both = model->logits(ids, false, static_cast<std::int32_t>(canvas.size()));
  ASSERT_TRUE(both) << both.error().message();
  auto expected = golden.logits();  // prompt, canvas, canvas with its prediction fed back
  const std::size_t vocab = both->size() / ids.size();
  expected.resize(both->size());
  EXPECT_LT(deviation(*both, expected), 1e-4);
  const auto prompt = model->logits(golden.ids(), false);
  ASSERT_TRUE(prompt) << prompt.error().message();
  expected.resize(rows * vocab);
  EXPECT_LT(deviation(*prompt, expected), 1e-4);
  EXPECT_FALSE(model->logits(golden.ids(), false, static_cast<std::int32_t>(rows) + 1));
  EXPECT_FALSE(LanguageModel::load("")->logits({1, 2, 3}, false, 2)) << "LLaDA has no canvases";
}

TEST(DiffusionGemma, ScaledPositionsAreRefused) {
  const GoldenModel golden("diffusion-gemma");
  for (const char* scaling : {"linear", "yarn"}) {
    LoadOptions load;
    load.rope_scaling = scaling;
    load.rope_scale = 2;
    load.warnings = false;
    const auto asked = LanguageModel::load(golden.path(), load);
    ASSERT_FALSE(asked) << scaling;
    EXPECT_EQ(asked.error().code, ErrorCode::kUnsupported) << asked.error().message();
    ModelSource source = source_of(golden.path());
    source.metadata.set("diffusion-gemma.rope.scaling.type", MetaValue::string(scaling));
    source.metadata.set("diffusion-gemma.rope.scaling.factor", MetaValue::f32(2));
    const auto named = Model::load(std::move(source), Log([](LogLevel, const std::string&) {}));
    ASSERT_FALSE(named) << scaling;
    EXPECT_NE(named.error().what.find("positions are scaled"), std::string::npos) << named.error().message();
  }
}

TEST(DiffusionGemma, PromptsMayBeReadInParts) {
  const GoldenModel golden("diffusion-gemma");
  Runner whole(source_of(golden.path())), parts(source_of(golden.path()), 1);
  const auto ids = golden.ids();
  const std::vector<float> expected = whole.pass(ids, 0, Region::kContext);
  std::vector<float> actual;
  for (std::size_t begin = 0; begin < ids.size(); begin += 5) {
    const auto at = ids.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto part = parts.pass({at, at + static_cast<std::ptrdiff_t>(std::min<std::size_t>(5, ids.size() - begin))},
                                 static_cast<Position>(begin), Region::kContext);
    actual.insert(actual.end(), part.begin(), part.end());
  }
  EXPECT_EQ(actual, expected);
}

TEST(DiffusionGemma, GgufsHoldTheSameModel) {
  const GoldenModel golden("diffusion-gemma");
  Runner from_hf(source_of(golden.path())), from_gguf(source_of(golden.write_gguf("F32")));
  EXPECT_EQ(all_passes(from_hf, golden.description()), all_passes(from_gguf, golden.description()));
  Runner quantized(source_of(golden.write_gguf("Q8_0")));
  const auto logits = all_passes(quantized, golden.description());
  EXPECT_TRUE(std::ranges::all_of(logits, [](float z) { return std::isfinite(z); }));
  std::map<std::string, TensorType> types;
  for (const SourceTensor& tensor : quantized.model->tensors()) types[tensor.name] = tensor.type;
  ASSERT_TRUE(types.contains("blk.1.ffn_gate_up_exps.weight")) << "fused, as llama.cpp has it";
  EXPECT_EQ(types["blk.1.ffn_gate_up_exps.weight"], TensorType::kQ8_0);
  EXPECT_EQ(types["blk.1.ffn_gate_inp.weight"], TensorType::kF32);
  EXPECT_TRUE(types.contains("blk.0.attn_v.weight"));
  EXPECT_FALSE(types.contains("blk.1.attn_v.weight"));
}

TEST(DiffusionGemma, ReadsItsKeysAndRefusesWhatItCannotRun) {
  const GoldenModel golden("diffusion-gemma");
  const ModelSource sound = source_of(golden.path());
  const auto desc = (*Model::load(sound, Log()))->desc();
  EXPECT_EQ(desc.canvas.length, 8);
  EXPECT_EQ(desc.canvas.max_steps, 48);
  EXPECT_EQ(desc.sliding.window, 6);
  EXPECT_EQ(desc.sliding.layers, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(desc.sliding.kv_heads, 2);
  EXPECT_EQ(desc.kv_heads, 1);
  EXPECT_FALSE(desc.autoregressive());
  const auto error = [&](const char* key, std::optional<MetaValue> value) {
    ModelSource damaged = sound;
    if (value)
      damaged.metadata.set(key, *value);
    else
      damaged.metadata.erase(key);
    const auto model = Model::load(std::move(damaged), Log());
    return model ? std::string() : model.error().message();
  };
  EXPECT_NE(error("diffusion.canvas_length", {}).find("diffusion.canvas_length"), std::string::npos);
  EXPECT_NE(error("diffusion.canvas_length", MetaValue::u32(0)).find("out of range"), std::string::npos);
  EXPECT_NE(error("diffusion.eb_t_min", MetaValue::f32(2.f)).find("eb_t_max"), std::string::npos);
  EXPECT_NE(error("diffusion-gemma.attention.sliding_window_pattern", MetaValue::bools({true})).find("does not name"),
            std::string::npos);
  EXPECT_NE(error("diffusion-gemma.attention.head_count_kv", MetaValue::i32s({2, 1, 1, 1})).find("others of its kind"),
            std::string::npos);
  EXPECT_NE(error("diffusion-gemma.attention.head_count_kv", MetaValue::i32s({3, 1, 3, 1})).find("not a multiple"),
            std::string::npos);
  EXPECT_NE(error("diffusion-gemma.attention.shared_kv_layers", MetaValue::u32(2)).find("shared_kv_layers"),
            std::string::npos);
  EXPECT_NE(error("diffusion-gemma.attention.causal", MetaValue::boolean(true)).find("autoregressive"),
            std::string::npos);
  EXPECT_EQ(error("tokenizer.ggml.mask_token_id", MetaValue::u32(4)), "") << "community files name one";
}

TEST(DiffusionGemma, TheSamplerComesFromGenerationConfig) {
  const GoldenModel golden("diffusion-gemma", [](test::HfCheckpoint& c) {
    c.generation_config = {{"max_denoising_steps", 24},
                           {"t_min", 0.25},
                           {"t_max", 0.5},
                           {"stability_threshold", 2},
                           {"confidence_threshold", 0.125},
                           {"sampler_config", {{"_cls_name", "EntropyBoundSamplerConfig"}, {"entropy_bound", 0.375}}}};
  });
  const CanvasDesc canvas = (*Model::load(golden.write_gguf("F32"), Log()))->desc().canvas;
  EXPECT_EQ(canvas.max_steps, 24);
  EXPECT_EQ(canvas.t_min, 0.25);
  EXPECT_EQ(canvas.t_max, 0.5);
  EXPECT_EQ(canvas.stability, 2);
  EXPECT_EQ(canvas.confidence, 0.125);
  EXPECT_EQ(canvas.entropy_bound, 0.375);
  const GoldenModel other("diffusion-gemma", [](test::HfCheckpoint& c) {
    c.generation_config = {{"sampler_config", {{"_cls_name", "AnotherSamplerConfig"}}}};
  });
  const auto refused = source_from_hf(other.path());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("AnotherSamplerConfig"), std::string::npos);
}

TEST(DiffusionGemma, ImportChecksItsConfiguration) {
  using Checkpoint = test::HfCheckpoint;
  const auto error = [](const GoldenModel::Damage& damage) {
    const GoldenModel golden("diffusion-gemma", damage);
    const auto source = source_from_hf(golden.path());
    return source ? std::string() : source.error().message();
  };
  const auto text = [&](const char* key, const json& value) {
    return error([&](Checkpoint& c) { c.config["text_config"][key] = value; });
  };
  EXPECT_NE(text("hidden_activation", "silu").find("hidden_activation"), std::string::npos);
  EXPECT_NE(text("use_bidirectional_attention", "all").find("use_bidirectional_attention"), std::string::npos);
  EXPECT_NE(text("layer_types", {"full_attention"}).find("layer_types"), std::string::npos);
  EXPECT_NE(text("rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}).find("yarn"), std::string::npos);
  EXPECT_NE(text("num_experts", 4).find("shape"), std::string::npos);
  EXPECT_NE(error([](Checkpoint& c) { c.config.erase("text_config"); }).find("text_config"), std::string::npos);
  EXPECT_NE(
      error([](Checkpoint& c) { c.erase("model.decoder.self_conditioning.up_proj.weight"); }).find("self_cond_up"),
      std::string::npos);
  // The vision tower is left out; the per-layer keys of newer transformers have the meaning of the published keys.
  EXPECT_EQ(error([](Checkpoint& c) {
              c.set("model.encoder.vision_tower.patch_embedder.input_proj.weight", {4, 4});
              c.config["text_config"].erase("global_head_dim");
              c.config["text_config"].erase("num_global_key_value_heads");
              const json own = {{"head_dim", 32}, {"num_key_value_heads", 1}};
              c.config["text_config"]["per_layer_config"] = {{"1", own}, {"3", own}};
            }),
            "");
}

/// The golden model with a run's sampler in its metadata.
ModelSource with_sampler(const GoldenModel& golden, const json& options) {
  ModelSource source = source_of(golden.path());
  Metadata& meta = source.metadata;
  const auto number = [&](const char* key, const char* option) {
    meta.set(key, MetaValue::f32(options[option].get<float>()));
  };
  const auto integer = [&](const char* key, const char* option) {
    meta.set(key, MetaValue::u32(options[option].get<std::uint32_t>()));
  };
  integer("diffusion.eb_max_steps", "steps");
  number("diffusion.eb_t_min", "t_min");
  number("diffusion.eb_t_max", "t_max");
  if (options.contains("entropy_bound")) number("diffusion.eb_entropy_bound", "entropy_bound");
  integer("diffusion.eb_stability_threshold", "stability");
  number("diffusion.eb_confidence_threshold", "confidence");
  return source;
}

TEST(DiffusionGemma, GenerationsAreTokenForTokenThoseOfTheReference) {
  const GoldenModel golden("diffusion-gemma");
  const auto prompt = golden.ids();
  for (const json& run : golden.description()["generations"]) {
    Runner runner(with_sampler(golden, run["options"]));
    const auto ids = run["ids"].get<std::vector<std::int32_t>>();
    const auto passes = run["passes"].get<std::vector<std::int32_t>>();
    GenerateOptions options;
    options.length = 8 * run["canvases"].get<std::int32_t>();
    options.seed = run["options"]["seed"].get<std::uint64_t>();
    const auto resolved = resolve_options(options, runner.model->desc());
    ASSERT_TRUE(resolved) << resolved.error().message();
    const auto answer = generate({*runner.backend}, prompt, *resolved);
    ASSERT_TRUE(answer) << answer.error().message();
    ASSERT_EQ(answer->ids.size(), static_cast<std::size_t>(*options.length));
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), answer->ids.begin())) << run["options"].dump();
    const bool stopped = ids.size() < answer->ids.size();
    EXPECT_EQ(answer->finish, stopped ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(answer->stats.committed_tokens, static_cast<std::int32_t>(ids.size()));
    std::int32_t expected = 0;
    for (const std::int32_t count : passes) expected += count + 1;  // a canvas, and what precedes it
    EXPECT_EQ(answer->stats.nfe, expected) << run["options"].dump();
    EXPECT_EQ(answer->stats.rows_scored, 8 * (expected - static_cast<std::int32_t>(passes.size())));
  }
}

/// mlx-vlm's sampler, and canvases that grow.
TEST(DiffusionGemma, SureTokensAreKeptAsByTheReference) {
  const GoldenModel golden("diffusion-gemma");
  for (const json& run : golden.description()["sure"]) {
    Runner runner(with_sampler(golden, run["options"]));
    GenerateOptions options;
    options.length = run["length"].get<std::int32_t>();
    options.seed = run["options"]["seed"].get<std::uint64_t>();
    options.decoder = {"threshold", {{"threshold", run["options"]["threshold"].get<double>()}}};
    options.window.name = "adaptive";
    options.block_length = run["options"]["first"].get<std::int32_t>();
    const auto resolved = resolve_options(options, runner.model->desc());
    ASSERT_TRUE(resolved) << resolved.error().message();
    const auto answer = generate({*runner.backend}, golden.ids(), *resolved);
    ASSERT_TRUE(answer) << answer.error().message();
    const auto ids = run["ids"].get<std::vector<std::int32_t>>();
    ASSERT_LE(ids.size(), answer->ids.size());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), answer->ids.begin())) << run["options"].dump();
    std::int32_t expected = 0;
    for (const std::int32_t count : run["passes"].get<std::vector<std::int32_t>>()) expected += count + 1;
    EXPECT_EQ(answer->stats.nfe, expected) << run["options"].dump();
  }
}

TEST(DiffusionGemma, AnswersAreCutAndBatchesAndThreadsChangeNothing) {
  const GoldenModel golden("diffusion-gemma");
  const json& run = golden.description()["generations"][0];
  GenerateOptions options;
  options.length = 13;  // a canvas and a half
  options.exact_length = true;
  options.seed = run["options"]["seed"].get<std::uint64_t>();
  Runner runner(with_sampler(golden, run["options"])), single(with_sampler(golden, run["options"]), 1);
  const ResolvedOptions resolved = *resolve_options(options, runner.model->desc());
  EXPECT_EQ(resolved.decoder.name, "entropy-bound");
  EXPECT_TRUE(resolved.decoder.options.contains("steps"));
  std::int32_t last_masked = 13;
  const auto look = [&](const StepEvent& event) {
    EXPECT_LE(event.masked, last_masked);
    last_masked = event.masked;
    return true;
  };
  const auto answer = *generate({*runner.backend}, golden.ids(), resolved, {.on_step = look});
  EXPECT_EQ(answer.ids.size(), 13u);
  EXPECT_EQ(answer.stats.committed_tokens, 13);
  const auto whole = run["ids"].get<std::vector<std::int32_t>>();
  EXPECT_TRUE(std::equal(answer.ids.begin(), answer.ids.end(), whole.begin()));
  EXPECT_EQ(generate({*single.backend}, golden.ids(), resolved)->ids, answer.ids);
  std::vector<std::vector<TokenId>> prompts = {{104, 105}, golden.ids(), {}, {33, 34, 35}};
  const auto batch = generate_batch({*runner.backend}, prompts, resolved, {.batch = 3});
  ASSERT_TRUE(batch) << batch.error().message();
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ((*batch)[i].ids, generate({*runner.backend}, prompts[i], resolved)->ids) << i;
}

TEST(DiffusionGemma, OptionsOfOtherMethodsAreErrors) {
  const GoldenModel golden("diffusion-gemma");
  const LanguageModel model = *LanguageModel::load(golden.path());
  const auto error = [&](const std::function<void(GenerateOptions&)>& change) {
    GenerateOptions options;
    options.length = 8;
    options.decoder.options["steps"] = 1;
    change(options);
    const auto answer = model.generate_ids({104, 105}, options);
    return answer ? std::string() : answer.error().message();
  };
  EXPECT_EQ(error([](GenerateOptions&) {}), "");
  EXPECT_EQ(error([](GenerateOptions& o) {
              o.decoder.name = "entropy-bound", o.decoder.options["entropy_bound"] = 0.2, o.cache.name = "prefix";
            }),
            "");
  EXPECT_NE(error([](GenerateOptions& o) { o.decoder.name = "credit"; }).find("--algorithm"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.cache.name = "dual"; }).find("--cache"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.window.name = "sliding"; }).find("--window"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.block_length = 9; }).find("--block-length"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.temperature = 0.5; }).find("--temperature"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.cfg_scale = 1; }).find("--cfg-scale"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.temperature = 0; }).find("--temperature"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.suffix.name = "full"; }).find("--suffix"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.smoothing.options["smooth"] = 0.3; }).find("--smooth"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.decoder.options["threshold"] = 0.9; }).find("--threshold"),
            std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.preset = "fast"; }).find("--preset"), std::string::npos);
  EXPECT_NE(error([](GenerateOptions& o) { o.length = 125; }).find("last canvas"), std::string::npos);
  EXPECT_FALSE(model.masked_log_probs({104, 105}, {1}, 0, 0));
  EXPECT_FALSE(model.autoregressive());
}

}  // namespace
}  // namespace dllm
