#include "engine/choices.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dllm/model.h"

namespace dllm {
namespace {

class ChoicesTest : public ::testing::Test {
 protected:
  /// Probabilities of every token at a position, from all logits of a pass.
  std::vector<double> distribution(const std::vector<std::int32_t>& ids, std::size_t position) const {
    const auto logits = *model.logits(ids, /*causal=*/false);
    const auto vocabulary = static_cast<std::size_t>(model.vocab_size());
    std::vector<double> result(vocabulary);
    double sum = 0;
    for (std::size_t t = 0; t < vocabulary; ++t)
      sum += result[t] = std::exp(static_cast<double>(logits[position * vocabulary + t]));
    for (double& one : result) one /= sum;
    return result;
  }

  LanguageModel model = *LanguageModel::load("");
  const std::vector<std::int32_t> prompt = *model.apply_template({{"user", "Dan has 7 apples and eats 3. How many?"}});
};

TEST_F(ChoicesTest, ProbabilitiesEqualEnumeration) {
  const std::vector<std::string> choices = {"4", "5", "10", "The answer is 4.", "10 apples"};
  const auto scores = model.score_choices(prompt, choices);
  ASSERT_TRUE(scores.has_value()) << scores.error().message();
  std::size_t longest = 0;
  for (const std::string& choice : choices) longest = std::max(longest, model.tokenize(choice, false)->size());
  const SpecialTokens special = model.special_tokens();
  double total = 0, given = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::vector<std::int32_t> canvas = prompt;
    canvas.resize(prompt.size() + longest + 1, *special.mask);
    double product = 1;
    std::size_t position = prompt.size();
    const std::vector<std::int32_t> ids = *model.tokenize(choices[i], false);
    for (const std::int32_t id : ids) {
      product *= distribution(canvas, position)[static_cast<std::size_t>(id)];
      canvas[position++] = id;
    }
    const std::vector<double> last = distribution(canvas, position);
    double ends = last[static_cast<std::size_t>(*special.eos)];
    if (special.eot && special.eot != special.eos) ends += last[static_cast<std::size_t>(*special.eot)];
    product *= ends;
    EXPECT_NEAR((*scores)[i].log_probability, std::log(product), 1e-5) << choices[i];
    total += product;
    given += (*scores)[i].probability;
  }
  EXPECT_NEAR(given, 1, 1e-12);
  for (const ChoiceScore& one : *scores)
    EXPECT_NEAR(one.probability, std::exp(one.log_probability) / total, 1e-5) << one.text;
}

TEST_F(ChoicesTest, AnEmptyAnswerHasTheProbabilityOfItsEnd) {
  const auto end = model.answer_log_prob(prompt, {}, 1);
  ASSERT_TRUE(end.has_value()) << end.error().message();
  std::vector<std::int32_t> canvas = prompt;
  canvas.push_back(*model.special_tokens().mask);
  const std::vector<double> first = distribution(canvas, prompt.size());
  double ends = first[static_cast<std::size_t>(*model.special_tokens().eos)];
  if (const auto eot = model.special_tokens().eot; eot && eot != model.special_tokens().eos)
    ends += first[static_cast<std::size_t>(*eot)];
  EXPECT_NEAR(std::exp(*end), ends, 1e-6);
}

TEST_F(ChoicesTest, Errors) {
  const std::vector<std::vector<std::string>> cases = {{}, {""}, {"a", "b", "a"}, {std::string(5000, 'x')}};
  for (const auto& choices : cases) {
    const auto scores = model.score_choices(prompt, choices);
    ASSERT_FALSE(scores.has_value());
    EXPECT_EQ(scores.error().code, ErrorCode::kUsage);
  }
  EXPECT_FALSE(model.answer_log_prob(prompt, {1, 2, 3}, 3).has_value());
  EXPECT_FALSE(model.answer_log_prob(prompt, {-1}, 3).has_value());
}

}  // namespace
}  // namespace dllm
