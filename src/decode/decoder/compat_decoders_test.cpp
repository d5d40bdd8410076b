// Decoders under --compat against upstream's rules, which scripts/golden_decoders.py implements independently: the
// states of a block over passes of recorded scores, in which masks are predicted and tokens are edited and masked
// again.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "decode/registry.h"
#include "decode/testing/make_method.h"
#include "decode/testing/random_scores.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::decoder_of;
using test::LogitRow;
using test::reduce;

using Tokens = std::vector<TokenId>;

const json& golden() {
  static const json file = json::parse(std::ifstream(DLLM_SOURCE_DIR "/tests/golden/decoders.json"));
  return file;
}

/// The case's settings as the decoder's options.
OptionMap options_of(const json& one) {
  OptionMap options{{"threshold", one["threshold"].get<double>()}};
  const auto number = [&](const char* from, const char* key) {
    if (one.contains(from)) options[key] = one[from].get<double>();
  };
  const auto integer = [&](const char* from, const char* key) {
    if (one.contains(from)) options[key] = one[from].get<std::int64_t>();
  };
  number("low", "low_threshold"), number("remask", "remask_threshold"), number("edit", "edit_threshold");
  number("penalty", "penalty_lambda"), integer("post", "max_post_steps"), integer("steps", "steps");
  integer("transfer", "num_to_transfer");
  return options;
}

std::vector<TopToken> best(const LogitRow& z, std::int32_t count) {
  std::vector<TopToken> all;
  for (std::size_t t = 0; t < z.size(); ++t) all.push_back({static_cast<TokenId>(t), z[t]});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.logit > b.logit; });
  all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
  return all;
}

/// A window over the whole canvas, pass by pass. No token is forbidden, so the mask may be predicted.
class Passes {
 public:
  Passes(const std::string& name, const OptionMap& options, const Tokens& start, Position prompt, TokenId mask)
      : canvas({start.begin(), start.begin() + prompt}, static_cast<Position>(start.size()) - prompt, mask),
        decoder_(decoder_of(name, options, 32, /*compat=*/true)) {}

  void pass(const std::vector<LogitRow>& rows) {
    const std::vector<Position> wanted = decoder_->wanted(context());
    const std::vector<TokenQuery> queries = decoder_->queries(context());
    ScoreRequest request;
    decoder_->configure(request);
    std::vector<float> queried;
    for (const TokenQuery& query : queries)
      queried.push_back(rows[static_cast<std::size_t>(query.position)][static_cast<std::size_t>(query.token)]);
    std::vector<std::vector<TopToken>> lists;
    for (Position p : wanted) lists.push_back(best(rows[static_cast<std::size_t>(p)], request.top_tokens));
    std::vector<Candidate> candidates;
    std::size_t next = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      candidates.push_back(reduce(wanted[i], rows[static_cast<std::size_t>(wanted[i])], -1));
      candidates.back().top = lists[i];
      const std::size_t first = next;
      while (next < queries.size() && queries[next].position == wanted[i]) ++next;
      candidates.back().queried = std::span(queried).subspan(first, next - first);
    }
    for (const Edit& edit : decoder_->decode(context(), candidates)) canvas.apply(edit);
    ++step_;
  }

  bool open() const { return canvas.masked_count() > 0 || decoder_->holds_window(context()); }
  bool keeps_schedule() const { return decoder_->keeps_schedule(); }
  Tokens tokens() const {
    Tokens result;
    for (Position p = 0; p < canvas.size(); ++p) result.push_back(canvas.token(p));
    return result;
  }

  Canvas canvas;

 private:
  DecodeContext context() const {
    return {canvas, {0, canvas.size()}, step_, 0, static_cast<std::uint32_t>(step_), {1, 0}};
  }

  std::unique_ptr<Decoder> decoder_;
  std::int32_t step_ = 0;
};

