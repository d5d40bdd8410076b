// Likelihoods of the embedded model against an independent enumeration over its raw logits.
#include "eval/likelihood.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "dllm/model.h"
#include "eval/testing/estimate_likelihood.h"

namespace dllm {
namespace {

using test::estimate_likelihood;
using test::MaskedScorer;
using Ids = std::vector<std::int32_t>;

const LanguageModel& tiny() {
  static const LanguageModel model = *LanguageModel::load("");
  return model;
}

double log_softmax(const std::vector<float>& logits, std::size_t row, std::int32_t token) {
  const auto vocabulary = static_cast<std::size_t>(tiny().vocab_size());
  const float* z = logits.data() + row * vocabulary;
  double sum = 0, top = static_cast<double>(z[0]);
  for (std::size_t i = 0; i < vocabulary; ++i) top = std::max(top, static_cast<double>(z[i]));
  for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(z[i]) - top);
  return static_cast<double>(z[static_cast<std::size_t>(token)]) - top - std::log(sum);
}

struct Question {
  Ids ids;
  std::int32_t prompt = 0, length = 0;
};

Question question(const std::string& prompt, const std::string& target) {
  Question made;
  made.ids = *tiny().apply_template({{"user", prompt}});
  made.prompt = static_cast<std::int32_t>(made.ids.size());
  const Ids tokens = *tiny().tokenize(target, true);
  made.length = static_cast<std::int32_t>(tokens.size());
  made.ids.insert(made.ids.end(), tokens.begin(), tokens.end());
  return made;
}

Ids positions(const Question& q, const Ids& masked) {
  Ids result;
  for (const std::int32_t i : masked) result.push_back(q.prompt + i);
  return result;
}

TEST(Likelihood, MaskedLogProbsAreThoseOfTheLogits) {
  const std::int32_t mask = tiny().tokenize("<|mdm_mask|>", true)->front();
  const Question q = question("Max: 12 16 3 1", "16<|eot_id|>");
  ASSERT_EQ(q.length, 3);
  for (const Ids& masked : {Ids{0}, Ids{1, 2}, Ids{0, 1, 2}}) {
    Ids shown = q.ids;
    for (const std::int32_t p : positions(q, masked)) shown[static_cast<std::size_t>(p)] = mask;
    const auto logits = tiny().logits(shown, false);
    const auto logs = tiny().masked_log_probs(q.ids, positions(q, masked));
    ASSERT_TRUE(logits && logs);
    for (std::size_t i = 0; i < masked.size(); ++i) {
      const auto p = static_cast<std::size_t>(q.prompt + masked[i]);
      EXPECT_NEAR((*logs)[i], log_softmax(*logits, p, q.ids[p]), 1e-5);
    }
    // Guidance by a tiny scale changes almost nothing; by a real one it does.
    const auto hardly = tiny().masked_log_probs(q.ids, positions(q, masked), 1e-6, q.prompt);
    const auto guided = tiny().masked_log_probs(q.ids, positions(q, masked), 1.0, q.prompt);
    ASSERT_TRUE(hardly && guided);
    EXPECT_NEAR((*hardly)[0], (*logs)[0], 1e-4);
    EXPECT_NE((*guided)[0], (*logs)[0]);
  }
}

TEST(Likelihood, SamplesAgreeWithTheEnumerationOverLogits) {
  const std::int32_t mask = tiny().tokenize("<|mdm_mask|>", true)->front();
  const Question q = question("Find the number of nuts. Sum: 4 9 2", "4+9=13");
  ASSERT_GE(q.length, 4);
  ASSERT_LE(q.length, 8);
  // Independent of the estimator: bit masks over raw logits, explicit weights.
  double exact = 0;
  for (unsigned bits = 1; bits < 1u << q.length; ++bits) {
    Ids shown = q.ids;
    double count = 0, sum = 0, choose = 1;
    for (std::int32_t i = 0; i < q.length; ++i)
      if (bits >> i & 1u) shown[static_cast<std::size_t>(q.prompt + i)] = mask, ++count;
    const auto logits = tiny().logits(shown, false);
    ASSERT_TRUE(logits);
    for (std::int32_t i = 0; i < q.length; ++i) {
      const auto p = static_cast<std::size_t>(q.prompt + i);
      if (bits >> i & 1u) sum += log_softmax(*logits, p, q.ids[p]);
    }
    for (int i = 0; i < static_cast<int>(count); ++i) choose = choose * (q.length - i) / (i + 1);
    exact += sum / count / choose;  // (1/L) (1/C(L,k)) (L/k)
  }
  const MaskedScorer scorer = [&](const Ids& masked) { return tiny().masked_log_probs(q.ids, positions(q, masked)); };
  const auto enumerated = estimate_likelihood(q.length, scorer, {.samples = 0});
  ASSERT_TRUE(enumerated);
  EXPECT_NEAR(enumerated->log_likelihood, exact, 1e-4);
  const auto sampled = estimate_likelihood(q.length, scorer, {.samples = 400, .rng = {1, 1}});
  ASSERT_TRUE(sampled);
  EXPECT_LT(std::abs(sampled->log_likelihood - exact), 4 * sampled->standard_error + 1e-4);
}

TEST(Likelihood, TextsOfABatchGetTheBitsThatTheyGetAlone) {
  const Question a = question("Max: 12 16 3 1", "16<|eot_id|>"), b = question("Copy: x y", "x y");
  const std::vector<MaskedText> texts = {{a.ids, positions(a, {0, 2}), a.prompt},
                                         {b.ids, positions(b, {1}), b.prompt},
                                         {b.ids, {}, b.prompt},
                                         {a.ids, positions(a, {0, 1, 2}), a.prompt}};
  for (const double cfg_scale : {0.0, 1.0}) {
    const auto together = tiny().masked_log_probs_batch(texts, cfg_scale);
    ASSERT_TRUE(together) << together.error().message();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto alone = tiny().masked_log_probs(texts[i].ids, texts[i].masked, cfg_scale, texts[i].prompt);
      ASSERT_TRUE(alone);
      EXPECT_EQ((*together)[i], *alone) << i << " scale " << cfg_scale;
      EXPECT_EQ(alone->size(), texts[i].masked.size());
    }
  }
  EXPECT_FALSE(tiny().masked_log_probs_batch({texts[0], {{1, 2}, {2}}}));
}

TEST(Likelihood, RefusesWhatCannotBeScored) {
  EXPECT_FALSE(tiny().masked_log_probs({1, 2, 3}, {3}));
  EXPECT_FALSE(tiny().masked_log_probs({1, 2, 3}, {1, 1}));
  EXPECT_FALSE(tiny().masked_log_probs({1, 99999999, 3}, {1}));
  EXPECT_TRUE(tiny().masked_log_probs({1, 2, 3}, {})->empty());
}

}  // namespace
}  // namespace dllm
