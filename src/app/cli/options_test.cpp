#include "app/cli/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/cli/report.h"

namespace dllm::app {
namespace {

Expected<GenerateOptions> parse(const std::vector<std::string>& args) {
  GenerateOptions options;
  Flags flags("run", "", "");
  add_generate_flags(flags, options);
  auto outcome = flags.parse(args, [](const std::string&) -> const char* { return nullptr; });
  if (!outcome) return std::move(outcome).error();
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
  EXPECT_EQ(options->max_tokens, 64);
  EXPECT_FALSE(options->length);
  EXPECT_EQ(options->temperature, 0.7);
  EXPECT_EQ(options->top_k, 40);
  EXPECT_EQ(options->top_p, 0.9);
  EXPECT_EQ(options->seed, 7u);
  EXPECT_EQ(options->decoder.options.at("steps"), OptionValue(16));
  EXPECT_EQ(options->block_length, 32);
  EXPECT_EQ(options->decoder.name, "low-confidence");
  EXPECT_EQ(options->decoder.options.at("algorithm_temperature"), OptionValue(0.5));
  EXPECT_EQ(options->cfg_scale, 1.5);
  EXPECT_EQ(options->window.name, "");
  EXPECT_EQ(parse({"--max-tokens", "9"})->max_tokens, 9);
  EXPECT_EQ(parse({"-n", "9"})->max_tokens, 9);
  EXPECT_EQ(parse({"-n", "-1"})->max_tokens, -1);
  EXPECT_EQ(parse({"--canvas-length", "9"})->length, 9);
}

TEST(GenerateFlags, AlgorithmNamesAndNumbers) {
  const char* numbers[] = {"origin", "entropy", "topk-margin", "random", "low-confidence"};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(parse({"--algorithm", std::to_string(i)})->decoder.name, numbers[i]);
  EXPECT_EQ(parse({"--algorithm", "maskgit_plus"})->decoder.name, "maskgit-plus");
  EXPECT_EQ(parse({"--algorithm", "5"}).error().where, "--algorithm");
  EXPECT_NE(parse({"--algorithm", "treshold"}).error().hint.find("'threshold'"), std::string::npos);
}

TEST(GenerateFlags, ARandomSeedOnRequest) {
  const auto options = parse({"--seed", "-1"});
  ASSERT_TRUE(options);
}

TEST(GenerateFlags, EveryOptionHasOne) {
  GenerateOptions options;
  Flags flags("run", "", "");
  add_generate_flags(flags, options);
  std::set<std::string> names;
  for (const Flag& flag : flags.flags())
    for (const std::string& name : flag.names) EXPECT_TRUE(names.insert(name).second) << name;
  const auto has = [&](const OptionInfo& info) {
    EXPECT_FALSE(info.meaning.empty()) << info.key;
    for (const std::string& flag : info.flags) EXPECT_TRUE(names.contains(flag)) << flag;
  };
  for (const OptionInfo& info : options_info().common) has(info);
  for (const PartInfo& part : options_info().parts) {
    if (!part.selector.key.empty()) has(part.selector);
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& info : method.options) has(info);
  }
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
  generation.options.seed = 3;
  EXPECT_EQ(stats_line(generation),
            "answer 20 tokens, 40.0 tok/s · canvas 64 tokens, 128.0 tok/s · 50.00 ms/step · NFE 12 · seed 3 · "
            "#0000000000009f3c");
  EXPECT_EQ(stats_line(Generation{}).substr(0, 26), "answer 0 tokens, 0.0 tok/s");  // no division by zero
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
