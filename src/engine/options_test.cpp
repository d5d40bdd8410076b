// Options belong to methods: valid combinations are accepted, all others are refused by name. All cases come from the
// registry.
#include "dllm/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "dllm/model.h"
#include "engine/option_parts.h"
#include "engine/resolve.h"
#include "engine/trace.h"

namespace dllm {
namespace {

/// A model that fills masks, without a file. Shifted, so that --keep-front has an effect.
ModelDesc masked_model() {
  ModelDesc desc;
  desc.vocab = 100;
  desc.mask = 99;
  desc.delete_token = 3;
  desc.insert_token = 4;
  desc.logit_shift = 1;
  desc.context_length = 1024;
  desc.newlines = {5};
  return desc;
}

/// ... that the method is for: of full attention, else of several modes, or block-causal.
ModelDesc model_of(const MethodInfo& method) {
  ModelDesc desc = masked_model();
  if (method.name == "grow") desc.stop_ids = {2};
  for (const OptionPart& part : option_parts())
    for (const MethodDeclaration* one : part.methods) {
      if (one->info.name != method.name || !one->suits || one->suits(desc)) continue;
      if (method.name == "slots") {
        desc.modes = {DecodingMode::kSlots}, desc.slot_length = 8;
      } else if (part.name == "mode") {
        desc.modes = {DecodingMode::kAutoregressive, DecodingMode::kDiffusion, DecodingMode::kSelfSpeculation};
        desc.logit_shift = 0;
      } else {
        desc.causal_block = 32;
      }
    }
  return desc;
}

MethodChoice& field(GenerateOptions& options, const std::string& part) {
  if (part == "decoder") return options.decoder;
  if (part == "window") return options.window;
  if (part == "cache") return options.cache;
  if (part == "mode") return options.mode;
  return part == "suffix" ? options.suffix : options.smoothing;
}

OptionValue allowed(const OptionInfo& option) {
  if (option.standard) return *option.standard;
  return option.type == OptionType::kNumber ? OptionValue(option.minimum) : OptionValue(std::int64_t{1});
}

bool has(const MethodInfo& method, const std::string& key) {
  for (const OptionInfo& option : method.options)
    if (option.key == key) return true;
  return false;
}

// The default value, given explicitly, counts as given.
TEST(Options, EveryPairThatDoesNotBelongTogetherIsRefused) {
  int refused = 0, taken = 0;
  for (const PartInfo& part : options_info().parts)
    for (const MethodInfo& method : part.methods)
      for (const MethodInfo& other : part.methods)
        for (const OptionInfo& option : other.options) {
          SCOPED_TRACE(method.name + " " + option.key);
          GenerateOptions options;
          field(options, part.name) = {method.name, {{option.key, allowed(option)}}};
          const auto resolved = resolve_options(options, model_of(method));
          if (has(method, option.key)) {
            if (!resolved) {  // only its condition may prevent it
              EXPECT_NE(resolved.error().what.find("read only with"), std::string::npos) << resolved.error().message();
            }
            ++taken;
            continue;
          }
          ASSERT_FALSE(resolved);
          EXPECT_EQ(resolved.error().code, ErrorCode::kUsage);
          EXPECT_EQ(resolved.error().where, option.flags.front());
          EXPECT_NE(resolved.error().what.find("'" + method.name + "' does not read it"), std::string::npos);
          EXPECT_NE(resolved.error().hint.find(other.name), std::string::npos) << resolved.error().hint;
          ++refused;
        }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 100);
}

TEST(Options, AnAnswerGrowsOnlyWhereItsEndIsPredicted) {
  ModelDesc desc = masked_model();
  GenerateOptions options;
  options.suffix.name = "grow";
  const auto refused = [&](const GenerateOptions& given, const char* words) {
    const auto resolved = resolve_options(given, desc);
    ASSERT_FALSE(resolved) << words;
    EXPECT_EQ(resolved.error().where, "--suffix");
    EXPECT_NE(resolved.error().message().find(words), std::string::npos) << resolved.error().message();
  };
  refused(options, "names no token that ends an answer");
  desc.stop_ids = {2};
  desc.eos = 2;
  EXPECT_TRUE(resolve_options(options, desc));
  GenerateOptions exact = options, late = options;
  exact.exact_length = true;
  refused(exact, "--exact-length");
  late.defer_eos = true;
  refused(late, "--defer-eos");
  EXPECT_EQ(resolve_options(options, desc)->suffix.options.at("grow_insert"), OptionValue(std::int64_t{8}));
  GenerateOptions sliding = options, revises = options, moved = options, smooth = options, structure = options;
  sliding.window.name = "sliding";
  revises.decoder.name = "revision";
  moved.decoder.name = "credit";
  smooth.smoothing.options["smooth"] = 0.3;
  structure.regex = "a*";
  for (GenerateOptions given : {sliding, revises, moved, smooth, structure}) {
    const auto fixed = resolve_options(given, desc);
    ASSERT_TRUE(fixed) << fixed.error().message();
    EXPECT_EQ(fixed->suffix.options.at("grow_insert"), OptionValue(std::int64_t{1})) << "nothing may move";
    EXPECT_FALSE(fixed->suffix.options.contains("grow_insert_until"));
    given.suffix.options["grow_insert"] = std::int64_t{1};
    EXPECT_TRUE(resolve_options(given, desc));
    given.suffix.options["grow_insert"] = std::int64_t{4};
    refused(given, "--grow-insert 1");
  }
}

TEST(Options, OptionsWithAConditionAreRefusedWithoutIt) {
  int conditions = 0;
  for (const PartInfo& part : options_info().parts)
    for (const MethodInfo& method : part.methods) {
      const ModelDesc desc = model_of(method);
      GenerateOptions plain;
      field(plain, part.name).name = method.name;
      const auto defaults = resolve_options(plain, desc);
      ASSERT_TRUE(defaults) << method.name << ": " << defaults.error().message();
      for (const OptionInfo& option : method.options) {
        if (option.condition.empty()) continue;
        ++conditions;
        GenerateOptions options = plain;
        field(options, part.name).options[option.key] = allowed(option);
        const auto resolved = resolve_options(options, desc);
        const bool listed = std::ranges::any_of(defaults->values, [&](const auto& v) { return v.first == option.key; });
        EXPECT_TRUE(resolved || !listed) << method.name << " " << option.key;
        if (resolved) continue;
        EXPECT_EQ(resolved.error().where, option.flags.front());
        EXPECT_NE(resolved.error().what.find(option.condition), std::string::npos) << resolved.error().what;
      }
    }
  EXPECT_GT(conditions, 8);
}

std::string error_of(const GenerateOptions& options, const ModelDesc& desc = masked_model()) {
  const auto resolved = resolve_options(options, desc);
  return resolved ? "" : resolved.error().message();
}

TEST(Options, WhatNothingReadsIsNamed) {
  GenerateOptions options;
  options.decoder = {"low-confidence", {{"threshold", 0.5}}};
  EXPECT_NE(error_of(options).find("--threshold: decoder 'low-confidence' does not read it"), std::string::npos);
  EXPECT_NE(error_of(options).find("threshold, margin"), std::string::npos) << error_of(options);
  options.decoder = {"threshold", {{"no_such", 1}}};
  EXPECT_NE(error_of(options).find("no_such"), std::string::npos);
  options = {};
  options.window.name = "whole";
  options.block_length = 32;
  EXPECT_NE(error_of(options).find("--block-length: window 'whole' does not read it"), std::string::npos);
  options = {};
  options.window.name = "whole";
  options.suffix.name = "near";
  EXPECT_NE(error_of(options).find("--suffix: window 'whole'"), std::string::npos);
  options = {};
  options.top_k = 40;
  EXPECT_NE(error_of(options).find("--top-k: it has no effect at temperature 0"), std::string::npos);
  for (const char* filter : {"top_p", "min_p"}) {
    GenerateOptions other;
    ASSERT_TRUE(other.set(filter, "0.5"));
    EXPECT_NE(error_of(other).find("it has no effect at temperature 0"), std::string::npos) << filter;
  }
  options.temperature = 0.5;
  EXPECT_EQ(error_of(options), "");
  options.temperature = 0;
  options.decoder.name = "origin";  // computes confidence on the filtered distribution
  EXPECT_EQ(error_of(options), "");
}

TEST(Options, ModelsDecideToo) {
  ModelDesc plain = masked_model(), causal = masked_model(), autoregressive = masked_model();
  plain.logit_shift = 0;
  causal.causal_block = 8;
  autoregressive.causal_block = 1;
  autoregressive.block_length = 1;
  autoregressive.mask.reset();
  GenerateOptions options;
  options.cache = {"dual", {{"keep_front", true}}};
  EXPECT_EQ(error_of(options), "");
  EXPECT_NE(error_of(options, plain).find("--keep-front: the model predicts"), std::string::npos);
  options = {};
  options.suffix.name = "full";
  EXPECT_NE(error_of(options, causal).find("--suffix"), std::string::npos);
  options = {};
  options.cache.name = "block-causal";
  EXPECT_NE(error_of(options).find("--cache: its rows are final only under block-causal attention"), std::string::npos)
      << error_of(options);
  options = {};
  EXPECT_EQ(resolve_options(options, causal)->cache.name, "block-causal");
  EXPECT_EQ(resolve_options(options, plain)->cache.name, "none");
  EXPECT_EQ(resolve_options(options, autoregressive)->decoder.name, "low-confidence");
  EXPECT_EQ(resolve_options(options, autoregressive)->block_length, 1);
  options.decoder = {"revision", {{"refresh_path", "second"}}};
  EXPECT_EQ(error_of(options), "");
  EXPECT_NE(error_of(options, causal).find("--refresh-path"), std::string::npos);
  EXPECT_NE(error_of(options, autoregressive).find("--"), std::string::npos);
  options.cfg_scale = 1;
  EXPECT_NE(error_of(options).find("guidance"), std::string::npos);
}

/// So that one command line serves models of several modes and autoregressive ones.
TEST(Options, AnAutoregressiveModelMayBeAskedForWhatItDoes) {
  ModelDesc autoregressive = masked_model();
  autoregressive.causal_block = 1;
  autoregressive.block_length = 1;
  autoregressive.mask.reset();
  GenerateOptions options;
  options.mode.name = "ar";
  EXPECT_EQ(error_of(options, autoregressive), "");
  EXPECT_EQ(resolve_options(options, autoregressive)->mode.name, "");
  EXPECT_NE(error_of(options).find("--mode"), std::string::npos) << "a masked model has another";
  options.mode.options = {{"draft_max", std::int64_t{8}}};
  EXPECT_NE(error_of(options, autoregressive).find("--draft-max"), std::string::npos);
  for (const char* other : {"diffusion", "self-speculation"}) {
    options.mode = {other, {}};
    EXPECT_NE(error_of(options, autoregressive).find("--mode"), std::string::npos) << other;
  }
}

TEST(Options, WhatCannotChangeAnythingIsRefused) {
  ModelDesc plain = masked_model(), stops = masked_model(), autoregressive = masked_model();
  stops.eos = 7;
  stops.stop_ids = {7, 8};
  autoregressive.causal_block = autoregressive.block_length = 1;
  autoregressive.mask.reset();
  autoregressive.eos = 7;
  autoregressive.stop_ids = {7};
  EXPECT_NE(error_of({.suppress_eos = true}, plain).find("--suppress-eos: the model names no"), std::string::npos);
  EXPECT_NE(error_of({.defer_eos = true}, plain).find("--defer-eos: the model names no"), std::string::npos);
  EXPECT_EQ(error_of({.suppress_eos = true, .defer_eos = true}, stops), "");
  stops.stop_ids = {7};
  EXPECT_NE(error_of({.suppress_eos = true, .defer_eos = true}, stops).find("--defer-eos: under"), std::string::npos);
  EXPECT_NE(error_of({.block_origin = "absolute"}, autoregressive).find("--block-origin"), std::string::npos);
  EXPECT_NE(error_of({.defer_eos = true}, autoregressive).find("--defer-eos"), std::string::npos);
  EXPECT_NE(error_of({.compat = true}, autoregressive).find("--compat"), std::string::npos);
  EXPECT_NE(error_of({.decoder = {"threshold", {{"threshold", 0.5}}}}, autoregressive).find("--threshold"),
            std::string::npos);
  EXPECT_EQ(error_of({.suppress_eos = true, .decoder = {"threshold"}}, autoregressive), "");

  const auto refused = [](GenerateOptions options, const char* message) {
    EXPECT_NE(error_of(options).find(message), std::string::npos) << error_of(options);
  };
  refused({.decoder = {"revision", {{"refresh_rows", 0}, {"refresh_order", "unsure"}}}}, "--refresh-order: is read");
  refused({.decoder = {"revision", {{"refresh_rows", 0}, {"refresh_path", "second"}}}}, "--refresh-path: is read");
  refused({.decoder = {"revision", {{"max_revisions", 0}, {"reopen", true}}}}, "--reopen: is read only");
  refused({.decoder = {"revision", {{"remask_visible", true}, {"leave_one_out", true}}}}, "--remask-visible: under");
  refused({.decoder = {"credit", {{"credit_alpha", 0}, {"credit_beta", 0.5}}}}, "--credit-beta: is read only");
  refused({.window = {"lookahead", {{"lookahead_masks", 0}, {"show_drafts", true}}}}, "--show-drafts: is read only");
  refused({.cache = {"partial", {{"response_interval", 1}, {"refresh_share", 0.5}}}}, "--refresh-share: is read only");
  refused({.decoder = {"revision"}, .smoothing = {"", {{"smooth", 0.3}}}}, "--smooth: decoder 'revision' does not");
  refused({.decoder = {"levenshtein"}, .smoothing = {"", {{"smooth", 0.3}}}}, "--smooth: decoder 'levenshtein'");
}

TEST(Options, AnEpsMeansTheWholeAnswerAsOneWindow) {
  const auto window = [](const GenerateOptions& options) {
    return resolve_options(options, masked_model())->window.name;
  };
  GenerateOptions eps{.decoder = {"entropy", {{"eps", 0.01}}}};
  EXPECT_EQ(window(eps), "whole");
  eps.block_length = 32;
  EXPECT_EQ(window(eps), "block");
  eps = {.decoder = {"entropy", {{"eps", 0.01}}}, .window = {"sliding"}};
  EXPECT_EQ(window(eps), "sliding");
  EXPECT_EQ(window({.decoder = {"entropy"}}), "block");
}

TEST(Options, TheContextIsTheModelsUnlessASmallerOneIsGiven) {
  const auto context = [](const GenerateOptions& options) { return resolve_options(options, masked_model())->context; };
  EXPECT_EQ(context({}), 1024);
  EXPECT_EQ(context({.context = 100}), 100);
  EXPECT_EQ(context({.context = 5000}), 1024);
  EXPECT_NE(error_of({.context = 0}).find("--ctx-size: 0 is outside"), std::string::npos);
  EXPECT_NE(error_of({.context = 0}).find("if left out: the model's context"), std::string::npos);
}

GenerateOptions preset(const char* name) {
  GenerateOptions options;
  options.preset = name;
  return options;
}

TEST(Options, APresetIsOverriddenByWhatIsGiven) {
  const ModelDesc desc = masked_model();
  const auto resolved = [&](const GenerateOptions& options) { return *resolve_options(options, desc); };
  GenerateOptions options;
  for (const PresetInfo& one : options_info().presets) {
    options.preset = one.name;
    EXPECT_EQ(error_of(options), "") << one.name;
  }
  options.preset = "fast";
  EXPECT_EQ(resolved(options).cache.name, "dual");
  EXPECT_EQ(resolved(options).decoder.options.at("stable_threshold"), OptionValue(0.99));
  options.decoder.options["stable_threshold"] = 0.95;
  EXPECT_EQ(resolved(options).decoder.name, "revision");
  EXPECT_EQ(resolved(options).decoder.options.at("stable_threshold"), OptionValue(0.95));
  options.decoder = {"threshold", {{"threshold", 0.8}}};
  EXPECT_EQ(resolved(options).decoder.options, (OptionMap{{"threshold", 0.8}}));
  EXPECT_EQ(resolved(options).cache.name, "dual");
  options.preset = "frugal";
  options.decoder = {};
  EXPECT_EQ(resolved(options).cache.name, "delayed-greedy");
  EXPECT_EQ(resolved(options).decoder.options.at("stable_threshold"), OptionValue(0.99));
  options.preset = "swift";
  EXPECT_EQ(resolved(options).cache.name, "delayed-greedy");
  EXPECT_EQ(resolved(options).decoder.options.at("run_threshold"), OptionValue(0.3));
  options.preset = "exact";
  EXPECT_EQ(resolved(options).cache.name, "none");
  ModelDesc causal = desc;
  causal.causal_block = 8;
  EXPECT_EQ(error_of(preset("exact"), causal), "");
  EXPECT_NE(error_of(preset("fast"), causal).find("--preset"), std::string::npos);
  EXPECT_NE(error_of(preset("fats")).find("'fast'"), std::string::npos);
}

TEST(Options, TextIsReadByKeyOrFlag) {
  GenerateOptions options;
  EXPECT_TRUE(options.set("threshold", "0.8"));
  EXPECT_TRUE(options.set("--max-tokens", "64"));
  EXPECT_TRUE(options.set("algorithm", "4"));
  EXPECT_TRUE(options.set("seed", "18446744073709551615"));
  EXPECT_TRUE(options.set("preset", "fast"));
  EXPECT_EQ(options.decoder.options.at("threshold"), OptionValue(0.8));
  EXPECT_EQ(options.max_tokens, 64);
  EXPECT_FALSE(options.length);
  EXPECT_EQ(options.decoder.name, "low-confidence");
  EXPECT_EQ(options.seed, 18446744073709551615u);
  EXPECT_TRUE(options.set("algorithm", "maskgit_plus"));
  EXPECT_EQ(options.decoder.name, "maskgit-plus");
  EXPECT_FALSE(options.set("threshold", "high"));
  EXPECT_FALSE(options.set("threshold", "3"));
  EXPECT_FALSE(options.set("preset", "slow"));
  EXPECT_NE(options.set("treshold", "1").error().hint.find("threshold"), std::string::npos);
  EXPECT_EQ(options.set("length", "0").error().where, "--canvas-length");
}

TEST(Options, AResultCarriesWhatWasUsed) {
  const LanguageModel model = *LanguageModel::load("");
  GenerateOptions options;
  options.length = 16;
  options.seed = 5;
  const auto answer = model.generate("Solve 17+4.", options);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->options.length, 16);
  EXPECT_EQ(answer->options.block_length, 16) << "the model's, at most the length";
  EXPECT_EQ(answer->options.decoder.name, "threshold");
  EXPECT_EQ(answer->options.values, model.resolve(options)->values);
  std::map<std::string, OptionValue> values(answer->options.values.begin(), answer->options.values.end());
  EXPECT_EQ(values.at("threshold"), OptionValue(0.9));
  EXPECT_EQ(values.at("algorithm"), OptionValue("threshold"));
  EXPECT_EQ(values.at("seed"), OptionValue(std::uint64_t{5}));
  EXPECT_FALSE(values.contains("steps"));
  EXPECT_FALSE(values.contains("top_k"));
}

TEST(Options, JsonHoldsWhatWasRead) {
  ResolvedOptions options;
  options.values = {{"length", std::int64_t{64}},
                    {"seed", 18446744073709551615u},
                    {"factor", 1.5},
                    {"exact_length", false},
                    {"algorithm", "factor"}};
  const auto json = options_json(options);
  EXPECT_EQ(json.size(), 5u);
  EXPECT_EQ(json["length"], 64);
  EXPECT_EQ(json["algorithm"], "factor");
  EXPECT_EQ(json["seed"].get<std::uint64_t>(), 18446744073709551615u);
  EXPECT_EQ(json["exact_length"], false);
  EXPECT_EQ(json["factor"], 1.5);
}

}  // namespace
}  // namespace dllm
