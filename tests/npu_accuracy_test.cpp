// Numerics profiles on small models: --numerics computes the same as the functional machine.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "branch_properties.h"
#include "cpu/cpu_backend.h"
#include "dllm/model.h"
#include "engine/embedded_model.h"
#include "engine/load.h"
#include "model/model.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/functional/npu_backend.h"
#include "npu_compiler/compiler/device_tiles.h"
#include "npu_compiler/compiler/tiled_weights.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"
#include "numerics/packed.h"
#include "quant/convert.h"
#include "random_model.h"
#include "shadow_properties.h"

namespace dllm {
namespace {

using npu::accuracy::AccuracyBackend, npu::accuracy::NumericsProfile;

std::shared_ptr<const Model> embedded() {
  static const std::shared_ptr<const Model> model = *Model::load(*open_or_embedded(""), Log());
  return model;
}

auto graph_of(const std::shared_ptr<const Model>& model) {
  return [model](StepShape shape) { return model->build(shape); };
}

std::unique_ptr<AccuracyBackend> simulate(const std::shared_ptr<const Model>& model, const NumericsProfile& profile) {
  return *AccuracyBackend::create(model->desc(), graph_of(model), model->weights(), profile, 2);
}

NumericsProfile profile_of(const std::string& name) {
  NumericsProfile profile = *npu::accuracy::load_numerics(name);
  profile.device = "plena-64-wide";  // its memories are the smallest, which are cleared fastest
  return profile;
}

/// A prompt and a block, then rows of the block with the cache's contents.
std::vector<std::vector<float>> logits_of(Backend& backend) {
  const auto cache = *backend.make_cache(12);
  std::vector<std::vector<float>> result;
  for (const Position first : {0, 8}) {
    SequenceStep step;
    step.cache = cache.get();
    for (Position p = first; p < 12; ++p)
      step.plan.rows.push_back({p, static_cast<TokenId>((9 + 11 * p + first) % 80)});
    step.plan.visible = {{0, 12}};
    for (std::int32_t i = 12 - first - 4; i < 12 - first; ++i) step.plan.scored.push_back(i);
    step.request.logits = true;
    auto scores = backend.forward({&step, 1});
    if (!scores) ADD_FAILURE() << scores.error().message();
    if (scores) result.push_back(scores->front().logits);
  }
  return result;
}

class Numerics : public testing::TestWithParam<const char*> {};

TEST_P(Numerics, EqualTheFunctionalMachine) {
  const NumericsProfile profile = profile_of(GetParam());
  ASSERT_TRUE(profile.on_machine());
  for (const char* architecture : {"llada", "llada-moe"}) {
    const std::shared_ptr<const Model> model = *Model::load(test::random_source({.architecture = architecture}));
    const auto simulated = simulate(model, profile);
    const auto machine = *npu::NpuBackend::create(model->desc(), graph_of(model), model->weights(), *profile.machine(),
                                                  {.positions = 16});
    const auto got = logits_of(*simulated), expected = logits_of(*machine);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(got, expected) << architecture;
  }
}

/// Rows that store no K/V: on the executor as on the CPU. Programs of the machine store those of every row.
TEST(Numerics, ShadowRows) {
  const std::shared_ptr<const Model> model =
      *Model::load(test::random_source({.architecture = "llada", .kv_heads = 2}));
  for (const char* name : {"fp16-q4_0", "w4a8kv4", "bf16", "f32"})
    for (const std::int32_t block : {0, 8}) {
      SCOPED_TRACE(std::string(name) + " block " + std::to_string(block));
      const NumericsProfile profile = profile_of(name);
      // Exponents of hidden keys move the array's alignment, but float32 has none.
      const bool exact = std::string_view(name) == "f32";
      const std::vector<float> logits = test::ShadowProperties(*simulate(model, profile), block, exact).check();
      const auto alone = *AccuracyBackend::create(model->desc(), graph_of(model), model->weights(), profile, 1);
      EXPECT_EQ(test::ShadowProperties(*alone, block, exact).check(), logits) << "one thread";
    }
  const NumericsProfile profile = profile_of("w4a8kv4");
  const auto machine =
      *npu::NpuBackend::create(model->desc(), graph_of(model), model->weights(), *profile.machine(), {.positions = 40});
  EXPECT_FALSE(machine->runs_shadows());
  const auto cache = *machine->make_cache(8);
  SequenceStep step{cache.get(), {}, {}, std::nullopt};
  for (Position p = 0; p < 4; ++p) step.plan.rows.push_back({p, p});
  step.plan.visible = {{0, 4}};
  ASSERT_TRUE(machine->forward({&step, 1}));
  ASSERT_TRUE(cache->holds({0, 4}));
  step.plan.scored = {4};
  step.plan.shadows = {{{2, 7}, {{0, 2}, {3, 4}}}};
  const auto refused = machine->forward({&step, 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(cache->holds(0));
}

/// Branches on the executor, whose caches hold copies of what they share.
TEST(Numerics, Branches) {
  const std::shared_ptr<const Model> model =
      *Model::load(test::random_source({.architecture = "llada", .kv_heads = 2}));
  for (const char* name : {"fp16-q4_0", "w4a8kv4", "bf16", "f32"})
    for (const std::int32_t block : {0, 8}) {
      SCOPED_TRACE(std::string(name) + " block " + std::to_string(block));
      const NumericsProfile profile = profile_of(name);
      const auto logits = test::BranchProperties(*simulate(model, profile), block).check();
      const auto alone = *AccuracyBackend::create(model->desc(), graph_of(model), model->weights(), profile, 1);
      EXPECT_EQ(test::BranchProperties(*alone, block).check(), logits) << "one thread";
    }
  EXPECT_FALSE(simulate(model, profile_of("w4a8kv4-smooth"))->runs_branches()) << "its K and V are smoothed";
}

using CopyRows = void (*)(const KvCache&, KvCache&, std::span<const Position>);

/// The logits of a pass over rows that were copied, which are those of the pass over the rows themselves.
std::vector<float> after_copy(Backend* backend, CopyRows copy_rows, const std::string& name) {
  const auto own = *backend->make_cache(40), side = *backend->make_cache(40);
  const auto step = [&](KvCache& cache, Position begin, Position end) {
    SequenceStep one{&cache, {}, {}, std::nullopt};
    for (Position p = begin; p < end; ++p) one.plan.rows.push_back({p, static_cast<TokenId>((9 + 11 * p) % 80)});
    one.plan.visible = {{0, 40}};
    one.plan.scored = {0};
    one.request.logits = true;
    return *backend->forward({&one, 1});
  };
  step(*own, 0, 40);
  std::vector<Position> all(40);
  std::iota(all.begin(), all.end(), 0);
  copy_rows(*own, *side, all);
  EXPECT_TRUE(side->holds({0, 40}));
  EXPECT_EQ(side->token_of(7), own->token_of(7));
  const auto there = step(*side, 18, 21);
  EXPECT_EQ(there.front().logits, step(*own, 18, 21).front().logits) << name;
  // Rows that were not copied are missing: the copy is what makes both equal.
  const auto bare = *backend->make_cache(40);
  step(*bare, 0, 3);
  EXPECT_NE(step(*bare, 18, 21).front().logits, there.front().logits) << name;
  return there.front().logits;
}

/// A second path's cache: copied rows are those that a pass wrote, on the executor and on the machine.
TEST(Numerics, CopiedRows) {
  const std::shared_ptr<const Model> model = *Model::load(test::random_source({.architecture = "llada"}));
  for (const char* name : {"fp16-q4_0", "w4a8kv4", "bf16", "f32"}) {
    const NumericsProfile profile = profile_of(name);
    const auto executor = after_copy(simulate(model, profile).get(), &AccuracyBackend::copy_rows, name);
    if (!profile.on_machine()) continue;
    const auto machine = *npu::NpuBackend::create(model->desc(), graph_of(model), model->weights(), *profile.machine(),
                                                  {.positions = 40});
    EXPECT_EQ(after_copy(machine.get(), &npu::NpuBackend::copy_rows, name), executor) << name;
  }
}

/// A model whose products have low-rank ones added: of heads, of the residual stream, and inside the feed-forward part.
struct Adapted {
  std::shared_ptr<const Model> model = *Model::load(test::random_source({.architecture = "llada"}));
  std::vector<Adapter> adapters = {{.name = "test", .drafts_only = false, .parts = {}}};
  std::vector<std::vector<float>> values;
  Weights weights = model->weights();

  Adapted() {
    const Graph graph = model->build({1, 1});
    for (const char* name :
         {"blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight", "blk.1.ffn_down.weight"}) {
      const auto decl = std::ranges::find(graph.weights, name, &WeightDecl::name);
      const SourceTensor a = tensor(std::string(name) + ".lora_a", {decl->shape[0], 8});
      const SourceTensor b = tensor(std::string(name) + ".lora_b", {8, decl->shape[1]});
      for (const SourceTensor& half : {a, b}) weights.push_back({half.type, half.shape, half.data});
      adapters.front().parts.push_back({name, 1.f, a, b});
    }
  }

  SourceTensor tensor(std::string name, const Shape& shape) {
    std::vector<float>& own = values.emplace_back();
    for (std::int64_t i = 0; i < element_count(shape); ++i)
      own.push_back(static_cast<float>((i * 37 + static_cast<std::int64_t>(values.size()) * 11) % 65 - 32) / 128.f);
    return {std::move(name), TensorType::kF32, shape, std::as_bytes(std::span(own))};
  }

  auto graph() const {
    return [this](StepShape shape) { return with_adapters(model->build(shape), adapters); };
  }
};

TEST_P(Numerics, EqualTheFunctionalMachineWithAnAdapter) {
  const NumericsProfile profile = profile_of(GetParam());
  const Adapted adapted;
  const auto simulated = *AccuracyBackend::create(adapted.model->desc(), adapted.graph(), adapted.weights, profile, 2);
  const auto machine = *npu::NpuBackend::create(adapted.model->desc(), adapted.graph(), adapted.weights,
                                                *profile.machine(), {.positions = 16});
  const auto got = logits_of(*simulated);
  EXPECT_EQ(got, logits_of(*machine));
  EXPECT_NE(got, logits_of(*simulate(adapted.model, profile)));
}

INSTANTIATE_TEST_SUITE_P(Named, Numerics,
                         testing::Values("bf16", "fp16-q4_0", "w4a8kv4", "w4a8kv4-smooth", "w8a8kv8", "mxfp8",
                                         "mxfp4"));

/// The matrices of a random model, rounded to an MX format and stored in it; the embedding stays F32.
struct Stored {
  std::vector<std::vector<std::byte>> bytes;
  std::shared_ptr<const Model> model;

  Stored(const ModelSource& source, TensorType type) {
    ModelSource stored = source;
    for (SourceTensor& tensor : stored.tensors) {
      if (tensor.shape.size() < 2 || tensor.name == "token_embd.weight") continue;
      const std::int64_t count = element_count(tensor.shape);
      std::vector<float> values(static_cast<std::size_t>(count));
      codec(tensor.type).dequantize(tensor.data.data(), values.data(), count);
      std::vector<std::byte>& own = bytes.emplace_back(static_cast<std::size_t>(codec(type).row_bytes(count)));
      codec(type).quantize(values.data(), own.data(), count);
      tensor.type = type;
      tensor.data = own;
    }
    model = *Model::load(std::move(stored));
  }
};

/// The phones' arithmetic: packed weights, unpacked to FP16 when they are loaded, and FP16 everywhere else. On the
/// phones' own array (32 x 32), and from files that store the weights so: blocks of heads of 16 columns are not those
/// of the file.
TEST(NumericsProfiles, PackedWeightsEqualTheFunctionalMachine) {
  NumericsProfile profile = profile_of("fp16-q4_0");
  const ModelSource source = test::random_source({.architecture = "llada"});
  const std::shared_ptr<const Model> exact = *Model::load(source);
  for (const char* device : {"mobile-sm8650", "mobile-sm8750", "plena-64-wide"})
    for (const char* name : {"q4_0", "q8_0"}) {
      profile.device = device;
      profile.weight = *npu::accuracy::OperandFormat::from_name(name);
      ASSERT_TRUE(profile.on_machine());
      const Stored stored(source, *tensor_type_from_name(name));
      for (const auto& model : {exact, stored.model}) {
        const auto machine = *npu::NpuBackend::create(model->desc(), graph_of(model), model->weights(),
                                                      *profile.machine(), {.positions = 16});
        EXPECT_EQ(logits_of(*simulate(model, profile)), logits_of(*machine)) << device << " " << name;
      }
    }
}

TEST(NumericsProfiles, APhoneRunsTheTrainedModel) {
  NumericsProfile profile = profile_of("fp16-q4_0");
  profile.device = "mobile-sm8850";
  const auto machine = *npu::NpuBackend::create(embedded()->desc(), graph_of(embedded()), embedded()->weights(),
                                                *profile.machine(), {.positions = 16});
  EXPECT_EQ(machine->layout().machine.lanes, npu::LaneFormat::kF16);
  EXPECT_EQ(logits_of(*simulate(embedded(), profile)), logits_of(*machine));
}

/// dllm convert --layout: a file of tiles gives the logits of the file of rows, on the machine and on the executor.
TEST(NumericsProfiles, AFileInTilesIsTheSameModel) {
  NumericsProfile profile = profile_of("fp16-q4_0");
  profile.device = "mobile-sm8750";
  const npu::Device device = *npu::load_device(profile.device);
  for (const char* architecture : {"llada", "llada-moe"}) {
    const std::string path = testing::TempDir() + "tiles-" + architecture + ".gguf";
    ASSERT_TRUE(write_model(test::random_source({.architecture = architecture}), {.type = "Q4_0"}, path));
    const std::shared_ptr<const Model> rows = *Model::load(path);
    const auto expected = logits_of(*simulate(rows, profile));
    const auto report = write_device_tiles(path, device);
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_GT(report->tiled, 8) << architecture;
    ModelSource source = *open_source(path);
    EXPECT_EQ(*source.metadata.string(npu::kTileDeviceKey), "mobile-sm8750");
    EXPECT_EQ(std::ranges::count_if(source.tensors, [](const auto& t) { return tile_element(t.type).has_value(); }),
              report->tiled);
    const auto refused = Model::load(path);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message().find("tiles"), std::string::npos);
    EXPECT_FALSE(write_model(source, {.type = "F16"}, path + ".f16"));
    source.device_tiles = true;
    const std::shared_ptr<const Model> tiled = *Model::load(std::move(source));
    EXPECT_EQ(logits_of(*simulate(tiled, profile)), expected) << architecture;
    const auto machine = *npu::NpuBackend::create(tiled->desc(), graph_of(tiled), tiled->weights(), *profile.machine(),
                                                  {.positions = 16});
    EXPECT_EQ(logits_of(*machine), expected) << architecture;
    // Another array has another order, and mostly another size.
    profile.device = "dart-512";
    EXPECT_FALSE(npu::NpuBackend::create(tiled->desc(), graph_of(tiled), tiled->weights(), *profile.machine(),
                                         {.positions = 16}));
    profile.device = "mobile-sm8750";
  }
}

/// PLENA's rule scales a block anew if its largest element has become a power of two, so that values which were
/// rounded twice differ. Heads have 16 columns: blocks of 16 are those of the file, of 32 they are not.
TEST(NumericsProfiles, StoredCodesAreNotRoundedAgain) {
  NumericsProfile profile = profile_of("w4a8kv4");
  const ModelSource source = test::random_source({.architecture = "llada"});
  const std::shared_ptr<const Model> exact = *Model::load(source);
  for (const char* name : {"mxint4:16:plena", "mxint4:32:plena", "mxfp8_e5m2:16:ocp"}) {
    profile.weight = *npu::accuracy::OperandFormat::from_name(name);
    const Stored stored(source, *tensor_type_from_name(name));
    const auto simulated = logits_of(*simulate(stored.model, profile));
    const auto machine = *npu::NpuBackend::create(stored.model->desc(), graph_of(stored.model), stored.model->weights(),
                                                  *profile.machine(), {.positions = 16});
    EXPECT_EQ(simulated, logits_of(*machine)) << name;
    if (std::string_view(name).find(":16:") != std::string_view::npos) {
      EXPECT_EQ(simulated, logits_of(*simulate(exact, profile))) << name;
    }
  }
  // What rounding twice would give: the decoded values in F32, under the same profile.
  profile.weight = *npu::accuracy::OperandFormat::from_name("mxint4:16:plena");
  const Stored once(source, *tensor_type_from_name("mxint4:16:plena"));
  ModelSource decoded = source;
  std::vector<std::vector<float>> values;
  std::size_t at = 0;
  for (SourceTensor& tensor : decoded.tensors) {
    if (tensor.shape.size() < 2 || tensor.name == "token_embd.weight") continue;
    const std::int64_t count = element_count(tensor.shape);
    std::vector<float>& own = values.emplace_back(static_cast<std::size_t>(count));
    codec(*tensor_type_from_name("mxint4:16:plena")).dequantize(once.bytes[at++].data(), own.data(), count);
    tensor.data = std::as_bytes(std::span(own));
  }
  const std::shared_ptr<const Model> twice = *Model::load(std::move(decoded));
  EXPECT_NE(logits_of(*simulate(once.model, profile)), logits_of(*simulate(twice, profile)));
}

/// The CPU decodes the stored codes in every step.
TEST(NumericsProfiles, TheCpuRunsStoredCodes) {
  const Stored stored(test::random_source({.architecture = "llada"}), *tensor_type_from_name("mxint4:16:plena"));
  NumericsProfile profile = profile_of("f32");
  profile.weight = *npu::accuracy::OperandFormat::from_name("mxint4:16:plena");
  const auto simulated = simulate(stored.model, profile);
  CpuOptions options;
  options.threads = 2;
  const auto cpu = *CpuBackend::create(stored.model->desc(), graph_of(stored.model), stored.model->weights(), options);
  const auto got = logits_of(*simulated), expected = logits_of(*cpu);
  for (std::size_t s = 0; s < got.size(); ++s)
    for (std::size_t i = 0; i < got[s].size(); ++i) ASSERT_NEAR(got[s][i], expected[s][i], 2e-3f) << s << " " << i;
}

/// Without any rounding below float32 the logits equal the CPU's except for the order of sums.
TEST(NumericsProfiles, Float32IsNearTheCpu) {
  const auto simulated = simulate(embedded(), profile_of("f32"));
  CpuOptions options;
  options.threads = 1;
  const auto cpu = *CpuBackend::create(embedded()->desc(), graph_of(embedded()), embedded()->weights(), options);
  const auto got = logits_of(*simulated), expected = logits_of(*cpu);
  for (std::size_t s = 0; s < got.size(); ++s)
    for (std::size_t i = 0; i < got[s].size(); ++i) ASSERT_NEAR(got[s][i], expected[s][i], 2e-3f) << s << " " << i;
}

/// The trained model's rows after this prompt have sums of squares beyond FP16's largest number.
TEST(NumericsProfiles, NormsOfLargeRowsFitFloat16) {
  const auto answer = [](const std::string& numerics) {
    LoadOptions load;
    load.numerics = numerics;
    const auto model = LanguageModel::load("", load);
    return model ? model->generate("Solve 17+4.")->text : model.error().message();
  };
  EXPECT_EQ(answer(""), "21");
  EXPECT_EQ(answer("fp16-q4_0"), "21");
}

/// The profiles' differences are visible: the phones' one is closer to float32 than four bits everywhere.
TEST(NumericsProfiles, FewerBitsAreFurtherFromFloat32) {
  const auto distance = [](const std::string& name) {
    static const auto exact = [] { return logits_of(*simulate(embedded(), profile_of("f32"))); }();
    const auto logits = logits_of(*simulate(embedded(), profile_of(name)));
    double sum = 0;
    for (std::size_t s = 0; s < logits.size(); ++s)
      for (std::size_t i = 0; i < logits[s].size(); ++i) {
        const double d = static_cast<double>(logits[s][i]) - static_cast<double>(exact[s][i]);
        sum += d * d;
      }
    return sum;
  };
  const double bf16 = distance("bf16"), w8 = distance("w8a8kv8"), w4 = distance("w4a8kv4"), q4 = distance("fp16-q4_0");
  EXPECT_LT(0, bf16);
  EXPECT_LT(bf16, w8);
  EXPECT_LT(w8, q4);
  EXPECT_LT(q4, w4);
}

}  // namespace
}  // namespace dllm
