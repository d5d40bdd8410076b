#include "format/metadata.h"

#include <gtest/gtest.h>

namespace dllm {
namespace {

Metadata sample() {
  Metadata meta;
  meta.set("int", MetaValue::u32(7));
  meta.set("float", MetaValue::f32(0.5f));
  meta.set("bool", MetaValue::boolean(true));
  meta.set("string", MetaValue::string("text"));
  meta.set("ints", MetaValue::i32s({1, -2}));
  meta.set("floats", MetaValue::f32s({0.5f}));
  meta.set("strings", MetaValue::strings({"a", "b"}));
  meta.set("bools", {MetaType::kArray, MetaType::kBool, std::vector<std::int64_t>{1}});
  return meta;
}

TEST(Metadata, GettersReadTheirTypes) {
  const Metadata meta = sample();
  EXPECT_EQ(**meta.integer("int"), 7);
  EXPECT_EQ(**meta.number("float"), 0.5);
  EXPECT_EQ(**meta.number("int"), 7.0);
  EXPECT_EQ(**meta.boolean("bool"), true);
  EXPECT_EQ(**meta.string("string"), "text");
  EXPECT_EQ(**meta.integers("ints"), (std::vector<std::int64_t>{1, -2}));
  EXPECT_EQ(**meta.numbers("floats"), (std::vector<double>{0.5}));
  EXPECT_EQ(**meta.numbers("ints"), (std::vector<double>{1, -2}));
  EXPECT_EQ(*meta.strings("strings"), &std::get<std::vector<std::string>>(meta.find("strings")->payload));
}

TEST(Metadata, AbsentKeysAreNoErrors) {
  const Metadata meta = sample();
  EXPECT_FALSE(meta.contains("x"));
  EXPECT_EQ(*meta.integer("x"), std::nullopt);
  EXPECT_EQ(*meta.number("x"), std::nullopt);
  EXPECT_EQ(*meta.boolean("x"), std::nullopt);
  EXPECT_EQ(*meta.string("x"), std::nullopt);
  EXPECT_EQ(*meta.integers("x"), std::nullopt);
  EXPECT_EQ(*meta.numbers("x"), std::nullopt);
  EXPECT_EQ(*meta.strings("x"), nullptr);
}

TEST(Metadata, OtherTypesAreErrorsThatNameKeyAndTypes) {
  const Metadata meta = sample();
  const auto check = [](const auto& value, const std::string& expected) {
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().code, ErrorCode::kInvalidFile);
    EXPECT_EQ(value.error().what, expected);
  };
  check(meta.integer("bool"), "key 'bool' is bool, not an integer");
  check(meta.integer("float"), "key 'float' is f32, not an integer");
  check(meta.number("string"), "key 'string' is string, not a number");
  check(meta.boolean("int"), "key 'int' is u32, not a bool");
  check(meta.string("strings"), "key 'strings' is array of string, not a string");
  check(meta.integers("int"), "key 'int' is u32, not an array of integers");
  check(meta.integers("bools"), "key 'bools' is array of bool, not an array of integers");
  check(meta.numbers("strings"), "key 'strings' is array of string, not an array of numbers");
  check(meta.strings("ints"), "key 'ints' is array of i32, not an array of strings");
}

TEST(Metadata, SetReplacesInPlaceAndEraseKeepsTheOrder) {
  Metadata meta = sample();
  const std::size_t size = meta.entries().size();
  meta.set("float", MetaValue::u32(1));
  EXPECT_EQ(meta.entries().size(), size);
  EXPECT_EQ(meta.entries()[1].first, "float");
  EXPECT_EQ(**meta.integer("float"), 1);
  EXPECT_TRUE(meta.erase("int"));
  EXPECT_FALSE(meta.erase("int"));
  EXPECT_EQ(meta.entries().size(), size - 1);
  EXPECT_EQ(meta.entries()[0].first, "float");
  for (const auto& [key, value] : meta.entries()) EXPECT_EQ(meta.find(key), &value) << key;
  meta.set("int", MetaValue::u32(2));
  EXPECT_EQ(meta.entries().back().first, "int");
}

TEST(Metadata, NamesEveryType) {
  EXPECT_EQ(meta_type_name(MetaType::kU8), "u8");
  EXPECT_EQ(meta_type_name(MetaType::kF64), "f64");
  EXPECT_EQ(meta_type_name(static_cast<MetaType>(99)), "unknown");
}

}  // namespace
}  // namespace dllm
