#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/model_file.h"
#include "app/cli/model_listing.h"
#include "app/cli/verb.h"

namespace dllm::app {
namespace {

struct Result {
  int code;
  std::string out, err;
};

Result run(const std::vector<std::string>& args, std::vector<std::string> variables = {}) {
  static Interrupt interrupt;
  std::istringstream in;
  std::ostringstream out, err;
  Terminal terminal{in, out, err};
  const int code = run_program(
      args, terminal, interrupt, [](const std::string&) -> const char* { return nullptr; }, std::move(variables));
  return {code, out.str(), err.str()};
}

TEST(Program, HelpOnStandardOutput) {
  for (const auto& args : {std::vector<std::string>{}, {"--help"}, {"-h"}, {"help"}}) {
    const Result result = run(args);
    EXPECT_EQ(result.code, 0);
    EXPECT_TRUE(result.err.empty());
    for (const VerbEntry& verb : verbs()) EXPECT_NE(result.out.find(verb.name), std::string::npos) << verb.name;
  }
}

TEST(Program, VariablesOfNoFlagAreErrors) {
  EXPECT_EQ(run({"inspect", "--help"}, {"DLLM_ARG_BLOCK_LENGTH", "DLLM_ARG_DEVICE"}).code, 0);  // of other verbs
  const Result wrong = run({"inspect", "--help"}, {"DLLM_ARG_DEVICE", "DLLM_ARG_BLOCK_LENGHT"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("DLLM_ARG_BLOCK_LENGHT"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("did you mean DLLM_ARG_BLOCK_LENGTH"), std::string::npos) << wrong.err;
}

/// Verbs that run, including those of groups.
std::vector<const VerbEntry*> runnable_verbs() {
  std::vector<const VerbEntry*> all;
  for (const VerbEntry& entry : verbs()) {
    if (entry.group == nullptr) {
      all.push_back(&entry);
      continue;
    }
    for (const VerbEntry& member : entry.group()) {
      EXPECT_TRUE(member.name.starts_with(std::string(entry.name) + " ")) << member.name;
      all.push_back(&member);
    }
  }
  return all;
}

/// "npu run" as two words.
std::vector<std::string> words_of(std::string_view name) {
  const std::size_t space = name.find(' ');
  if (space == std::string_view::npos) return {std::string(name)};
  return {std::string(name.substr(0, space)), std::string(name.substr(space + 1))};
}

TEST(Program, EveryVerbHasHelpWithTwinsForEveryFlag) {
  for (const VerbEntry* verb_entry : runnable_verbs()) {
    const VerbEntry& entry = *verb_entry;
    std::vector<std::string> words = words_of(entry.name);
    words.emplace_back("--help-all");
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << entry.name;
    words.back() = "--help";
    const std::string screen = run(words).out;
    EXPECT_LE(std::count(screen.begin(), screen.end(), '\n'), Flags::kHelpLines) << entry.name << "\n" << screen;
    EXPECT_NE(screen.find("usage: dllm " + std::string(entry.name)), std::string::npos);
    const auto verb = entry.make();
    const Flags declared = declared_flags(entry, *verb);
    for (const Flag& flag : declared.flags()) {
      EXPECT_NE(result.out.find(flag.environment_name()), std::string::npos) << flag.long_name();
      EXPECT_TRUE(flag.long_name().starts_with("--")) << flag.long_name();
    }
    words.pop_back();
    words.insert(words.begin(), "help");
    EXPECT_EQ(run(words).out, screen);
  }
}

TEST(Program, SpellingsOfAVerbAreUnique) {
  for (const VerbEntry* verb_entry : runnable_verbs()) {
    const VerbEntry& entry = *verb_entry;
    const auto verb = entry.make();
    std::vector<std::string> names = {"-h", "--help"};
    const Flags declared = declared_flags(entry, *verb);
    for (const Flag& flag : declared.flags())
      for (const std::string& name : flag.names) {
        EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << entry.name << " " << name;
        names.push_back(name);
      }
  }
}

TEST(Program, MistakesAreOneLineAndCodeTwo) {
  const std::vector<std::vector<std::string>> mistakes = {{"rnu"},
                                                          {"what is 2+2?"},
                                                          {"--verison"},
                                                          {"--completion", "tcsh"},
                                                          {"--completion"},
                                                          {"run", "--stpes", "3"},
                                                          {"run", "-n", "0", "x"},
                                                          {"quantize", "a"},
                                                          {"convert"},
                                                          {"logits"},
                                                          {"eval"},
                                                          {"run", "--temp", "-1", "x"}};
  for (const auto& args : mistakes) {
    const Result result = run(args);
    EXPECT_EQ(result.code, 2) << args[0];
    EXPECT_TRUE(result.out.empty()) << result.out;
    EXPECT_EQ(result.err.rfind("error: ", 0), 0u) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  EXPECT_NE(run({"rnu"}).err.find("did you mean run?"), std::string::npos);
}

TEST(Program, CompletionNamesVerbsAndFlags) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result result = run({"--completion", shell});
    EXPECT_EQ(result.code, 0);
    for (const char* word : {"quantize", "block-length", "low-confidence"})
      EXPECT_NE(result.out.find(word), std::string::npos) << shell << " " << word;
  }
}

TEST(Program, MissingFilesAreCodeThree) {
  EXPECT_EQ(run({"inspect", "/nonexistent.gguf"}).code, 3);
  EXPECT_EQ(run({"tokenize", "-m", "/nonexistent.gguf", "x"}).code, 3);
  EXPECT_EQ(run({"eval", "/nonexistent.jsonl"}).code, 3);
}

TEST(ParseIds, SeparatorsAndErrors) {
  EXPECT_EQ(*parse_ids("1, 2,3  4\n", "x"), (std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_TRUE(parse_ids("", "x")->empty());
  EXPECT_EQ(parse_ids("1 b", "--tokens").error().message(), "--tokens: 'b' is not a token id");
  EXPECT_FALSE(parse_ids("99999999999", "x"));
}

ModelListing sample_listing() {
  ModelListing listing{.path = "x.gguf", .format = "GGUF v3", .architecture = "future", .description = "a model"};
  listing.metadata.set("general.name", MetaValue::string("evil \x1b[2J\nname"));
  listing.metadata.set("tokenizer.ggml.tokens", MetaValue::strings({"a", "b", "c", "d", "e", "f", "g", "h"}));
  listing.metadata.set("future.flag", MetaValue::boolean(true));
  listing.tensors.push_back({"token_embd.weight", TensorType::kF16, {4, 8}, 64, 128});
  return listing;
}

TEST(Listing, TextIsSafeAndShort) {
  const std::string text = listing_text(sample_listing(), {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  for (const char* part : {"architecture future", "\"evil \\x1b[2J\\nname\"", "...] (8 elements)", "string[]",
                           "token_embd.weight  F16     [4, 8]", "32 parameters, 64 B, 16.00 bits per weight"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_NE(listing_text(sample_listing(), {.full_arrays = true}).find("\"h\"]"), std::string::npos);
}

TEST(Listing, Filters) {
  const std::string text = listing_text(sample_listing(), {.metadata = false});
  EXPECT_EQ(text.find("general.name"), std::string::npos);
  EXPECT_NE(text.find("token_embd"), std::string::npos);
  const auto json = listing_json(sample_listing(), {.match = "flag"});
  EXPECT_EQ(json["metadata"].size(), 1u);
  EXPECT_EQ(json["metadata"]["future.flag"], true);
  EXPECT_TRUE(json["tensors"].empty());
  EXPECT_EQ(json["total"]["parameters"], 32);
}

}  // namespace
}  // namespace dllm::app
