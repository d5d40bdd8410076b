// The models of this repository against an independent implementation (PyTorch, float32): logits, tokens, commit order
// and number of passes. The rules of the recorded decodes are in research/train_tiny/README.md.
//
// With DLLM_TEST_BACKEND in the environment they run on that backend: nightly on Vulkan, where a processor's driver
// takes too long for CI. DLLM_TEST_PART=I/N takes every N-th decode from the I-th on, counted from 0: a part a night.
// DLLM_TEST_LARGER_PASSES=N leaves out the larger models' answers of more passes, which take seconds each there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "dllm/model.h"
#include "shared_data.h"

namespace dllm {
namespace {

using nlohmann::json;

LoadOptions tested_backend() {
  LoadOptions options;
  if (const char* const name = std::getenv("DLLM_TEST_BACKEND")) options.backend = name;
  return options;
}

const LanguageModel& tiny() {
  static const LanguageModel model = *LanguageModel::load("", tested_backend());
  return model;
}

/// A model of this repository, loaded once.
const LanguageModel& shipped(const std::string& name) {
  static std::map<std::string, LanguageModel> models;
  const auto found = models.find(name);
  if (found != models.end()) return found->second;
  LoadOptions options = tested_backend();
  options.cache_type = "f32";  // K/V of an F16 model are F16 by default, but not in PyTorch
  return models.emplace(name, *LanguageModel::load(DLLM_SOURCE_DIR "/models/" + name, options)).first->second;
}

json golden(const std::string& name) {
  return json::parse(test::read_file(std::string(DLLM_SOURCE_DIR "/tests/golden/") + name));
}

/// Float32 payload of a version 1 .npy file.
std::vector<float> read_npy(const std::string& name) {
  const std::string bytes = test::read_file(std::string(DLLM_SOURCE_DIR "/tests/golden/") + name);
  const auto header = static_cast<std::size_t>(static_cast<unsigned char>(bytes[8])) +
                      256u * static_cast<std::size_t>(static_cast<unsigned char>(bytes[9]));
  std::vector<float> values((bytes.size() - 10 - header) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + 10 + header, values.size() * sizeof(float));
  return values;
}

TEST(Golden, LogitsAgreeToOneInTenThousand) {
  const json file = golden("canvases.json");
  ASSERT_EQ(file["canvases"].size(), 3u);
  for (const json& canvas : file["canvases"]) {
    const auto ids = canvas["input_ids"].get<std::vector<std::int32_t>>();
    const auto expected = read_npy(canvas["logits"]);
    const auto actual = tiny().logits(ids, false);
    ASSERT_TRUE(actual) << actual.error().message();
    ASSERT_EQ(actual->size(), expected.size());
    double scale = 0, worst = 0;
    for (float value : expected) scale = std::max(scale, std::abs(static_cast<double>(value)));
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>((*actual)[i]) - static_cast<double>(expected[i])));
    EXPECT_LT(worst / scale, 1e-4) << canvas["logits"];
  }
}

/// The first step in which two decodes differ in their tokens or positions; -1: none.
int first_difference(const Generation& own, const std::vector<std::int32_t>& ids,
                     const std::vector<std::int32_t>& steps) {
  int first = -1;
  for (std::size_t p = 0; p < ids.size(); ++p) {
    if (own.ids[p] == ids[p] && own.commit_step[p] == steps[p]) continue;
    const int step = std::min(own.commit_step[p], steps[p]);
    first = first < 0 ? step : std::min(first, step);
  }
  return first;
}

/// A run whose closest decision is narrower than float32 resolves (`margin`, as recorded) may decide otherwise with
/// another order of additions. Up to that decision everything must be as recorded; at it, both sides must commit with
/// equal confidence; and the answer must be as good.
void expect_equal_up_to_a_tie(const Generation& own, const json& run) {
  const auto ids = run["output_ids"].get<std::vector<std::int32_t>>();
  const auto steps = run["commit_step"].get<std::vector<std::int32_t>>();
  const auto confidence = run["confidence"].get<std::vector<double>>();
  const int tie = first_difference(own, ids, steps);
  std::vector<double> here, there;
  for (std::size_t p = 0; p < ids.size(); ++p) {
    if (own.commit_step[p] < tie) {
      EXPECT_NEAR(own.confidence[p], confidence[p], 2e-4) << "position " << p;
    }
    const bool same = own.ids[p] == ids[p] && own.commit_step[p] == steps[p];
    if (!same && own.commit_step[p] == tie) here.push_back(own.confidence[p]);
    if (!same && steps[p] == tie) there.push_back(confidence[p]);
  }
  // The same number of commits, unless the tie is about a threshold: then one side commits one position more.
  std::sort(here.begin(), here.end());
  std::sort(there.begin(), there.end());
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) EXPECT_NEAR(here[i], there[i], 2e-4);
  EXPECT_EQ(own.text, run["text"].get<std::string>()) << "the tie at step " << tie << " changed the answer";
}

