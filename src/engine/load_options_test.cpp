// Every load option by its declaration: from text, as what computes the model reads it, and as a key.
#include "engine/load_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/backends.h"
#include "engine/testing/load_values.h"

namespace dllm {
namespace {

using test::allowed_text;
using test::wrong_text;

std::vector<const LoadReader*> readers() {
  std::vector<const LoadReader*> all;
  for (const BackendEntry& entry : backends())
    for (const LoadReader& one : entry.readers) all.push_back(&one);
  return all;
}

const LoadReader& reader(const std::string& backend, std::size_t index) {
  return (*find_backend(backend))->readers.at(index);
}

/// Converts to the type of any member.
struct AnyMember {
  template <class T>
  operator T() const;
};

template <class T, class... Members>
constexpr std::size_t member_count() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; })
    return member_count<T, Members..., AnyMember>();
  else
    return sizeof...(Members);
}

TEST(LoadOptions, EveryMemberHasARow) {
  const auto own = std::ranges::count_if(load_options(), &LoadOption::of_backend);
  EXPECT_EQ(load_options().size() - static_cast<std::size_t>(own), member_count<LoadOptions>() - 4)
      << "backend_options, warnings, progress and poll have none";
}

TEST(LoadOptions, DeclarationsAreWhole) {
  std::set<std::string> names;
  for (const LoadOption& one : load_options()) {
    const OptionInfo& info = one.info();
    SCOPED_TRACE(info.key);
    EXPECT_TRUE(names.insert(info.key).second);
    for (const std::string& flag : info.flags) EXPECT_TRUE(names.insert(flag).second) << flag;
    EXPECT_TRUE(std::ranges::any_of(info.flags, [](const std::string& flag) { return flag.starts_with("--"); }))
        << "errors name a long spelling";
    EXPECT_FALSE(info.meaning.empty());
    EXPECT_EQ(one.value_name.empty(), info.type == OptionType::kBool);
    EXPECT_TRUE(!info.standard_text.empty() || info.type == OptionType::kBool) << "what is the default?";
    EXPECT_EQ(info.choices.empty(), info.type != OptionType::kChoice);
    EXPECT_TRUE(std::ranges::any_of(readers(), [&](const LoadReader* reader) { return reader->reads(one); }));
    EXPECT_FALSE(is_given(one, LoadOptions()));
  }
}

TEST(LoadOptions, EachIsSetFromTextByKeyAndByFlag) {
  for (const LoadOption& one : load_options()) {
    std::vector<std::string> names = one.info().flags;
    names.push_back(one.info().key);
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      LoadOptions load;
      ASSERT_TRUE(load.set(name, allowed_text(one.info())));
      for (const LoadOption& other : load_options())
        EXPECT_EQ(is_given(other, load), &other == &one) << other.info().key;
      EXPECT_NE(load_key(load), load_key({})) << "another load";
    }
  }
  LoadOptions twice;
  ASSERT_TRUE(twice.set("lora", "a"));
  ASSERT_TRUE(twice.set("--lora", "b"));
  EXPECT_EQ(twice.lora, (std::vector<std::string>{"a", "b"}));
}

TEST(LoadOptions, AWrongValueIsRefusedByItsFlag) {
  std::size_t wrong = 0;
  for (const LoadOption& one : load_options()) {
    const std::string text = wrong_text(one.info());
    if (text.empty()) continue;
    SCOPED_TRACE(one.info().key);
    ++wrong;
    LoadOptions load;
    const auto refused = load.set(one.info().key, text);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, test::long_flag(one.info()));
    EXPECT_EQ(load_key(load), load_key({})) << "nothing was set";
  }
  EXPECT_GE(wrong, 10u);
  LoadOptions load;
  const auto unknown = load.set("cache_typ", "f32");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().where, "cache_typ");
  EXPECT_EQ(unknown.error().hint, "did you mean 'cache_type'?");
}

