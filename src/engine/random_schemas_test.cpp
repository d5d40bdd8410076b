// Answers under random schemas, by decoders that take tokens back: within the schema, and never without an end.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "constrain/testing/random_schema.h"
#include "constrain/testing/validate.h"
#include "dllm/model.h"

namespace dllm {
namespace {

using Setting = std::vector<std::pair<const char*, const char*>>;

const Setting kRevising[] = {
    {{"preset", "fast"}},
    {{"preset", "frugal"}},
    {{"preset", "swift"}},
    {{"algorithm", "revision"}, {"visible_threshold", "0.1"}},
    {{"algorithm", "revision"},
     {"run_threshold", "0.05"},
     {"visible_threshold", "0.2"},
     {"revise_threshold", "0.05"},
     {"max_revisions", "9"},
     {"reopen", "true"}},
    {{"algorithm", "revision"}, {"leave_one_out", "true"}, {"cache", "dual"}},
    {{"algorithm", "wino"}},
    {{"algorithm", "cover"}, {"verify_threshold", "0.9"}},
    {{"algorithm", "t2m"}},
    {{"algorithm", "t2m"}, {"suspect", "overruled"}, {"suspect_bound", "0.2"}},
    {{"algorithm", "t2m"}, {"suspect", "falling"}, {"suspect_bound", "0.05"}},
    {{"algorithm", "draft-edit"}, {"threshold", "0.3"}, {"edit_threshold", "0.1"}},
    {{"algorithm", "draft-edit"}, {"edit_blocks", "2"}},
    {{"algorithm", "hierarchical-remask"}, {"remask_threshold", "0.9"}},
    {{"algorithm", "dmax"}},
};

/// How many schemas; DLLM_RANDOM_SCHEMAS asks for more, and then each meets a third of the methods.
std::pair<std::uint32_t, std::size_t> asked() {
#ifdef __SANITIZE_ADDRESS__
  constexpr std::uint32_t kUsually = 15;
#else
  constexpr std::uint32_t kUsually = 60;
#endif
  const char* const text = std::getenv("DLLM_RANDOM_SCHEMAS");
  if (text == nullptr) return {kUsually, std::size(kRevising)};
  return {static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)), 3};
}

TEST(RandomSchemas, RevisedAnswersAreWithinThem) {
  LoadOptions load;
  load.threads = 1;
  const LanguageModel model = *LanguageModel::load("", load);
  const auto [count, apart] = asked();
  std::size_t stopped = 0, cut = 0, refused = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    constrain::test::RandomSchemas schemas(1000 + i);
    const auto schema = schemas.next();
    GenerateOptions options;
    options.length = schemas.chance(2) ? 64 : 96;
    options.block_length = schemas.chance(2) ? 16 : 32;
    options.json_schema = schema.dump();
    if (schemas.chance(5)) options.max_tokens = schemas.draw(1, *options.length);
    for (std::size_t m = i % apart; m < std::size(kRevising); m += apart) {
      SCOPED_TRACE("schema " + std::to_string(i) + ", method " + std::to_string(m) + ": " + schema.dump());
      GenerateOptions own = options;
      for (const auto& [key, value] : kRevising[m]) ASSERT_TRUE(own.set(key, value)) << key;
      const auto answer = model.generate("Ben has " + std::to_string(3 + i % 17) + " pens and gets 4 more.", own);
      if (!answer) {
        ++refused;
        EXPECT_NE(answer.error().message().find("such a text needs at least"), std::string::npos)
            << answer.error().message();
        continue;
      }
      if (answer->finish == FinishReason::kLength) {
        ++cut;
        ASSERT_TRUE(options.max_tokens);
        EXPECT_LE(answer->ids.size(), static_cast<std::size_t>(*options.max_tokens));
        continue;
      }
      ++stopped;
      ASSERT_EQ(answer->finish, FinishReason::kStop) << answer->text;
      const auto value = nlohmann::ordered_json::parse(answer->text, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(value.is_discarded()) << answer->text;
      EXPECT_TRUE(constrain::test::validates(value, schema, schema)) << answer->text;
    }
  }
  EXPECT_GT(stopped, 10 * (cut + refused) / 2) << cut << " were cut, " << refused << " refused";
}

}  // namespace
}  // namespace dllm