struct Mode {
  const char* file;
  const char* algorithm;
  const char* cache;
  double threshold;
  std::int32_t steps;
  const char* model = nullptr;  ///< in models/; null: the embedded one
};

void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.file; }

#ifdef DLLM_SANITIZED
constexpr bool kSanitized = true;  // thirty times slower
#else
constexpr bool kSanitized = false;
#endif

/// Which of so many recorded runs are decoded: in sanitized builds every `stride`-th, as a few runs have the memory
/// accesses of all; of these, the part that DLLM_TEST_PART names.
std::vector<std::size_t> chosen_runs(std::size_t count, std::size_t stride) {
  std::size_t part = 0, parts = 1;
  if (const char* const wanted = std::getenv("DLLM_TEST_PART")) {
    const bool read = std::sscanf(wanted, "%zu/%zu", &part, &parts) == 2 && part < parts;
    EXPECT_TRUE(read) << "DLLM_TEST_PART: '" << wanted << "' is not like 2/6";
    if (!read) return {};
  }
  const std::size_t step = kSanitized ? stride : 1;
  std::vector<std::size_t> runs;
  for (std::size_t i = part * step; i < count; i += parts * step) runs.push_back(i);
  return runs;
}

/// Of the larger models, the most passes of an answer that is decoded.
int most_passes() {
  const char* const wanted = std::getenv("DLLM_TEST_LARGER_PASSES");
  return wanted != nullptr ? std::atoi(wanted) : std::numeric_limits<int>::max();
}

class GoldenDecode : public ::testing::TestWithParam<Mode> {};

TEST_P(GoldenDecode, TokensOrderAndPassesAreTheRecordedOnes) {
  const Mode& mode = GetParam();
  GenerateOptions options;
  const json file = golden(mode.file);
  ASSERT_EQ(file["runs"].size(), mode.model != nullptr ? 10u : 40u);
  const LanguageModel& model = mode.model != nullptr ? shipped(mode.model) : tiny();
  options.length = file["gen_length"].get<std::int32_t>();
  options.block_length = 32;
  options.exact_length = true;
  options.decoder.name = mode.algorithm;
  options.cache.name = mode.cache;
  if (mode.threshold > 0) options.decoder.options["threshold"] = mode.threshold;
  if (mode.steps > 0) options.decoder.options["steps"] = mode.steps;
  options.compat = std::string(mode.algorithm) == "factor";  // recorded with upstream's end-of-list rule
  int ties = 0;
  for (const std::size_t i : chosen_runs(file["runs"].size(), mode.steps > 0 ? 20 : 10)) {
    const json& run = file["runs"][i];
    if (mode.model != nullptr && run["nfe"].get<int>() > most_passes()) continue;
    const auto prompt = run["prompt_ids"].get<std::vector<std::int32_t>>();
    const auto result = model.generate_ids(prompt, options);
    ASSERT_TRUE(result) << result.error().message();
    const bool same = result->ids == run["output_ids"].get<std::vector<std::int32_t>>() &&
                      result->commit_step == run["commit_step"].get<std::vector<std::int32_t>>() &&
                      result->stats.nfe == run["nfe"].get<int>();
    const double margin = std::min(run["order_margin"].get<double>(), run["argmax_margin"].get<double>());
    if (!same && margin < 1e-4) {
      ++ties;
      expect_equal_up_to_a_tie(*result, run);
      continue;
    }
    EXPECT_TRUE(same) << run["prompt"] << ": '" << result->text << "' in " << result->stats.nfe << " passes, recorded '"
                      << run["text"].get<std::string>() << "' in " << run["nfe"];
    EXPECT_EQ(result->text, run["text"].get<std::string>());
    const auto confidence = run["confidence"].get<std::vector<double>>();
    for (std::size_t j = 0; j < confidence.size(); ++j) EXPECT_NEAR(result->confidence[j], confidence[j], 2e-4);
  }
  RecordProperty("decided_by_ties", ties);
}

