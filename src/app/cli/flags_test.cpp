#include "app/cli/flags.h"

#include <gtest/gtest.h>

#include <map>

namespace dllm::app {
namespace {

/// A verb with one flag of each kind.
struct Sample {
  std::string text, choice = "red", prompt;
  bool visual = false, raw = false;
  std::int32_t count = 5;
  double share = 0.5;
  std::uint64_t seed = 0;
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;
  Flags flags{"paint", "[OPTIONS] [WORD...]", "Paints"};

  Sample() {
    flags.group("Things");
    flags.add({.names = {"-m", "--model-path"}, .value = "PATH", .help = "a path", .apply = into(text)});
    flags.add({.names = {"--colour", "--color"},
               .value = "NAME",
               .help = "a colour",
               .default_text = "red",
               .choices = {"red", "green"},
               .apply = into(choice, {"red", "green"})});
    flags.add({.names = {"-sys", "--system-prompt"}, .value = "TEXT", .help = "text", .apply = into(prompt)});
    flags.add({.names = {"--visual"}, .help = "look", .apply = into(visual)});
    flags.add({.names = {"--raw", "-no-cnv"}, .help = "raw", .apply = into(raw)});
    flags.add({.names = {"-n", "--count"}, .value = "N", .help = "how many", .apply = into(count, 0, 100)});
    flags.add({.names = {"--share"}, .value = "X", .help = "how much", .apply = into(share, 0, 1)});
    flags.add({.names = {"-s", "--seed"}, .value = "N", .help = "seed", .apply = into(seed)});
    flags.positionals("WORD...", "words", 3, words);
  }

