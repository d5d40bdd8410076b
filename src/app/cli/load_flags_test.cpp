// Every load option has a flag and an environment variable, and each names what is wrong with its value.
#include <gtest/gtest.h>

#include "app/cli/options.h"
#include "engine/load_options.h"
#include "engine/testing/load_values.h"

namespace dllm::app {
namespace {

/// What a command line and an environment of at most one variable make of the options, or the error.
Expected<LoadOptions> parsed(const std::vector<std::string>& args, const std::string& variable = "",
                             const std::string& value = "") {
  LoadOptions load;
  Flags flags("run", "", "");
  add_load_flags(flags, load);
  const auto outcome =
      flags.parse(args, [&](const std::string& name) { return name == variable ? value.c_str() : nullptr; });
  if (!outcome) return outcome.error();
  return load;
}

std::string variable_of(const OptionInfo& info) { return Flag{.names = info.flags}.environment_name(); }

TEST(LoadFlags, EachOptionIsSetByFlagAndByVariable) {
  for (const LoadOption& one : load_options()) {
    const OptionInfo& info = one.info();
    SCOPED_TRACE(info.key);
    const std::string text = test::allowed_text(info);
    LoadOptions expected;
    ASSERT_TRUE(expected.set(info.key, text));
    for (const std::string& flag : info.flags) {
      const bool toggle = info.type == OptionType::kBool;
      const auto by_flag = parsed(toggle ? std::vector{flag} : std::vector{flag, text});
      ASSERT_TRUE(by_flag) << flag << ": " << by_flag.error().what;
      EXPECT_EQ(load_key(*by_flag), load_key(expected));
    }
    const auto by_variable = parsed({}, variable_of(info), text);
    ASSERT_TRUE(by_variable) << by_variable.error().what;
    EXPECT_EQ(load_key(*by_variable), load_key(expected));
  }
}

TEST(LoadFlags, AWrongValueIsNamedByFlagAndByVariable) {
  std::size_t wrong = 0;
  for (const LoadOption& one : load_options()) {
    const OptionInfo& info = one.info();
    const std::string text = test::wrong_text(info);
    if (text.empty()) continue;
    SCOPED_TRACE(info.key);
    ++wrong;
    const auto by_variable = parsed({}, variable_of(info), text);
    ASSERT_FALSE(by_variable);
    EXPECT_EQ(by_variable.error().where, variable_of(info));
    if (info.type == OptionType::kBool) continue;  // a switch has no value
    const auto by_flag = parsed({info.flags.front(), text});
    ASSERT_FALSE(by_flag);
    EXPECT_EQ(by_flag.error().where, test::long_flag(info));
    EXPECT_FALSE(by_flag.error().hint.empty()) << "what is allowed";
  }
  EXPECT_GE(wrong, 10u);
}

TEST(LoadFlags, AVerbMayReadAnOptionItsOwnWay) {
  LoadOptions load;
  Flags flags("bench", "", "");
  add_load_flags(flags, load, {"threads"});
  EXPECT_FALSE(flags.has("--threads"));
  EXPECT_TRUE(flags.has("--isa"));
}

}  // namespace
}  // namespace dllm::app