TEST(Compat, StatesAreUpstreamsPassByPass) {
  const TokenId mask = golden()["mask"];
  int remasked = 0, left = 0, edited = 0;
  ASSERT_GE(golden()["scores"].size(), 80u);
  for (std::size_t i = 0; i < golden()["scores"].size(); ++i) {
    const json& one = golden()["scores"][i];
    const auto start = one["start"].get<Tokens>();
    Passes passes(one["algorithm"], options_of(one), start, one["prompt"], mask);
    SCOPED_TRACE(std::to_string(i) + " " + one["algorithm"].get<std::string>());
    for (const json& pass : one["passes"]) {
      ASSERT_TRUE(passes.open());
      const Tokens before = passes.tokens();
      passes.pass(pass["logits"].get<std::vector<LogitRow>>());
      const Tokens after = passes.tokens();
      ASSERT_EQ(after, pass["state"].get<Tokens>()) << "pass " << (&pass - &one["passes"][0]);
      EXPECT_TRUE(passes.keeps_schedule() || !passes.open());
      for (std::size_t p = 0; p < after.size(); ++p) {
        remasked += before[p] != mask && after[p] == mask;
        edited += before[p] != mask && after[p] != mask && after[p] != before[p];
      }
    }
    EXPECT_FALSE(passes.open());
    const Tokens end = passes.tokens();
    left += std::find(end.begin(), end.end(), mask) != end.end();
  }
  EXPECT_GT(remasked, 50) << "the cases never predict a mask where a token is";
  EXPECT_GT(edited, 50);
  EXPECT_GT(left, 2) << "no block ends with masks";
}

TEST(Compat, ACircleWithMasksIsLeftToTheProgressRule) {
  // The prediction is the mask itself, and nothing changes: upstream would never end.
  for (const char* name : {"draft-edit", "hierarchical-remask"}) {
    Passes passes(name, {{"threshold", .5}}, {7, 7}, 0, 7);
    passes.pass({test::prediction(7, .9, 8), test::prediction(7, .8, 8)});
    EXPECT_EQ(passes.tokens(), (Tokens{7, 7})) << name;
    EXPECT_FALSE(passes.keeps_schedule()) << name;
  }
}

TEST(EditBlocks, FinishedWindowsAreEditedAlong) {
  auto decoder =
      decoder_of("draft-edit", {{"threshold", .5}, {"edit_threshold", .6}, {"edit_blocks", std::int64_t{1}}});
  Canvas canvas({1}, 6, 99);
  for (Position p = 1; p < 5; ++p) canvas.apply({p, p, EditKind::kCommit, 1});
  const auto context = [&](PositionRange window) { return DecodeContext{canvas, window, 0, 0, 0, {1, 0}}; };
  EXPECT_EQ(decoder->wanted(context({1, 3})), (std::vector<Position>{1, 2})) << "there is none before the first";
  EXPECT_EQ(decoder->wanted(context({3, 5})), (std::vector<Position>{1, 2, 3, 4}));
  EXPECT_EQ(decoder->wanted(context({5, 7})), (std::vector<Position>{3, 4, 5, 6}));
  EXPECT_EQ(decoder->revisable_from(context({5, 7}), /*open=*/true), 3);
  EXPECT_EQ(decoder->revisable_from(context({5, 7}), /*open=*/false), 5) << "the next window leaves one";
  std::vector<Candidate> candidates;
  for (Position p = 3; p < 7; ++p) candidates.push_back(reduce(p, test::prediction(8, .7), -1));
  const std::vector<Edit> edits = decoder->decode(context({5, 7}), candidates);
  ASSERT_EQ(edits.size(), 4u);
  for (const Edit& edit : edits) {
    EXPECT_EQ(edit.token, 8);
    EXPECT_EQ(edit.kind, edit.position < 5 ? EditKind::kRevise : EditKind::kCommit);
  }
}

}  // namespace
}  // namespace dllm