// Programs set the members, which the compiler does not check.
TEST(LoadOptions, WrongMembersAreRefused) {
  LoadOptions load;
  load.threads = 1025;
  EXPECT_EQ(check_load(load, reader("cpu", 0)).error().where, "--threads");
  load = {};
  load.cache_type = "f64";
  const auto refused = check_load(load, reader("cpu", 0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "--cache-type");
  EXPECT_EQ(LanguageModel::load("", load).error().where, "--cache-type");
  load = {};
  load.backend_options["npu_timing"] = std::string("guessed");
  EXPECT_EQ(check_load(load, reader("npu", 1)).error().where, "--npu-timing");
  load = {};
  load.backend_options["npu_timing"] = true;
  EXPECT_EQ(check_load(load, reader("npu", 1)).error().where, "--npu-timing") << "of another type";
  load = {};
  for (const char* key : {"npu_timings", "threads"}) {
    load.backend_options = {{key, std::string("simulated")}};
    const auto unknown = check_load(load, reader("npu", 1));
    ASSERT_FALSE(unknown) << key;
    EXPECT_EQ(unknown.error().where, key);
  }
  EXPECT_EQ(LanguageModel::load("", load).error().where, "threads") << "a member, not an option of one backend";
  load = {};
  load.backend_options["npu_timing"] = std::string("simulated");
  load.numerics = "bf16";
  EXPECT_EQ(LanguageModel::load("", load).error().where, "--npu-timing") << "read by nothing that runs here";
}

TEST(LoadOptions, WhatReadsThemIsDeclared) {
  const auto read = [](const LoadReader& reader) {
    std::string keys;
    for (const LoadOption& one : load_options())
      if (reader.reads(one)) keys += one.info().key + " ";
    return keys;
  };
  const std::string rope = "rope_scaling rope_scale rope_original_context ";
  const std::string device = rope +
                             "lora lora_draft draft_model backend device device_changes npu_values npu_processor npu_timing "
                             "npu_paging npu_all_logits ";
  EXPECT_EQ(read(reader("cpu", 0)), "threads isa cache_type activations arithmetic attention_arithmetic " + rope +
                                        "weight_cache lora lora_draft draft_model mmproj backend ");
  EXPECT_EQ(read(reader("cpu", 1)), "threads " + rope + "numerics lora lora_draft backend ");
  EXPECT_EQ(read(reader("npu", 0)), "threads " + device);
  EXPECT_EQ(read(reader("npu", 1)), device);
  // A build without it reads nothing there.
  if (find_backend("vulkan")) {
    EXPECT_EQ(read(reader("vulkan", 0)),
              "threads cache_type arithmetic " + rope +
                  "weight_cache lora lora_draft draft_model backend device gpu_layers unroll ");
  }
}

TEST(LoadOptions, WhatIsGivenIsReadOrRefused) {
  for (const LoadReader* const reader : readers())
    for (const LoadOption& one : load_options()) {
      SCOPED_TRACE(one.info().key);
      LoadOptions load;
      ASSERT_TRUE(load.set(one.info().key, allowed_text(one.info())));
      const auto fine = check_load(load, *reader);
      EXPECT_EQ(fine.has_value(), reader->reads(one));
      if (fine) continue;
      EXPECT_EQ(fine.error().where, test::long_flag(one.info()));
      EXPECT_FALSE(fine.error().hint.empty());
    }
}

TEST(LoadOptions, ReadersNameWhatIsDeclared) {
  for (const LoadReader* const reader : readers()) {
    SCOPED_TRACE(reader->backend);
    EXPECT_TRUE(find_backend(reader->backend));
    EXPECT_FALSE(reader->refusal.empty());
    for (const std::string& key : reader->keys) {
      const LoadOption* const one = find_load_option(key);
      ASSERT_NE(one, nullptr) << key;
      EXPECT_EQ(one->info().key, key);
    }
  }
}

/// What another backend has is asked for there; what this processor has is done otherwise.
TEST(LoadOptions, RefusalsSayWhoReadsIt) {
  const auto refused = [](const LoadReader& reader, const char* key) {
    LoadOptions load;
    const LoadOption* const one = find_load_option(key);
    EXPECT_TRUE(load.set(key, allowed_text(one->info())));
    return check_load(load, reader).error();
  };
  const Error device = refused(reader("cpu", 0), "npu_timing");
  EXPECT_EQ(device.what, "only --backend npu reads it");
  EXPECT_EQ(device.hint, "add --backend npu");
  EXPECT_EQ(refused(reader("cpu", 1), "isa").what, "the numerics profile says how the model is computed");
  EXPECT_EQ(refused(reader("npu", 0), "isa").what, "the simulated device takes its arithmetic from its profile");
  EXPECT_EQ(refused(reader("npu", 1), "threads").what, "the simulated device takes its arithmetic from its profile");
}

}  // namespace
}  // namespace dllm
