// Answers under random schemas, by decoders that take tokens back: within the schema, and never without an end.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/parse_text.h"
#include "constrain/testing/validate.h"
#include "dllm/model.h"

namespace dllm {
namespace {

/// Random JSON Schemas of the keywords that validate.h reads, each of which some short text satisfies: what is required
/// is bounded in depth, and references stand where nothing is required.
class RandomSchemas {
 public:
  using Json = nlohmann::ordered_json;

  explicit RandomSchemas(std::uint32_t seed) : rng_(seed) {}

  Json next() {
    Json schema = any(2);
    Json defs = Json::object();
    if (schema.is_object() && schema.value("type", Json()) == "object" && chance(3)) {
      defs["node"] = {{"type", "object"},
                      {"properties", {{"v", scalar()}, {"next", {{"$ref", "#/$defs/node"}}}}},
                      {"required", {"v"}},
                      {"additionalProperties", false}};
      schema["properties"]["link"] = {{"$ref", "#/$defs/node"}};
      schema["$defs"] = defs;
    }
    return schema;
  }

  /// In [least, most]; the same with every library, as those of std::uniform_int_distribution are not.
  int draw(int least, int most) {
    return least + static_cast<int>(rng_() % (static_cast<std::uint32_t>(most - least) + 1));
  }
  /// Once in so many times.
  bool chance(int times) { return draw(1, times) == 1; }

 private:
  std::string word() {
    static const std::vector<std::string> words = {"a", "b1", "name", "count", "is sure", "x\"y", "n\u00e4", "unit"};
    return words[static_cast<std::size_t>(draw(0, static_cast<int>(words.size()) - 1))];
  }

  Json value() {
    switch (draw(0, 4)) {
      case 0:
        return draw(-20, 300);
      case 1:
        return word();
      case 2:
        return chance(2);
      case 3:
        return nullptr;
      default:
        return Json::array({draw(0, 9), word()});
    }
  }

  Json number() {
    Json schema = {{"type", chance(4) ? "number" : "integer"}};
    const int least = draw(-50, 50);
    if (chance(2)) schema[chance(3) ? "exclusiveMinimum" : "minimum"] = least;
    if (chance(2)) schema[chance(3) ? "exclusiveMaximum" : "maximum"] = least + draw(2, 2000);
    return schema;
  }

  Json text() {
    static const std::vector<std::string> patterns = {"^[A-Z][a-z]*$", "[0-9]", "^(ab|c)+$", "^\\w{2,5}$"};
    Json schema = {{"type", "string"}};
    if (chance(3)) {
      schema["pattern"] = patterns[static_cast<std::size_t>(draw(0, static_cast<int>(patterns.size()) - 1))];
      return schema;
    }
    const int least = draw(0, 4);
    if (chance(2)) schema["minLength"] = least;
    if (chance(2)) schema["maxLength"] = least + draw(0, 12);
    return schema;
  }

  Json scalar() {
    switch (draw(0, 6)) {
      case 0:
      case 1:
        return number();
      case 2:
      case 3:
        return text();
      case 4:
        return {{"type", chance(2) ? "boolean" : "null"}};
      case 5:
        return {{"enum", {value(), value(), value()}}};
      default:
        return chance(2) ? Json{{"const", value()}} : Json{{"type", {"integer", "null", "string"}}, {"maxLength", 5}};
    }
  }

  Json list(int depth) {
    Json schema = {{"type", "array"}};
    const int least = draw(0, 2);
    if (chance(2)) schema["minItems"] = least;
    if (chance(2)) schema["maxItems"] = least + draw(0, 3);
    if (chance(4)) schema["prefixItems"] = {any(depth - 1), any(depth - 1)};
    schema["items"] = any(depth - 1);
    return schema;
  }

  Json object(int depth) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}};
    Json required = Json::array();
    for (int i = draw(0, 3); i > 0; --i) {
      const std::string name = word();
      if (schema["properties"].contains(name)) continue;
      schema["properties"][name] = any(depth - 1);
      if (chance(2)) required.push_back(name);
    }
    if (!required.empty()) schema["required"] = required;
    if (!chance(4))
      schema["additionalProperties"] = false;
    else if (chance(2))
      schema["additionalProperties"] = scalar();
    return schema;
  }

  Json any(int depth) {
    const int kind = draw(0, depth > 0 ? 6 : 1);
    if (kind <= 1) return scalar();
    if (kind == 4) return list(depth);
    if (kind == 5) return {{"anyOf", {any(depth - 1), any(depth - 1)}}};
    return object(depth);
  }

  std::mt19937 rng_;
};

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

struct Asked {
  std::uint32_t schemas = 0;  ///< 0: DLLM_RANDOM_SCHEMAS is no number of them
  std::size_t apart = 0;      ///< each schema meets one of so many methods
};

/// Each schema meets one method. DLLM_RANDOM_SCHEMAS says how many schemas, and then each meets a third of the methods.
Asked asked() {
#ifdef DLLM_SANITIZED
  constexpr std::uint32_t kUsually = 15;
#else
  constexpr std::uint32_t kUsually = 60;
#endif
  const char* const text = std::getenv("DLLM_RANDOM_SCHEMAS");
  if (text == nullptr) return {kUsually, std::size(kRevising)};
  return {parse_number<std::uint32_t>(text).value_or(0), 3};
}

TEST(RandomSchemas, RevisedAnswersAreWithinThem) {
  LoadOptions load;
  load.threads = 1;
  const LanguageModel model = *LanguageModel::load("", load);
  const auto [count, apart] = asked();
  ASSERT_GT(count, 0U) << "DLLM_RANDOM_SCHEMAS is no number of schemas";
  std::size_t stopped = 0, cut = 0, refused = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    RandomSchemas schemas(1000 + i);
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
  EXPECT_GT(stopped, 5 * (cut + refused)) << cut << " were cut, " << refused << " refused";
}

}  // namespace
}  // namespace dllm
