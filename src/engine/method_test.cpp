// What the engine knows of methods without making one.
#include "engine/method.h"

#include <gtest/gtest.h>

#include "engine/constraint.h"
#include "engine/option_parts.h"
#include "engine/resolve.h"
#include "engine/sequence.h"

namespace dllm {
namespace {

ModelDesc filling_model() {
  ModelDesc desc;
  desc.vocab = 100;
  desc.mask = 99;
  desc.context_length = 1024;
  return desc;
}

/// A decoder of which is counted how many there were.
class CountedDecoder : public Decoder {
 public:
  static inline int made = 0;
  CountedDecoder() { ++made; }
  std::vector<Edit> decode(const DecodeContext&, std::span<const Candidate> candidates) override {
    return commit_best(candidates, 1, [](const Candidate& candidate) { return candidate.log_odds; });
  }
};

// What the engine asks of a decoder before it decodes, the declaration answers.
TEST(Options, ResolvingAndCheckingMakeNoDecoder) {
  ASSERT_TRUE(add_decoder(
      declare_method<Decoder>("counted", "one position of every step", OptionRows<NoOptions>{},
                              [](const NoOptions&, const MethodContext&) { return std::make_unique<CountedDecoder>(); })
          .always({.greedy = true})));
  ModelDesc desc = filling_model();
  desc.stop_ids = {2};
  GenerateOptions options;
  options.decoder.name = "counted";
  CountedDecoder::made = 0;
  for (const char* suffix : {"full", "grow"}) {
    options.suffix.name = suffix;
    const auto resolved = resolve_options(options, desc);
    ASSERT_TRUE(resolved) << resolved.error().what;
    EXPECT_FALSE(second_path_of(*resolved, desc));
    EXPECT_TRUE(check_constraint(*resolved, desc));
    EXPECT_TRUE(Sequence::check(desc, {1, 3}, *resolved, {}));
  }
  options.temperature = 0.5;
  EXPECT_EQ(resolve_options(options, desc).error().where, "--temperature") << "as declared";
  EXPECT_EQ(CountedDecoder::made, 0);
}

TEST(Options, TheRegistrySaysWhatAModelIsDecodedBy) {
  ModelDesc causal = filling_model();
  causal.mask.reset();
  ModelDesc several = filling_model(), blocks = filling_model(), canvas = filling_model(), soft = filling_model();
  several.modes = {DecodingMode::kAutoregressive, DecodingMode::kDiffusion, DecodingMode::kSelfSpeculation};
  blocks.causal_block = 32;
  canvas.canvas.length = 64;
  soft.soft_tokens = true;
  ModelDesc plain_modes = several;
  plain_modes.modes = {DecodingMode::kDiffusion, DecodingMode::kAutoregressive};
  const auto standards = [](const ModelDesc& desc) {
    std::string all;
    for (const OptionPart& part : option_parts()) all += (all.empty() ? "" : " ") + part.standard(desc) + ";";
    return all;
  };
  EXPECT_EQ(standards(filling_model()), "threshold; block; none; full; iter-smooth; ;");
  EXPECT_EQ(standards(causal), "low-confidence; block; none; full; iter-smooth; ;");
  EXPECT_EQ(standards(blocks), "threshold; block; block-causal; full; iter-smooth; ;");
  EXPECT_EQ(standards(several), "native; block; none; full; iter-smooth; self-speculation;");
  EXPECT_EQ(standards(plain_modes), "native; block; none; full; iter-smooth; ar;");
  EXPECT_EQ(standards(soft), "dmax; block; none; full; iter-smooth; ;");
  EXPECT_EQ(standards(canvas), "entropy-bound; block; prefix; full; iter-smooth; ;");
  EXPECT_EQ(option_parts().front().selector.standard_text,
            "threshold; low-confidence for autoregressive models; "
            "dmax for models trained to read tokens as mixtures; "
            "wedlm for models whose masks see all decided tokens (WeDLM); native for models of several modes");
}

TEST(Options, NamesThatNoOptionHasAreRefusedWhereAModelHasOneWay) {
  GenerateOptions options;
  options.mode.options["thershold"] = 0.5;
  const auto resolved = resolve_options(options, filling_model());
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().where, "thershold");
}

// A request's on top of the server's, anyone's on top of a preset's.
TEST(Options, WhatIsGivenLiesOnTop) {
  GenerateOptions base, given;
  base.preset = "exact";
  base.stop = {"END"};
  base.temperature = 0.5;
  base.top_k = 3;
  base.decoder = {"revision", {{"stable_threshold", 0.9}, {"threshold", 0.8}}};
  base.cache = {"dual", {{"refresh_every", std::int64_t{4}}}};
  given.top_k = 5;
  given.decoder = {"revision", {{"threshold", 0.7}}};
  GenerateOptions both = on_top_of(base, given);
  EXPECT_EQ(both.preset, "exact");
  EXPECT_EQ(both.stop, base.stop);
  EXPECT_EQ(both.temperature, 0.5);
  EXPECT_EQ(both.top_k, 5);
  EXPECT_EQ(both.decoder.options, (OptionMap{{"stable_threshold", 0.9}, {"threshold", 0.7}}));
  EXPECT_EQ(both.cache.options, base.cache.options);
  given.preset = "fast";
  given.stop = {"."};
  given.decoder.name = "threshold";
  both = on_top_of(base, given);
  EXPECT_EQ(both.preset, "fast");
  EXPECT_EQ(both.stop, given.stop);
  EXPECT_EQ(both.decoder.name, "threshold");
  EXPECT_EQ(both.decoder.options, (OptionMap{{"threshold", 0.7}})) << "those of another method do not apply";
}

}  // namespace
}  // namespace dllm
