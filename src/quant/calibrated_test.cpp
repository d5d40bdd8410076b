// Canvases, the cuts of a graph, and whole files.
#include "quant/calibrated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "model/testing/hf_directory.h"
#include "numerics/mx_tensor.h"
#include "quant/stages.h"

namespace dllm {
namespace {

using test::TempDirectory;

const std::string kTinyModel = DLLM_SOURCE_DIR "/models/tiny-llada-f32.gguf";

ModelDesc described(std::int32_t shift = 0) {
  ModelDesc desc;
  desc.context_length = 200;
  desc.mask = 999;
  desc.logit_shift = shift;
  return desc;
}

std::vector<CalibrationText> some_texts(std::size_t count) {
  std::vector<CalibrationText> texts(count);
  for (std::size_t t = 0; t < count; ++t) {
    for (TokenId i = 0; i < 10; ++i) texts[t].prompt.push_back(i);
    for (TokenId i = 0; i < 64; ++i) texts[t].answer.push_back(100 + i);
  }
  return texts;
}

TEST(Canvases, RandomMasksHaveEveryRatio) {
  const auto canvases = *make_canvases(some_texts(400), described(), {.per_text = 2});
  ASSERT_EQ(canvases.size(), 800u);
  double mean = 0;
  int few = 0, many = 0;
  for (const CalibrationCanvas& canvas : canvases) {
    ASSERT_EQ(canvas.tokens.size(), 74u);
    ASSERT_EQ(canvas.scored.size(), canvas.targets.size());
    ASSERT_FALSE(canvas.scored.empty());
    const double ratio = static_cast<double>(canvas.scored.size()) / 64;
    mean += ratio / 800;
    few += ratio < 0.2 ? 1 : 0;
    many += ratio > 0.8 ? 1 : 0;
    for (std::size_t i = 0; i < 74; ++i) {
      const bool masked = std::ranges::find(canvas.scored, static_cast<std::int32_t>(i)) != canvas.scored.end();
      EXPECT_EQ(canvas.tokens[i], masked ? 999 : static_cast<TokenId>(i < 10 ? i : 90 + i));
    }
    for (std::size_t i = 0; i < canvas.scored.size(); ++i) EXPECT_EQ(canvas.targets[i], 90 + canvas.scored[i]);
  }
  EXPECT_NEAR(mean, 0.5, 0.03);
  EXPECT_GT(few, 110);
  EXPECT_GT(many, 110);
}

TEST(Canvases, AreAFunctionOfTheSeed) {
  const auto one = *make_canvases(some_texts(3), described(), {}),
             same = *make_canvases(some_texts(3), described(), {});
  const auto other = *make_canvases(some_texts(3), described(), {.seed = 1});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(one[i].tokens, same[i].tokens);
  EXPECT_NE(one[0].tokens, other[0].tokens);
}

TEST(Canvases, DecodingMasksEverythingAfterTheBlock) {
  const auto canvases =
      *make_canvases(some_texts(50), described(), {.masks = CalibrationMasks::kDecoding, .block = 32, .canvas = 128});
  int second = 0;
  for (const CalibrationCanvas& canvas : canvases) {
    ASSERT_EQ(canvas.tokens.size(), 138u);
    const std::int32_t block = (canvas.scored.front() - 10) / 32;
    second += block;
    for (const std::int32_t row : canvas.scored) EXPECT_EQ((row - 10) / 32, block);
    for (std::int32_t i = 10; i < 138; ++i) {
      const TokenId token = canvas.tokens[static_cast<std::size_t>(i)];
      if ((i - 10) / 32 < block) {
        EXPECT_EQ(token, 90 + i);
      } else if ((i - 10) / 32 > block) {
        EXPECT_EQ(token, 999);
      }
    }
  }
  EXPECT_GT(second, 10);
  EXPECT_LT(second, 40);
}

TEST(Canvases, WithoutMasksEveryRowPredictsTheNext) {
  const auto canvases = *make_canvases(some_texts(1), described(), {.masks = CalibrationMasks::kNone});
  EXPECT_EQ(canvases[0].scored.size(), 73u);
  EXPECT_EQ(canvases[0].targets[9], 100);
  EXPECT_EQ(std::ranges::count(canvases[0].tokens, 999), 0);
}

TEST(Canvases, ShiftedModelsPredictFromTheRowBefore) {
  const auto plain = *make_canvases(some_texts(1), described(), {}),
             shifted = *make_canvases(some_texts(1), described(1), {});
  ASSERT_EQ(plain[0].scored.size(), shifted[0].scored.size());
  for (std::size_t i = 0; i < plain[0].scored.size(); ++i) EXPECT_EQ(shifted[0].scored[i] + 1, plain[0].scored[i]);
  EXPECT_EQ(plain[0].targets, shifted[0].targets);
}

TEST(Canvases, Refusals) {
  EXPECT_FALSE(make_canvases({}, described(), {}));
  ModelDesc causal = described();
  causal.mask.reset();
  EXPECT_FALSE(make_canvases(some_texts(1), causal, {}));
  EXPECT_TRUE(make_canvases(some_texts(1), causal, {.masks = CalibrationMasks::kNone}));
  causal.context_length = 20;
  EXPECT_EQ(make_canvases(some_texts(1), causal, {.masks = CalibrationMasks::kNone})->front().tokens.size(), 20u);
}

TEST(Stages, CutBeforeEveryInputOfAProduct) {
  const auto model = *Model::load(kTinyModel);
  const Graph graph = model->build({1, 1});
  const auto stages = *calibration_stages(graph);
  ASSERT_EQ(stages.size(), 5u * 4 + 1);
  std::set<WeightId> weights;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    weights.insert(stages[s].weights.begin(), stages[s].weights.end());
    EXPECT_EQ(stages[s].first, s == 0 ? 0 : stages[s - 1].end);
    EXPECT_NE(std::ranges::find(stages[s].live, stages[s].input), stages[s].live.end());
    EXPECT_LE(stages[s].live.size(), 2u) << "the residual stream and the input";
  }
  int residuals = 0;
  for (const CalibrationStage& stage : stages) {
    const std::string& name = graph.weight(stage.weights[0]).name;
    const bool adds = name.ends_with("attn_output.weight") || name.ends_with("ffn_down.weight");
    EXPECT_EQ(stage.residual != kNoId, adds) << name;
    residuals += adds ? 1 : 0;
  }
  EXPECT_EQ(residuals, 10);
  EXPECT_EQ(stages[0].weights.size(), 3u);
  EXPECT_EQ(weights.size(), 36u);
}

/// A calibration from fixed tokens.
CalibrationOptions calibration(const std::string& method) {
  CalibrationOptions options;
  options.method = method;
  options.description = "test";
  options.canvases = [](const Model& model) {
    std::vector<CalibrationText> texts(3);
    for (std::size_t t = 0; t < texts.size(); ++t)
      for (std::size_t i = 0; i < 96; ++i)
        (i < 20 ? texts[t].prompt : texts[t].answer).push_back(static_cast<TokenId>((37 * i + 101 * t) % 760));
    return make_canvases(texts, model.desc(), {});
  };
  return options;
}

WriteOptions options_of(const char* type, int threads = 1) {
  WriteOptions options;
  options.type = type;
  options.threads = threads;
  return options;
}

std::size_t files_in(const std::string& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST(WriteQuantized, DoesNotDependOnThreads) {
  const TempDirectory directory;
  const ModelSource source = *open_source(kTinyModel);
  for (const int threads : {1, 3}) {
    const auto report = write_quantized(source, options_of("mxint4", threads), calibration("gptq+y-clip"),
                                        directory.file(std::to_string(threads)));
    ASSERT_TRUE(report) << report.error().message();
  }
  EXPECT_EQ(test::read_text(directory.file("1")), test::read_text(directory.file("3")));
  EXPECT_EQ(files_in(directory.path()), 2u) << "partial results are removed";
  const ModelSource written = *open_source(directory.file("1"));
  EXPECT_EQ(**written.metadata.string("dllm.quantization.method"), "gptq+y-clip");
  EXPECT_EQ(**written.metadata.string("dllm.mx_format"), "mxint4:32:ocp");
  EXPECT_TRUE(Model::load(written));
}

TEST(WriteQuantized, RoundingToNearestIsWriteModel) {
  const TempDirectory directory;
  const ModelSource source = *open_source(kTinyModel);
  ASSERT_TRUE(write_quantized(source, options_of("Q4_0"), {}, directory.file("a")));
  ASSERT_TRUE(write_model(source, options_of("Q4_0"), directory.file("b")));
  EXPECT_EQ(test::read_text(directory.file("a")), test::read_text(directory.file("b")));
}

TEST(WriteQuantized, EveryMethodChangesOnlyTheMatricesThatItMay) {
  const TempDirectory directory;
  const ModelSource source = *open_source(kTinyModel);
  for (const char* type : {"Q4_0", "mxfp4_e2m1"}) {
    ASSERT_TRUE(write_model(source, options_of(type), directory.file("rtn")));
    const ModelSource nearest = *open_source(directory.file("rtn"));
    for (const char* method : {"x-clip", "y-clip", "gptq+search+correct"}) {
      const auto report = write_quantized(source, options_of(type), calibration(method), directory.file(method));
      ASSERT_TRUE(report) << report.error().message();
      const ModelSource written = *open_source(directory.file(method));
      for (std::size_t i = 0; i < written.tensors.size(); ++i) {
        const SourceTensor &a = written.tensors[i], &b = nearest.tensors[i];
        ASSERT_EQ(a.type, b.type);
        const bool chosen = a.name != "token_embd.weight" && BlockGrid::of(a.type).has_value();
        EXPECT_EQ(std::ranges::equal(a.data, b.data), !chosen) << method << " " << a.name;
      }
    }
  }
}

/// Interrupted after any number of steps, the target does not exist; the next call gives the same bytes as one that was
/// never interrupted.
TEST(WriteQuantized, ContinuesWhereItWasInterrupted) {
  const TempDirectory directory;
  const ModelSource source = *open_source(kTinyModel);
  ASSERT_TRUE(write_quantized(source, options_of("mxint4"), calibration("gptq+correct"), directory.file("whole")));
  int steps = 0;
  WriteOptions stopping = options_of("mxint4");
  std::size_t attempts = 0;
  std::vector<std::string> begun;
  stopping.progress = [&](std::string_view what, std::int64_t, std::int64_t) { begun.emplace_back(what); };
  stopping.cancelled = [&] { return ++steps % 9 == 0; };
  while (true) {
    const auto report = write_quantized(source, stopping, calibration("gptq+correct"), directory.file("x"));
    if (report) break;
    ASSERT_EQ(report.error().code, ErrorCode::kCancelled);
    EXPECT_FALSE(std::filesystem::exists(directory.file("x")));
    stopping.cancelled = [&, budget = 9 + 2 * ++attempts, used = std::size_t{0}]() mutable { return ++used > budget; };
    ASSERT_LT(attempts, 50u);
  }
  EXPECT_GT(attempts, 2u);
  EXPECT_EQ(std::ranges::count(begun, "embd"), 0);
  begun.erase(std::ranges::unique(begun).begin(), begun.end());
  EXPECT_EQ(std::ranges::count(begun, "blk.0.attn_norm"), 1) << "a finished product is not repeated";
  EXPECT_EQ(test::read_text(directory.file("x")), test::read_text(directory.file("whole")));
  EXPECT_EQ(files_in(directory.path()), 2u);
}

/// Every file of the folder in turn is zeroed, cut or exchanged after an interruption: the next call notices, and gives
/// the same bytes as one that was never interrupted.
TEST(WriteQuantized, NoPartialFileIsBelieved) {
  namespace fs = std::filesystem;
  const TempDirectory directory;
  const ModelSource source = *open_source(kTinyModel);
  ASSERT_TRUE(write_quantized(source, options_of("mxint4"), calibration("gptq"), directory.file("whole")));
  const std::string whole = test::read_text(directory.file("whole"));
  std::vector<std::string> told;
  WriteOptions options = options_of("mxint4");
  options.log = Log([&](LogLevel, const std::string& line) { told.push_back(line); });
  WriteOptions stopping = options;
  const auto interrupted = [&](int after) {
    for (const auto& entry : fs::directory_iterator(directory.path()))
      if (entry.is_directory()) fs::remove_all(entry.path());
    stopping.cancelled = [after, steps = 0]() mutable { return ++steps > after; };
    EXPECT_FALSE(write_quantized(source, stopping, calibration("gptq"), directory.file("x")));
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory.path()))
      if (entry.is_directory())
        for (const auto& file : fs::directory_iterator(entry.path()))
          if (file.path().filename() != "lock") files.push_back(file.path());
    std::ranges::sort(files);
    return files;
  };
  const std::size_t count = interrupted(22).size();
  ASSERT_GT(count, 6u);
  for (std::size_t victim = 0; victim < count; ++victim) {
    const std::vector<fs::path> files = interrupted(22);
    ASSERT_EQ(files.size(), count);
    const auto size = fs::file_size(files[victim]);
    told.clear();
    if (victim % 3 == 0) fs::resize_file(files[victim], 0), fs::resize_file(files[victim], size);
    if (victim % 3 == 1) fs::resize_file(files[victim], size / 2);
    if (victim % 3 == 2) {
      fs::remove(files[victim]);
      fs::copy_file(files[victim == 0 ? 1 : 0], files[victim]);
    }
    const auto report = write_quantized(source, options, calibration("gptq"), directory.file("x"));
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(test::read_text(directory.file("x")), whole) << files[victim];
    ASSERT_EQ(told.size(), 1u) << files[victim];
    EXPECT_NE(told[0].find(files[victim].filename().string()), std::string::npos) << told[0];
    fs::remove(directory.file("x"));
  }
}

TEST(WriteQuantized, Refusals) {
  const TempDirectory directory;
  const ModelSource source = *open_source(kTinyModel);
  const auto code = [&](const char* type, const CalibrationOptions& options) {
    const auto report = write_quantized(source, options_of(type), options, directory.file("x"));
    EXPECT_FALSE(report);
    EXPECT_EQ(files_in(directory.path()), 0u);
    return report ? ErrorCode::kIo : report.error().code;
  };
  EXPECT_EQ(code("mxint4", calibration("best")), ErrorCode::kUsage);
  CalibrationOptions none = calibration("gptq");
  none.canvases = {};
  EXPECT_EQ(code("mxint4", none), ErrorCode::kUsage);
  EXPECT_EQ(code("BF16", calibration("gptq")), ErrorCode::kUnsupported);
  EXPECT_EQ(code("F16", calibration("x-clip")), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace dllm
