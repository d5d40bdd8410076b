#include "format/toml_table.h"

#include <gtest/gtest.h>

namespace dllm {
namespace {

constexpr std::string_view kText = "name = \"x\"\ncount = 3\n\n[sram]\nrows = 4\nratio = 2\n";

TEST(TomlTable, ReadsAndRemembersTheLine) {
  auto root = TomlTable::parse(kText, "f.toml");
  ASSERT_TRUE(root);
  EXPECT_EQ(*root->text("name"), "x");
  EXPECT_EQ(*root->integer("count"), 3);
  auto sram = root->table("sram");
  ASSERT_TRUE(sram);
  EXPECT_EQ(*sram->integer("rows"), 4);
  EXPECT_EQ(sram->where("ratio"), "f.toml:6");
  EXPECT_EQ(*sram->number("ratio"), 2.0);
  EXPECT_TRUE(sram->finish());
  EXPECT_TRUE(root->finish());
}

TEST(TomlTable, NamesUnknownKeysAndWrongTypes) {
  auto root = TomlTable::parse("clock = 1\nclokc = 2\n", "f.toml");
  ASSERT_TRUE(root);
  ASSERT_TRUE(root->integer("clock"));
  EXPECT_EQ(root->finish().error().message(), "f.toml:2: unknown key 'clokc' (did you mean 'clock'?)");
  auto wrong = TomlTable::parse("a = 1.5\nb = 1\n", "f.toml");
  EXPECT_EQ(wrong->integer("a").error().message(), "f.toml:1: 'a' is a number (it must be an integer)");
  EXPECT_FALSE(wrong->boolean("b"));
  EXPECT_FALSE(wrong->text("c"));
  EXPECT_EQ(TomlTable::parse("a = \n", "f.toml").error().where, "f.toml:1");
}

TEST(TomlTable, ElementsOfListsHaveTheLineOfTheirList) {
  auto root = TomlTable::parse("a = 1\n\nreads = [1, true]\n", "f.toml");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->where("reads[1]"), "f.toml:3");
  const auto reads = root->integers("reads", 0, 9);
  ASSERT_FALSE(reads);
  EXPECT_EQ(reads.error().where, "f.toml:3");
}

TEST(TomlTable, OverridesOneKey) {
  auto changed = with_override(kText, "f.toml", "sram.rows", "16");
  ASSERT_TRUE(changed);
  auto root = TomlTable::parse(*changed, "f.toml");
  EXPECT_EQ(*root->table("sram")->integer("rows"), 16);
  auto word = with_override(kText, "f.toml", "dram.policy", "open");
  ASSERT_TRUE(word);
  EXPECT_EQ(*TomlTable::parse(*word, "f")->table("dram")->text("policy"), "open");
  EXPECT_FALSE(with_override(kText, "f.toml", "name.deeper", "1"));
  EXPECT_FALSE(with_override(kText, "f.toml", "count", "[1"));
}

TEST(TomlTable, KeysOfManyPartsAreRefused) {
  std::string bare = "a", quoted = "\"a.b\"", numbers = "x = [\n";
  for (int i = 0; i < 60'000; ++i) bare += ".a", quoted += " . \"a.b\"";
  for (int i = 0; i < 300; ++i) numbers += "1.5, ";
  for (const std::string& text : {bare + " = 1\n", quoted + " = 1\n", "[" + bare + "]\nb = 1\n", "[[" + bare + "]]\n",
                                  "x = {b = 1, " + bare + " = 1}\n", "x = [{" + quoted + " = 1}]\n"}) {
    const auto table = TomlTable::parse("c = 1\n" + text, "deep.toml");
    ASSERT_FALSE(table);
    EXPECT_EQ(table.error().code, ErrorCode::kInvalidFile);
    EXPECT_EQ(table.error().where, "deep.toml:2");
  }
  for (const std::string& text : {numbers + "]\n", "x = \"" + std::string(200, '.') + "\"\n", "# " + bare + "\n",
                                  std::string("a.b.c.d = 1\n"), "x = \"\"\"\n" + std::string(200, '.') + "\n\"\"\"\n"})
    EXPECT_TRUE(TomlTable::parse(text, "flat.toml")) << text;
  // Quotes in strings of several lines hide no key.
  for (const char* before :
       {"x = {b = \"\"\"\n'\"\"\", ", "x = {b = \'\'\'\n\"\'\'\', ", "x = {b = \"\"\"\n\\\"\"\"\"\"\", "})
    EXPECT_NE(TomlTable::parse(before + quoted + " = 1}\n", "deep.toml").error().what.find("16 parts"),
              std::string::npos)
        << before;
  const auto set = with_override("c = 1\n", "c.toml", bare, "1");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, ErrorCode::kUsage);
}

TEST(TomlTable, KeysHaveAtMostSixteenParts) {
  const auto key = [](int parts) {
    std::string text = "a";
    for (int i = 1; i < parts; ++i) text += ".a";
    return text;
  };
  EXPECT_TRUE(TomlTable::parse(key(16) + " = 1\n", "f"));
  EXPECT_FALSE(TomlTable::parse(key(17) + " = 1\n", "f"));
  EXPECT_TRUE(with_override("c = 1\n", "f", key(16), "1"));
  EXPECT_FALSE(with_override("c = 1\n", "f", key(17), "1"));
  EXPECT_TRUE(with_override("c = 1\n", "f", "b", "{" + key(16) + " = 1}"));
  for (const std::string& value :
       {"{" + key(17) + " = 1}", "[{x = {" + key(17) + " = 1}}]", "1\n" + key(17) + " = 1"}) {
    const auto set = with_override("c = 1\n", "f", "b", value);
    ASSERT_FALSE(set) << value;
    EXPECT_EQ(set.error().code, ErrorCode::kUsage);
    EXPECT_NE(set.error().what.find("16 parts"), std::string::npos);
    EXPECT_EQ(set.error().where, "b");
  }
  EXPECT_TRUE(with_override("c = 1\n", "f", "c", key(17))) << "a word";
}

TEST(TomlTable, LongKeysInDeepTablesFitIntoTheStack) {
  std::string value = "1";
  for (int i = 0; i < 200; ++i) value = "{a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = " + value + "}";
  EXPECT_TRUE(TomlTable::parse("a = " + value + "\n", "deep.toml"));
  EXPECT_TRUE(with_override("c = 1\n", "c.toml", "b", value));
}

TEST(TomlTable, ScalarTexts) {
  auto root = TomlTable::parse("a = [1, 2.5, \"w\"]\nb = true\n", "f.toml");
  EXPECT_EQ(*root->scalar_texts("a"), (std::vector<std::string>{"1", "2.5", "'w'"}));
  EXPECT_EQ(*root->scalar_texts("b"), std::vector<std::string>{"true"});
}

}  // namespace
}  // namespace dllm
