#include "app/compare_spec.h"

#include <gtest/gtest.h>

#include "app/testing/fuzz_entry.h"
#include "base/testing/fuzz_replay.h"

namespace dllm::app {
namespace {

TEST(CompareSpec, Words) {
  EXPECT_EQ(*split_words("  -a 'b c' \"d\\\"e\" f\\ g '' h"),
            (std::vector<std::string>{"-a", "b c", "d\"e", "f g", "", "h"}));
  EXPECT_TRUE(split_words(" ")->empty());
  EXPECT_EQ(split_words("'open").error().code, ErrorCode::kUsage);
}

TEST(CompareSpec, NamedAndUnnamed) {
  EXPECT_EQ(parse_compared("dual: --cache dual")->name, "dual");
  EXPECT_EQ(parse_compared("dual: --cache dual")->options, " --cache dual");
  EXPECT_EQ(parse_compared("--cache dual")->name, "--cache dual");
  EXPECT_EQ(parse_compared("")->name, "defaults");
  EXPECT_NE(parse_compared("dual").error().message().find("NAME: OPTIONS"), std::string::npos);
  EXPECT_NE(parse_compared("sets/items.jsonl").error().message().find("--items sets/items.jsonl"), std::string::npos);
}

TEST(CompareSpec, Toml) {
  const auto spec = parse_compare_spec(
      "items = \"i.jsonl\"\nmodel = \"../m.gguf\"\noptions = \"-n 64\"\n[[configuration]]\nname = \"a\"\noptions = "
      "\"\"\n"
      "[[configuration]]\nname = \"b\"\noptions = \"--cache dual\"\n",
      "docs/x.toml");
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->items, "docs/i.jsonl");
  EXPECT_EQ(spec->model, "docs/../m.gguf");
  EXPECT_EQ(spec->options, "-n 64");
  ASSERT_EQ(spec->configurations.size(), 2u);
  EXPECT_EQ(spec->configurations[1].options, "--cache dual");
  const std::string end = "[[configuration]]\nname = \"a\"\noptions = \"\"\n";
  const auto sets = parse_compare_spec("choose = \"c\"\npublish = \"p\"\ntried = 24\n" + end, "docs/x.toml");
  ASSERT_TRUE(sets) << sets.error().message();
  EXPECT_EQ(sets->choose, "docs/c");
  EXPECT_EQ(sets->publish, "docs/p");
  EXPECT_EQ(sets->tried, 24);
  for (const std::string head : {"items = \"i\"\nchoose = \"c\"\n", "tried = 0\n", "tried = \"x\"\n"})
    EXPECT_EQ(parse_compare_spec(head + end, "x.toml").error().code, ErrorCode::kInvalidFile) << head;
  for (const char* bad : {"colour = 1", "[[configuration]]\nname = \"a\"", "options = \"\"",
                          "[[configuration]]\nname=\"a\"\noptions=\"\"\n[[configuration]]\nname=\"a\"\noptions=\"\""})
    EXPECT_EQ(parse_compare_spec(bad, "x.toml").error().code, ErrorCode::kInvalidFile) << bad;
}

TEST(FuzzCorpus, CompareSpec) { test::replay_corpus("compare_spec", 100, fuzz_compare_spec); }

}  // namespace
}  // namespace dllm::app
