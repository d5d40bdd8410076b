// Properties of every method's declaration.
#include "decode/registry.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace dllm {
namespace {

template <class Entries>
void collect(const Entries& entries, std::vector<const MethodDeclaration*>& all) {
  for (const auto& entry : entries) all.push_back(&entry);
}

std::vector<std::vector<const MethodDeclaration*>> parts() {
  std::vector<std::vector<const MethodDeclaration*>> result(6);
  collect(decoders(), result[0]);
  collect(canvas_decoders(), result[0]);
  collect(windows(), result[1]);
  collect(caches(), result[2]);
  collect(suffixes(), result[3]);
  collect(smoothings(), result[4]);
  collect(modes(), result[5]);
  return result;
}

// One flag and one request field serve all methods that declare the key.
TEST(Registry, MethodsThatShareAKeyAgreeOnIt) {
  std::map<std::string, std::size_t> part_of_key, part_of_flag;
  std::map<std::string, const OptionInfo*> known;
  const auto all = parts();
  for (std::size_t part = 0; part < all.size(); ++part)
    for (const MethodDeclaration* method : all[part])
      for (const OptionInfo& option : method->info.options) {
        SCOPED_TRACE(method->info.name + " " + option.key);
        EXPECT_EQ(part_of_key.emplace(option.key, part).first->second, part) << "two parts have this key";
        for (const std::string& flag : option.flags)
          EXPECT_EQ(part_of_flag.emplace(flag, part).first->second, part) << "two parts have " << flag;
        const OptionInfo& first = *known.emplace(option.key, &option).first->second;
        EXPECT_EQ(option.type, first.type);
        EXPECT_EQ(option.flags, first.flags);
        EXPECT_EQ(option.choices, first.choices);
        EXPECT_EQ(option.unit, first.unit);
        EXPECT_EQ(option.minimum, first.minimum);
        EXPECT_EQ(option.maximum, first.maximum);
      }
}

TEST(Registry, DeclarationsAreWhole) {
  for (const auto& part : parts()) {
    std::set<std::string> names;
    for (const MethodDeclaration* method : part) {
      SCOPED_TRACE(method->info.name);
      if (method->info.name != "entropy-bound" && method->info.name != "threshold") {  // canvas models have them too
        EXPECT_TRUE(names.insert(method->info.name).second);
      }
      EXPECT_FALSE(method->info.meaning.empty());
      std::set<std::string> keys;
      for (const OptionInfo& option : method->info.options) {
        SCOPED_TRACE(option.key);
        EXPECT_TRUE(keys.insert(option.key).second);
        EXPECT_FALSE(option.meaning.empty());
        EXPECT_TRUE(option.flags.front().starts_with("--"));
        EXPECT_TRUE(option.standard || !option.standard_text.empty()) << "what is the default?";
        if (option.standard) {
          EXPECT_TRUE(fit_option(option, *option.standard)) << "the default is not allowed";
        }
      }
    }
  }
}

/// A value that the option accepts.
OptionValue allowed(const OptionInfo& option) {
  if (option.standard) return *option.standard;
  return option.type == OptionType::kNumber ? OptionValue(option.minimum) : OptionValue(std::int64_t{1});
}

TEST(Registry, EveryMethodTakesItsOptionsAndNoOthers) {
  const MethodContext context{.length = 8};
  for (const auto& entry : decoders()) {
    SCOPED_TRACE(entry.info.name);
    for (const auto& other : decoders())
      for (const OptionInfo& option : other.info.options)
        EXPECT_EQ(entry.make({{option.key, allowed(option)}}, context).has_value(), entry.option(option.key) != nullptr)
            << option.key;
  }
  for (const auto& entry : windows()) EXPECT_TRUE(entry.make({}, context)) << entry.info.name;
  for (const auto& entry : caches()) EXPECT_TRUE(entry.make({}, context)) << entry.info.name;
}

TEST(Options, ValuesAreCheckedAgainstTheirDeclaration) {
  const DecoderEntry& factor = **find_method(decoders(), "factor");
  const OptionInfo& info = *factor.option("factor");
  EXPECT_EQ(std::get<double>(*fit_option(info, 2)), 2.0) << "integers are numbers";
  EXPECT_FALSE(fit_option(info, -1.0));
  EXPECT_FALSE(fit_option(info, "two"));
  EXPECT_FALSE(fit_option(info, true));
  EXPECT_FALSE(fit_option(info, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(parse_option(info, "1x"));
  EXPECT_EQ(parse_option(info, "-3").error().where, "--factor");
  const OptionInfo& order = *(*find_method(decoders(), "revision"))->option("refresh_order");
  EXPECT_EQ(std::get<std::string>(*parse_option(order, "unsure")), "unsure");
  EXPECT_NE(parse_option(order, "unsuer").error().hint.find("unsure"), std::string::npos);
}

// The default of an option may depend on the model, the request and other options.
TEST(Options, DefaultsAreFilledIn) {
  ModelDesc desc;
  desc.vocab = 100;
  desc.mask = 99;
  desc.delete_token = 3;
  desc.insert_token = 4;
  const MethodContext context{.block_length = 8, .length = 24};
  const auto complete = [&](const char* decoder, const OptionMap& given) {
    return (*find_method(decoders(), decoder))->complete(given, desc, context);
  };
  EXPECT_EQ(complete("random", {})->at("steps"), OptionValue(24));
  EXPECT_EQ(complete("levenshtein", {})->at("delete_token"), OptionValue(3));
  EXPECT_EQ(complete("levenshtein", {{"delete_token", 7}})->at("delete_token"), OptionValue(7));
  EXPECT_FALSE(complete("levenshtein", {{"delete_token", 4}})) << "that of insertion";
  EXPECT_FALSE(complete("levenshtein", {{"delete_token", 99}})) << "the mask";
  EXPECT_EQ(complete("revision", {{"visible_threshold", 0.5}})->at("revise_threshold"), OptionValue(0.5));
  EXPECT_FALSE(complete("revision", {})->contains("merge_delay")) << "nothing reads it";
  const auto unread = complete("revision", {{"merge_delay", 1}});
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().where, "--merge-delay");
  EXPECT_NE(unread.error().what.find("--refresh-path second"), std::string::npos) << unread.error().what;
  EXPECT_EQ(complete("revision", {{"refresh_path", "second"}})->at("merge_delay"), OptionValue(1));
  EXPECT_EQ((*find_method(windows(), "adaptive"))->complete({}, desc, context)->at("max_window"), OptionValue(32));
}

}  // namespace
}  // namespace dllm