/// Upstream's rules, bit for bit, from an implementation in numpy (scripts/golden_decoders.py).
TEST(GoldenDecoders, WholeAnswersUnderCompat) {
  const json file = golden("decoders.json");
  ASSERT_EQ(file["decodes"].size(), 10u);
  const std::map<std::string, std::string> numbers = {{"threshold", "threshold"},
                                                      {"low", "low_threshold"},
                                                      {"remask", "remask_threshold"},
                                                      {"edit", "edit_threshold"},
                                                      {"penalty", "penalty_lambda"}};
  const std::map<std::string, std::string> integers = {
      {"post", "max_post_steps"}, {"blocks", "edit_blocks"}, {"steps", "steps"}, {"transfer", "num_to_transfer"}};
  for (const json& one : file["decodes"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    GenerateOptions options;
    options.length = file["gen_length"].get<std::int32_t>();
    options.block_length = file["block_length"].get<std::int32_t>();
    options.exact_length = true;
    options.compat = true;
    options.decoder.name = one["algorithm"];
    for (const auto& [name, key] : numbers)
      if (one.contains(name)) options.decoder.options[key] = one[name].get<double>();
    for (const auto& [name, key] : integers)
      if (one.contains(name)) options.decoder.options[key] = one[name].get<std::int64_t>();
    // The expectation is over the whole vocabulary, which upstream does not cut.
    if (one.contains("smooth"))
      options.smoothing.options = {{"smooth", one["smooth"].get<double>()}, {"smooth_top", std::int64_t{0}}};
    ASSERT_EQ(one["runs"].size(), 6u);
    for (const std::size_t i : chosen_runs(one["runs"].size(), 3)) {
      const json& run = one["runs"][i];
      const auto result = tiny().generate_ids(run["prompt_ids"].get<std::vector<std::int32_t>>(), options);
      ASSERT_TRUE(result) << result.error().message();
      EXPECT_EQ(result->ids, run["output_ids"].get<std::vector<std::int32_t>>()) << result->text;
      EXPECT_EQ(result->stats.nfe, run["nfe"].get<int>());
    }
  }
}

/// d3LLM's rules, from an implementation in numpy (scripts/golden_d3llm.py).
TEST(GoldenDecoders, BlocksInAPipeline) {
  const json file = golden("d3llm.json");
  ASSERT_EQ(file["decodes"].size(), 4u);
  for (const json& one : file["decodes"]) {
    GenerateOptions options;
    options.length = file["gen_length"].get<std::int32_t>();
    options.block_length = file["block_length"].get<std::int32_t>();
    options.exact_length = true;
    options.window = {"pipeline", {{"begin_share", one["share"].get<double>()}}};
    options.decoder = {"low-entropy", {{"low_entropy", one["entropy"].get<double>()}}};
    ASSERT_EQ(one["runs"].size(), 6u);
    for (const std::size_t i : chosen_runs(one["runs"].size(), 3)) {
      const json& run = one["runs"][i];
      const auto result = tiny().generate_ids(run["prompt_ids"].get<std::vector<std::int32_t>>(), options);
      ASSERT_TRUE(result) << result.error().message();
      EXPECT_EQ(result->ids, run["output_ids"].get<std::vector<std::int32_t>>()) << result->text;
      EXPECT_EQ(result->stats.nfe, run["nfe"].get<int>()) << one["share"];
    }
  }
}

constexpr const char *kHarder = "harder-llada-f16.gguf", *kSecond = "harder-second-f16.gguf";
constexpr Mode kModes[] = {
    {"decode_threshold0.9.json", "threshold", "none", 0.9, 0},
    {"decode_threshold0.7.json", "threshold", "none", 0.7, 0},
    {"decode_factor1.0.json", "factor", "none", 0, 0},
    {"decode_prefix_threshold0.9.json", "threshold", "prefix", 0.9, 0},
    {"decode_dual_threshold0.9.json", "threshold", "dual", 0.9, 0},
    {"decode_fixed32.json", "low-confidence", "none", 0, 64},
    {"decode_fixed16.json", "low-confidence", "none", 0, 32},
    {"harder/decode_threshold0.9.json", "threshold", "none", 0.9, 0, kHarder},
    {"harder/decode_prefix_threshold0.9.json", "threshold", "prefix", 0.9, 0, kHarder},
    {"harder/decode_dual_threshold0.9.json", "threshold", "dual", 0.9, 0, kHarder},
    {"second/decode_threshold0.9.json", "threshold", "none", 0.9, 0, kSecond},
    {"second/decode_prefix_threshold0.9.json", "threshold", "prefix", 0.9, 0, kSecond},
    {"second/decode_dual_threshold0.9.json", "threshold", "dual", 0.9, 0, kSecond},
};

std::string mode_name(const ::testing::TestParamInfo<Mode>& info) {
  std::string name(info.param.file);
  name.resize(name.size() - 5);
  name.erase(name.find("decode_"), 7);
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '.' || c == '/'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Modes, GoldenDecode, ::testing::ValuesIn(kModes), mode_name);

}  // namespace
}  // namespace dllm
