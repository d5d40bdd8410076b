#include "app/compare_spec.h"

#include <gtest/gtest.h>

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
  EXPECT_FALSE(parse_compared("dual"));
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
  for (const char* bad : {"colour = 1", "[[configuration]]\nname = \"a\"", "options = \"\"",
                          "[[configuration]]\nname=\"a\"\noptions=\"\"\n[[configuration]]\nname=\"a\"\noptions=\"\""})
    EXPECT_EQ(parse_compare_spec(bad, "x.toml").error().code, ErrorCode::kInvalidFile) << bad;
}

}  // namespace
}  // namespace dllm::app
