// What a sequence records of its positions, on the embedded model.
#include <gtest/gtest.h>

#include "dllm/model.h"

namespace dllm {
namespace {

constexpr const char* kPrompt = "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?";

GenerateOptions levenshtein() {
  GenerateOptions options;
  options.length = 64;
  options.block_length = 16;
  options.algorithm = "levenshtein";
  options.threshold = 0.5;
  options.edit_threshold = 0.3;
  return options;
}

TEST(Sequence, RecordsMoveWithTheTokensOfAShiftedBlock) {
  const LanguageModel model = *LanguageModel::load("");
  const auto words = model.tokenize(" pens now", false);
  ASSERT_TRUE(words && words->size() >= 2);
  GenerateOptions options = levenshtein();
  options.exact_length = true;
  // Tokens of the text stand for the edits that this model does not know.
  options.delete_token = words->front();
  options.insert_token = words->back();
  std::int32_t steps = 0, grown = 0, masks = options.length;
  const auto answer = model.generate(kPrompt, options, [&](const StepEvent& event) {
    ++steps;
    for (const CanvasCell& cell : event.canvas) EXPECT_EQ(cell.masked, cell.confidence == 0) << "step " << event.step;
    EXPECT_EQ(event.canvas.size(), static_cast<std::size_t>(event.prompt_length + options.length));
    grown += event.masked >= masks ? 1 : 0;
    masks = event.masked;
    return true;
  });
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_LE(steps, 4 * (16 + options.max_post_steps + 1));
  ASSERT_EQ(answer->ids.size(), 64u);
  for (std::size_t i = 0; i < answer->ids.size(); ++i) {
    EXPECT_GE(answer->commit_step[i], 0);
    EXPECT_LT(answer->commit_step[i], answer->stats.nfe);
    EXPECT_GT(answer->confidence[i], 0);
  }
  EXPECT_GT(grown, 0) << "no edit of length was made";
}

TEST(Sequence, EditsOfLengthNeedTheirTokens) {
  const LanguageModel model = *LanguageModel::load("");
  GenerateOptions options = levenshtein();
  EXPECT_FALSE(model.generate(kPrompt, options)) << "the model names none";
  options.delete_token = options.insert_token = 5;
  EXPECT_FALSE(model.generate(kPrompt, options)) << "they are the same";
  options.insert_token = model.vocab_size();
  EXPECT_FALSE(model.generate(kPrompt, options)) << "outside the vocabulary";
  options.insert_token = 6;
  EXPECT_TRUE(model.generate(kPrompt, options));
  options.smooth = 0.3;
  EXPECT_FALSE(model.generate(kPrompt, options));
}

}  // namespace
}  // namespace dllm
