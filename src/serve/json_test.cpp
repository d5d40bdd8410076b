#include "serve/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dllm::serve {
namespace {

std::string message(const auto& result) { return result ? "" : result.error().message(); }

TEST(Fields, ReadsMembersAndReportsTheRest) {
  const Json body = Json::parse(R"({"model": "m", "n": 3, "stream": true, "stop": ["a", "b"], "seed": null,
    "tempreature": 1, "user": "u"})");
  Ignored ignored;
  Fields fields(body, &ignored);
  EXPECT_EQ(*fields.text("model"), "m");
  EXPECT_EQ(*fields.integer("n", 1, 3), 3);
  EXPECT_EQ(*fields.integer("seed", 0, 9), std::nullopt);
  EXPECT_TRUE(*fields.flag("stream", false));
  EXPECT_TRUE(*fields.flag("echo", true));
  EXPECT_EQ(*fields.texts("stop", 4), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*fields.texts("model", 4), std::vector<std::string>{"m"});
  fields.ignore("user");
  EXPECT_EQ(ignored.text(), "user");
  EXPECT_EQ(fields.find("temperature"), nullptr);
  EXPECT_EQ(fields.rest(), std::vector<std::string>{"tempreature"});
  EXPECT_EQ(message(fields.done()), "tempreature: there is no such field (did you mean 'temperature'?)");
}

TEST(Fields, ErrorsNameThePathAndWhatIsWanted) {
  const Json body = Json::parse(R"({"effort": 3, "n": 18446744073709551615, "on": 1, "stop": [1], "zz": 0})");
  Fields fields(body, nullptr, "reasoning");
  EXPECT_EQ(message(fields.text("effort")), "reasoning.effort: it must be a string");
  EXPECT_EQ(message(fields.integer("effort", 4, 9)), "reasoning.effort: it must be an integer from 4 to 9");
  EXPECT_EQ(message(fields.integer("n", 0, 9)), "reasoning.n: it must be an integer from 0 to 9");
  EXPECT_EQ(message(fields.flag("on", true)), "reasoning.on: it must be true or false");
  EXPECT_FALSE(fields.texts("stop", 4));
  EXPECT_EQ(message(fields.done()), "reasoning.zz: there is no such field");
  EXPECT_EQ(fields.done().error().code, ErrorCode::kUsage);
}

/// Members of a large object are found by an index.
TEST(Fields, LargeObjectsAreReadTheSame) {
  Json body = Json::object();
  for (int i = 0; i < 40; ++i) body["k" + std::to_string(i)] = i;
  Fields fields(body);
  for (int i = 0; i < 39; ++i) EXPECT_EQ(*fields.integer("k" + std::to_string(i), 0, 99), i);
  EXPECT_EQ(fields.find("absent"), nullptr);
  EXPECT_EQ(fields.rest(), std::vector<std::string>{"k39"});
}

}  // namespace
}  // namespace dllm::serve