  Expected<ParseOutcome> parse(std::vector<std::string> args) {
    return flags.parse(args, [this](const std::string& name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  }

  std::string error(std::vector<std::string> args) {
    const auto outcome = parse(std::move(args));
    if (outcome) return "no error";
    EXPECT_EQ(outcome.error().code, ErrorCode::kUsage);
    return outcome.error().message();
  }
};

TEST(Flags, EverySpellingReachesItsTarget) {
  Sample s;
  ASSERT_TRUE(s.parse({"-m", "a b", "--color=green", "-sys", "be kind", "--visual", "-no-cnv", "-n7", "--share", "0.25",
                       "-s", "18446744073709551615", "one", "two"}));
  EXPECT_EQ(s.text, "a b");
  EXPECT_EQ(s.choice, "green");
  EXPECT_EQ(s.prompt, "be kind");
  EXPECT_TRUE(s.visual);
  EXPECT_TRUE(s.raw);
  EXPECT_EQ(s.count, 7);
  EXPECT_EQ(s.share, 0.25);
  EXPECT_EQ(s.seed, 18446744073709551615u);
  EXPECT_EQ(s.words, (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(s.flags.given("--colour"));
  EXPECT_TRUE(s.flags.given("--color"));
}

TEST(Flags, ValuesMayLookLikeFlags) {
  Sample s;
  ASSERT_TRUE(s.parse({"-m", "-sys", "--system-prompt", "--visual", "--", "-no-cnv"}));
  EXPECT_EQ(s.text, "-sys");
  EXPECT_EQ(s.prompt, "--visual");
  EXPECT_FALSE(s.visual);
  EXPECT_FALSE(s.raw);
  EXPECT_EQ(s.words, std::vector<std::string>{"-no-cnv"});
}

TEST(Flags, EmptyAndOddValues) {
  Sample s;
  ASSERT_TRUE(s.parse({"-m", "", "-sys", "--", "-", "[1,2]", "--", "--"}));
  EXPECT_EQ(s.text, "");
  EXPECT_TRUE(s.flags.given("-m"));
  EXPECT_EQ(s.prompt, "--");
  EXPECT_EQ(s.words, (std::vector<std::string>{"-", "[1,2]", "--"}));
}

TEST(Flags, SwitchesAreTurnedOffByTheirName) {
  Sample s;
  s.visual = true;
  ASSERT_TRUE(s.parse({"--no-visual", "word"}));
  EXPECT_FALSE(s.visual);
  EXPECT_EQ(s.words, std::vector<std::string>{"word"});
  ASSERT_TRUE(s.parse({"--visual=false"}));
  ASSERT_TRUE(s.parse({"-sys", "--no-visual"}));
  EXPECT_EQ(s.prompt, "--no-visual") << "a value is a value";
  EXPECT_NE(s.error({"--no-count"}).find("--no-count: unknown flag"), std::string::npos) << "no switch";
}

TEST(Flags, AValueOfItsOwnIsNoWordOfThePrompt) {
  Sample s;
  for (const char* value : {"true", "false"}) {
    const std::string message = s.error({"--visual", value, "word"});
    EXPECT_NE(message.find(std::string("--visual ") + value), std::string::npos) << message;
  }
  EXPECT_NE(s.error({"--visual", "false"}).find("--no-visual"), std::string::npos);
  ASSERT_TRUE(s.parse({"--visual", "--", "false"}));
  EXPECT_EQ(s.words, std::vector<std::string>{"false"});
  ASSERT_TRUE(s.parse({"--visual", "on", "the"}));
  EXPECT_EQ(s.words.size(), 2u);
}

TEST(Flags, TheLastOfSeveralWins) {
  Sample s;
  ASSERT_TRUE(s.parse({"-n", "1", "--count", "2", "--visual", "--visual=false"}));
  EXPECT_EQ(s.count, 2);
  EXPECT_FALSE(s.visual);
}

TEST(Flags, HelpIsAsked) {
  Sample s;
  const auto outcome = s.parse({"--help"});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(*outcome, ParseOutcome::kHelp);
  EXPECT_EQ(*Sample().parse({"-h"}), ParseOutcome::kHelp);
}

TEST(Flags, ErrorsNameFlagAndRemedy) {
  EXPECT_EQ(Sample().error({"--visaul"}), "--visaul: unknown flag (did you mean --visual? see dllm paint --help)");
  EXPECT_EQ(Sample().error({"--xyzzy=3"}), "--xyzzy: unknown flag (see dllm paint --help)");
  EXPECT_EQ(Sample().error({"a", "b", "c", "d"}), "'d': unexpected argument (see dllm paint --help)");
  EXPECT_EQ(Sample().error({"-n", "101"}), "--count: 101 is outside [0, 100]");
  EXPECT_EQ(Sample().error({"-n", "7x"}), "--count: '7x' is not an integer");
  EXPECT_EQ(Sample().error({"-n", "99999999999999999999"}), "--count: '99999999999999999999' is not an integer");
  EXPECT_EQ(Sample().error({"--share", "nan"}), "--share: nan is outside [0, 1]");
  EXPECT_EQ(Sample().error({"--share", ""}), "--share: '' is not a number");
  EXPECT_EQ(Sample().error({"--colour", "gren"}), "--colour: 'gren' is unknown (did you mean 'green'?)");
  EXPECT_EQ(Sample().error({"--colour", "ultramarine"}), "--colour: 'ultramarine' is unknown (known: red, green)");
  EXPECT_EQ(Sample().error({"-s", "-2"}), "--seed: '-2' is not an integer from 0 to 2^64-1 (-1: a random one)");
  EXPECT_NE(Sample().error({"-n"}).find("--count"), std::string::npos);
  EXPECT_NE(Sample().error({"--visual=maybe"}).find("neither true nor false"), std::string::npos);
}

TEST(Flags, CombinationsThatAreNotReadAreRefused) {
  bool plot = false, table = false, list = false;
  const auto parse = [&](const std::vector<std::string>& args) {
    Flags flags("draw", "[OPTIONS]", "Draw");
    flags.group("What");
    flags.add({.names = {"-p", "--plot"}, .help = "plot", .apply = into(plot)});
    flags.add({.names = {"--axis"}, .help = "axis", .apply = into(table), .needs = {"-p", "--table"}});
    flags.add({.names = {"--table"}, .help = "table", .apply = into(table), .without = {"--plot"}});
    flags.group("List");
    flags.add({.names = {"--list"}, .help = "list", .apply = into(list)});
    flags.add({.names = {"--long"}, .help = "long", .apply = into(list)});
    flags.read_only_with("List", {"--table"});
    const auto outcome = flags.parse(args, [](const std::string&) -> const char* { return nullptr; });
    return outcome ? std::string() : outcome.error().message();
  };
  EXPECT_EQ(parse({"--axis"}), "--axis: is read only with -p or --table (see dllm draw --help)");
  EXPECT_EQ(parse({"--axis", "--plot"}), "");
  EXPECT_EQ(parse({"--axis", "--table", "--list"}), "");
  EXPECT_EQ(parse({"--plot", "--table"}), "--table: is not read with --plot (leave one of the two out)");
  EXPECT_EQ(parse({"--long", "-p"}), "--long: is read only with --table (see dllm draw --help)");
}

TEST(Flags, EnvironmentTwinsYieldToTheCommandLine) {
  Sample s;
  s.environment = {{"DLLM_ARG_COUNT", "9"},
                   {"DLLM_ARG_MODEL_PATH", "env.gguf"},
                   {"DLLM_ARG_VISUAL", "enabled"},
                   {"DLLM_ARG_RAW", "0"},
                   {"DLLM_ARG_SHARE", ""}};
  ASSERT_TRUE(s.parse({"--count", "3"}));
  EXPECT_EQ(s.count, 3);
  EXPECT_EQ(s.text, "env.gguf");
  EXPECT_TRUE(s.visual);
  EXPECT_FALSE(s.raw);
  EXPECT_EQ(s.share, 0.5);
  EXPECT_TRUE(s.flags.given("-m"));
  EXPECT_FALSE(s.flags.given("--share"));
}

TEST(Flags, EveryLongSpellingHasATwinAndTheFirstWins) {
  Sample alias;
  alias.environment = {{"DLLM_ARG_COLOR", "green"}};
  ASSERT_TRUE(alias.parse({}));
  EXPECT_EQ(alias.choice, "green");
  Sample both;
  both.environment = {{"DLLM_ARG_COLOR", "green"}, {"DLLM_ARG_COLOUR", "red"}};
  ASSERT_TRUE(both.parse({}));
  EXPECT_EQ(both.choice, "red");
}

TEST(Flags, ABadTwinIsNamed) {
  Sample s;
  s.environment = {{"DLLM_ARG_VISUAL", "maybe"}};
  EXPECT_EQ(s.error({}),
            "DLLM_ARG_VISUAL: 'maybe' is neither true nor false (1/true/on/enabled or 0/false/off/disabled)");
  s.environment = {{"DLLM_ARG_COUNT", "-1"}};
  EXPECT_EQ(s.error({}), "DLLM_ARG_COUNT: -1 is outside [0, 100]");
}

TEST(Flags, HelpShowsNamesDefaultAndTwin) {
  const std::string help = Sample().flags.help();
  for (const char* part :
       {"usage: dllm paint [OPTIONS] [WORD...]", "Things:", "-n, --count N", "-sys, --system-prompt TEXT",
        "-no-cnv, --raw", "one of red, green", "default: red", "env: DLLM_ARG_MODEL_PATH"})
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
}

}  // namespace
}  // namespace dllm::app
