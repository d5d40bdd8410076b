// What a method declares of itself agrees with what its objects do.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "decode/decoder/reviser.h"
#include "decode/testing/make_method.h"
#include "decode/testing/random_scores.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

constexpr std::size_t kVocab = 12;
constexpr TokenId kTraitMask = 11;
constexpr Position kTraitLength = 8;

ModelDesc traits_model() {
  ModelDesc desc = test::masked_desc();
  desc.delete_token = 3;
  desc.insert_token = 4;
  return desc;
}

/// The complete options of a method: its defaults, and each choice and switch that it declares, set by itself.
std::vector<OptionMap> option_sets(const MethodDeclaration& method, const ModelDesc& desc, const MethodContext& grid) {
  std::vector<OptionMap> given = {{}};
  for (const OptionInfo& option : method.info.options) {
    if (option.type == OptionType::kBool) given.push_back({{option.key, true}});
    for (const std::string& choice : option.choices) given.push_back({{option.key, choice}});
  }
  given.push_back({{"smooth", 0.3}});
  std::vector<OptionMap> complete;
  for (const OptionMap& one : given) {
    if (!one.empty() && method.option(one.begin()->first) == nullptr) continue;
    if (const auto all = method.complete(one, desc, grid))
      complete.push_back(*all);  // else read under a condition only
  }
  return complete;
}

/// Calls `check(object, traits, options)` for every method of a list and each of its sets of options.
template <class Object, class Check>
void for_each_object(const std::vector<MethodEntry<Object>>& entries, Check check) {
  ModelDesc desc = traits_model();
  for (const MethodEntry<Object>& entry : entries)
    for (const bool compat : {false, true}) {
      const MethodContext grid{.block_length = kTraitLength, .length = kTraitLength, .newlines = {5}, .compat = compat};
      desc.causal_block = entry.suits && !entry.suits(traits_model()) ? 8 : 0;
      for (const OptionMap& options : option_sets(entry, desc, grid)) {
        std::string text = entry.info.name;
        for (const auto& [key, value] : options) text += " " + key + "=" + to_text(value);
        SCOPED_TRACE(text + (compat ? " compat" : ""));
        const auto object = entry.make(options, grid);
        ASSERT_TRUE(object);
        check(**object, traits_of(entries, {entry.info.name, options}), options);
      }
    }
}

TEST(Traits, OfDecodersAreThoseOfTheirObjects) {
  std::size_t with_second_path = 0, draining = 0;
  for_each_object(decoders(), [&](Decoder& decoder, const MethodTraits& traits, const OptionMap&) {
    EXPECT_EQ(decoder.revises(), traits.revises);
    ScoreRequest request;
    decoder.configure(request);
    EXPECT_EQ(request.distribution, traits.distribution);
    const Reviser* reviser = decoder.reviser();
    EXPECT_EQ(reviser != nullptr && reviser->drains_fully(), traits.drains_fully);
    draining += traits.drains_fully ? 1 : 0;
    const auto path = reviser == nullptr ? std::nullopt : reviser->second_path();
    ASSERT_EQ(path.has_value(), traits.second_path.has_value());
    if (!path) return;
    ++with_second_path;
    EXPECT_EQ(path->merge_delay, traits.second_path->merge_delay);
    EXPECT_EQ(path->refresh_merge, traits.second_path->refresh_merge);
    EXPECT_EQ(path->refresh_threads, traits.second_path->refresh_threads);
  });
  EXPECT_GT(with_second_path, 0u);
  EXPECT_GT(draining, 0u);
}

/// What a decoder was seen to do.
struct Seen {
  bool revises = false, commits_other = false, shadows = false, soft = false;
  std::size_t branches = 0, checks = 0;
};

