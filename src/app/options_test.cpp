#include "app/options.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "app/report.h"
#include "engine/option_table.h"

namespace dllm::app {
namespace {

Expected<GenerateOptions> parse(const std::vector<std::string>& args) {
  GenerateOptions options;
  Flags flags("run", "", "");
  add_generate_flags(flags, options);
  auto outcome = flags.parse(args, [](const std::string&) -> const char* { return nullptr; });
  if (!outcome) return std::move(outcome).error();
  finish_generate_options(flags, options);
  return options;
}

TEST(GenerateFlags, LlamaCppSpellings) {
  const auto options = parse({"--n-predict",
                              "64",
                              "--temp",
                              "0.7",
                              "--top-k",
                              "40",
                              "--top-p",
                              "0.9",
                              "-s",
                              "7",
                              "--diffusion-steps",
                              "16",
                              "--diffusion-block-length",
                              "32",
                              "--diffusion-algorithm",
                              "4",
                              "--diffusion-alg-temp",
                              "0.5",
                              "--diffusion-cfg-scale",
                              "1.5"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->length, 64);
  EXPECT_EQ(options->temperature, 0.7);
  EXPECT_EQ(options->top_k, 40);
  EXPECT_EQ(options->top_p, 0.9);
  EXPECT_EQ(options->seed, 7u);
  EXPECT_EQ(options->steps, 16);
  EXPECT_EQ(options->block_length, 32);
  EXPECT_EQ(options->algorithm, "low-confidence");
  EXPECT_EQ(options->algorithm_temperature, 0.5);
  EXPECT_EQ(options->cfg_scale, 1.5);
  EXPECT_EQ(options->window, "block");
  EXPECT_EQ(parse({"--max-tokens", "9"})->length, 9);
  EXPECT_EQ(parse({"-n", "9"})->length, 9);
}

TEST(GenerateFlags, AlgorithmNamesAndNumbers) {
  const char* numbers[] = {"origin", "entropy", "topk-margin", "random", "low-confidence"};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(parse({"--algorithm", std::to_string(i)})->algorithm, numbers[i]);
  EXPECT_EQ(parse({"--algorithm", "maskgit_plus"})->algorithm, "maskgit-plus");
  EXPECT_EQ(parse({"--algorithm", "5"}).error().where, "--algorithm");
  EXPECT_NE(parse({"--algorithm", "treshold"}).error().hint.find("'threshold'"), std::string::npos);
}

TEST(GenerateFlags, AnEpsMeansTheWholeAnswerAsOneWindow) {
  EXPECT_EQ(parse({"--diffusion-eps", "0.001"})->window, "whole");
  EXPECT_EQ(parse({"--eps", "0.001", "--block-length", "32"})->window, "block");
  EXPECT_EQ(parse({"--eps", "0.001", "--window", "block"})->window, "block");
}

TEST(GenerateFlags, ARandomSeedOnRequest) {
  const auto options = parse({"--seed", "-1"});
  ASSERT_TRUE(options);
}

TEST(OptionTable, NamesAreUniqueAndWellFormed) {
  std::set<std::string_view> keys, flags;
  for (const OptionSpec& spec : generate_option_table()) {
    EXPECT_TRUE(keys.insert(spec.key).second) << spec.key;
    EXPECT_TRUE(spec.flags.front().starts_with("--")) << spec.key;
    for (std::string_view flag : spec.flags) EXPECT_TRUE(flags.insert(flag).second) << flag;
    EXPECT_FALSE(spec.help.empty()) << spec.key;
    EXPECT_FALSE(spec.group.empty()) << spec.key;
  }
}

TEST(OptionTable, DefaultsAreAllowed) {
  const GenerateOptions defaults;
  for (const OptionSpec& spec : generate_option_table()) {
    double value = 0;
    if (const auto* real = std::get_if<double GenerateOptions::*>(&spec.target)) value = defaults.**real;
    if (const auto* integer = std::get_if<std::int32_t GenerateOptions::*>(&spec.target)) value = defaults.**integer;
    if (spec.minimum < spec.maximum) {
      EXPECT_GE(value, spec.minimum) << spec.key;
      EXPECT_LE(value, spec.maximum) << spec.key;
    }
  }
}

TEST(OptionTable, JsonHoldsEveryOption) {
  GenerateOptions options;
  options.algorithm = "factor";
  options.seed = 18446744073709551615u;
  const auto json = options_json(options);
  EXPECT_EQ(json.size(), generate_option_table().size());
  EXPECT_EQ(json["algorithm"], "factor");
  EXPECT_EQ(json["seed"].get<std::uint64_t>(), 18446744073709551615u);
  EXPECT_EQ(json["exact_length"], false);
  EXPECT_EQ(json["threshold"], 0.9);
}

struct TextCase {
  std::istringstream in;
  std::ostringstream out, err;
  Terminal terminal{in, out, err};
  TextFlags text;
  Flags flags{"run", "", ""};

  Expected<std::string> read(const std::vector<std::string>& args, const std::string& piped, bool tty) {
    in.str(piped);
    terminal.in_tty = tty;
    text.add(flags, "PROMPT");
    auto outcome = flags.parse(args, [](const std::string&) -> const char* { return nullptr; });
    if (!outcome) return std::move(outcome).error();
    return text.read(flags, terminal);
  }
};

TEST(TextFlags, OneSource) {
  EXPECT_EQ(*TextCase().read({"-p", "hi"}, "piped", false), "hi");
  EXPECT_EQ(*TextCase().read({"hello", "world"}, "piped", false), "hello world");
  EXPECT_EQ(*TextCase().read({}, "piped\n", false), "piped");
  EXPECT_EQ(*TextCase().read({"-"}, "a\nb\n\n", false), "a\nb\n");
  EXPECT_EQ(*TextCase().read({"-f", "-"}, "x", false), "x");
  EXPECT_EQ(*TextCase().read({"-p", ""}, "", true), "");
  EXPECT_EQ(TextCase().read({}, "", true).error().what, "there is no text");
  EXPECT_EQ(TextCase().read({}, "", false).error().what, "there is no text");
  EXPECT_EQ(TextCase().read({"-p", "a", "b"}, "", false).error().what, "the text is given twice");
  EXPECT_EQ(TextCase().read({"-f", "/nonexistent"}, "", false).error().code, ErrorCode::kIo);
  EXPECT_EQ(TextCase().read({"-f", "/"}, "", false).error().code, ErrorCode::kIo);
}

TEST(Report, StatsLine) {
  Generation generation;
  generation.stats = {.answer_tokens = 20, .committed_tokens = 64, .steps = 10, .nfe = 12, .seconds = 0.5};
  generation.hash = 0x9f3c;
  EXPECT_EQ(stats_line(generation, 3),
            "40.0 tok/s · 50.00 ms/step · 6.4 tokens/step · NFE 12 · seed 3 · #0000000000009f3c");
  EXPECT_EQ(stats_line(Generation{}, 0).substr(0, 9), "0.0 tok/s");  // no division by zero
}

TEST(Report, GenerationJson) {
  Generation generation;
  generation.text = "bad \xff byte";
  generation.ids = {1, -1};
  generation.commit_step = {0, -1};
  generation.confidence = {0.5, 0};
  generation.finish = FinishReason::kCancelled;
  const auto json = generation_json(generation);
  EXPECT_EQ(json["finish"], "cancelled");
  EXPECT_EQ(json["commit_step"][1], -1);
  EXPECT_NE(dump(json).find("bad \uFFFD byte"), std::string::npos);
}

}  // namespace
}  // namespace dllm::app