/// An answer from random predictions: every second one from new ones in every step, the others from ones that waver, so
/// that the likeliest token changes where two are close.
void watch(Decoder& decoder, std::uint64_t seed, Seen& seen) {
  std::mt19937_64 random(seed);
  Canvas canvas({}, kTraitLength, kTraitMask);
  const auto steady = test::random_rows(random, kTraitLength, kVocab);
  for (std::int32_t step = 0; step < 40 && canvas.masked_count() > 0; ++step) {
    auto rows = test::random_rows(random, kTraitLength, kVocab);
    if (seed % 2 == 1)
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t t = 0; t < kVocab; ++t) rows[i][t] = steady[i][t] + 0.3F * rows[i][t];
    const DecodeContext context{canvas, {0, kTraitLength}, step, kTraitLength, static_cast<std::uint32_t>(step),
                                {1, 0}};
    seen.shadows |= !decoder.shadowed(context).empty();
    seen.soft |= !decoder.soft_tokens(context).empty();
    seen.checks = std::max(seen.checks, decoder.drafts(context).size());
    seen.branches = std::max({seen.branches, decoder.variants(context).size(), decoder.guesses(context).size()});
    for (const Edit& edit : test::decode_rows(decoder, canvas, rows, step, kTraitLength)) {
      const TokenId own = test::reduce(edit.position, rows[static_cast<std::size_t>(edit.position)], kTraitMask).token;
      seen.revises |= edit.kind != EditKind::kCommit && edit.kind != EditKind::kLeave;
      const bool writes = edit.kind == EditKind::kCommit || edit.kind == EditKind::kRevise;
      seen.commits_other |= (writes && edit.token != own) || shifts(edit.kind);
      canvas.apply(edit);
    }
  }
}

// A constraint on the answer and text that is given rely on it.
TEST(Traits, OnlyThoseWhoSaySoChangeTokensOrCommitOthers) {
  for (const DecoderEntry& entry : decoders()) {
    SCOPED_TRACE(entry.info.name);
    const OptionMap options = test::fitting(decoders(), entry.info.name,
                                            {{"delete_token", 3},
                                             {"insert_token", 4},
                                             {"steps", kTraitLength},
                                             {"soft_acceptance", true},
                                             {"check_cost", 0.0},
                                             {"checked_tokens", 3}});
    const MethodTraits traits = traits_of(decoders(), {entry.info.name, options});
    Seen seen;
    for (std::uint64_t seed = 0; seed < 60; ++seed)
      watch(*test::decoder_of(entry.info.name, options, kTraitLength), seed, seen);
    EXPECT_EQ(seen.revises, traits.revises);
    EXPECT_EQ(seen.shadows, traits.shadows);
    EXPECT_EQ(seen.branches, static_cast<std::size_t>(traits.branches));
    EXPECT_EQ(seen.commits_other, traits.commits_other);
    EXPECT_EQ(seen.checks, static_cast<std::size_t>(traits.checks));
    EXPECT_EQ(seen.soft, traits.soft);
  }
}

// Masks may be inserted before its positions between two steps: what came before, and where, must not matter.
TEST(Traits, StatelessDecodersDecideByTheirCandidatesAlone) {
  std::size_t stateless = 0;
  for (const DecoderEntry& entry : decoders()) {
    if (!traits_of(decoders(), {entry.info.name, {}}).stateless) continue;
    ++stateless;
    const OptionMap few = test::fitting(decoders(), entry.info.name, {{"steps", 3}});
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(entry.info.name);
      std::mt19937_64 random(seed);
      const Canvas canvas({}, kTraitLength, kTraitMask);
      const auto earlier = test::random_rows(random, kTraitLength, kVocab);
      const auto now = test::random_rows(random, kTraitLength, kVocab);
      const auto fresh = test::decoder_of(entry.info.name, few, kTraitLength);
      const auto used = test::decoder_of(entry.info.name, few, kTraitLength);
      test::decode_rows(*used, canvas, earlier, 0, kTraitLength);
      const auto ours = test::decode_rows(*fresh, canvas, now, 0, kTraitLength);
      const auto theirs = test::decode_rows(*used, canvas, now, 5, 2 * kTraitLength);
      ASSERT_EQ(ours.size(), theirs.size());
      for (std::size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(ours[i].position, theirs[i].position);
        EXPECT_EQ(ours[i].token, theirs[i].token);
      }
    }
  }
  EXPECT_GE(stateless, 5u);
}

TEST(Traits, OfWindowsAreThoseOfTheirObjects) {
  std::size_t in_blocks = 0, instant = 0;
  for_each_object(windows(), [&](Window& window, const MethodTraits& traits, const OptionMap&) {
    EXPECT_EQ(window.drafts().acceptance == DraftAcceptance::kInstant, traits.instant_drafts);
    instant += traits.instant_drafts ? 1 : 0;
    in_blocks += traits.whole_blocks ? 1 : 0;
    if (!traits.whole_blocks) return;
    // Whatever the window has seen: the block of the first mask, and nothing after it.
    const MethodContext grid{.block_length = kTraitLength, .length = 32};
    Canvas canvas({1, 2, 3}, 32, kTraitMask);
    for (const Position p : {4, 3, 10, 5, 6, 7, 8, 9, 20, 11, 12}) {
      const auto step = window.next(canvas);
      const PositionRange block = block_at(grid, canvas, canvas.first_masked(3));
      ASSERT_TRUE(step);
      EXPECT_EQ(step->range.begin, block.begin);
      EXPECT_EQ(step->range.end, block.end);
      EXPECT_LE(step->ahead, block.end);
      canvas.apply({.position = p, .token = 7});
    }
  });
  EXPECT_GT(in_blocks, 0u);
  EXPECT_GT(instant, 0u);
}

TEST(Traits, PoliciesThatSaySoRefillEveryBlock) {
  std::size_t refilling = 0;
  for_each_object(caches(), [&](CachePolicy& policy, const MethodTraits& traits, const OptionMap& options) {
    test::FakeBackend backend(traits_model());
    const auto cache = *backend.make_cache(32);
    Canvas canvas({1, 2, 3, 4}, 28, kTraitMask);
    bool refilled = true;
    for (Position begin = 4; begin < 32; begin += 8) {
      CacheContext context{
          .canvas = canvas, .cache = *cache, .needed = {begin, std::min(32, begin + 8)}, .horizon = 32};
      bool full = false;
      for (std::int32_t pass = 0; pass < 8; ++pass) {
        const CacheDecision decision = policy.decide(context);
        full = full || decision.fills;
        context.window_changed = false;
      }
      refilled = refilled && (full || begin == 4);  // the first block may have plain full passes
    }
    if (options.contains("refresh")) {
      EXPECT_EQ(refilled, traits.refills_blocks);
    } else {
      EXPECT_FALSE(traits.refills_blocks);
    }
    refilling += traits.refills_blocks ? 1 : 0;
  });
  EXPECT_GT(refilling, 0u);
  for (const CacheEntry& entry : caches())
    if (entry.option("refresh") != nullptr) {
      EXPECT_TRUE(entry.traits({}).refills_blocks) << entry.info.name;
      EXPECT_FALSE(entry.traits({{"refresh", "once"}}).refills_blocks) << entry.info.name;
    }
}

// The test of that policy shows that its answers equal those without a cache.
TEST(Traits, OnlyPoliciesForBlockCausalModelsAreExact) {
  for (const CacheEntry& entry : caches()) {
    if (!traits_of(caches(), {entry.info.name, {}}).exact_rows) continue;
    ASSERT_TRUE(entry.suits) << entry.info.name;
    EXPECT_FALSE(entry.suits(traits_model())) << entry.info.name;
  }
}

TEST(Traits, OfTheOtherPartsAreThoseOfTheirObjects) {
  for_each_object(suffixes(), [](const Suffix& suffix, const MethodTraits& traits, const OptionMap&) {
    EXPECT_EQ(suffix.policy == SuffixPolicy::kGrow, traits.grows);
    EXPECT_EQ(suffix.policy == SuffixPolicy::kFull, traits.all_masks);
  });
  std::set<bool> smoothing;
  for_each_object(smoothings(), [&](const SmoothConfig& config, const MethodTraits& traits, const OptionMap&) {
    EXPECT_EQ(config.gain != 0, traits.smooths);
    smoothing.insert(traits.smooths);
  });
  EXPECT_EQ(smoothing.size(), 2u);
  for (const ModeEntry& entry : modes()) {
    const auto config = entry.make({}, {});
    const MethodTraits traits = traits_of(modes(), {entry.info.name, {}});
    EXPECT_EQ((*config)->mode == DecodingMode::kDiffusion, traits.by_decoder) << entry.info.name;
    const bool ordered =
        (*config)->mode == DecodingMode::kAutoregressive || (*config)->mode == DecodingMode::kSelfSpeculation;
    EXPECT_EQ(ordered, traits.in_order) << entry.info.name;
  }
}

}  // namespace
}  // namespace dllm
