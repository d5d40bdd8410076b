#include "constrain/string_format.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "constrain/testing/schema_dfa.h"

namespace dllm::constrain {
namespace {

using test::schema_dfa;

TEST(StringFormat, TextsAreValid) {
  const std::tuple<const char*, const char*, bool> cases[] = {
      {"date", "2024-02-29", true},
      {"date", "2023-02-29", false},
      {"date", "1900-02-29", false},
      {"date", "2000-02-29", true},
      {"date", "0000-01-01", false},
      {"date", "2023-04-31", false},
      {"time", "23:59:59.5Z", true},
      {"time", "24:00:00Z", false},
      {"time", "12:00:00", false},
      {"date-time", "2024-12-31T00:00:00+01:30", true},
      {"date-time", "2024-12-31 00:00:00Z", false},
      {"duration", "P1Y2M3DT4H5M6S", true},
      {"duration", "P1Y3D", false},
      {"duration", "P", false},
      {"duration", "P2W", true},
      {"uuid", "123e4567-e89b-12d3-a456-426614174000", true},
      {"uuid", "123e4567e89b12d3a456426614174000", false},
      {"uuid4", "123e4567-e89b-42d3-a456-426614174000", true},
      {"uuid4", "123e4567-e89b-12d3-a456-426614174000", false},
      {"uuid7", "123e4567-e89b-72d3-c456-426614174000", false},
      {"uuid9", "anything", true},
      {"ipv4network", "10.0.0.0", true},
      {"ipvanyaddress", "10.0.0.256", false},
      {"base64", "YWI=", true},
      {"base64", "YWJ=", false},
      {"base64", "YW=", false},
      {"base64url", "a_-0", true},
      {"json-pointer", "/a~1b/0", true},
      {"json-pointer", "a", false},
      {"email", "a.b+c@example.org", true},
      {"email", "a@b", false},
      {"email", "a..b@example.org", false},
      {"hostname", "www.example.org", true},
      {"hostname", "-a.org", false},
      {"ipv4", "255.0.10.1", true},
      {"ipv4", "256.0.0.1", false},
      {"ipv4", "01.0.0.1", false},
      {"ipv6", "::1", true},
      {"ipv6", "1:2:3:4:5:6:7:8", true},
      {"ipv6", "1:2:3:4:5:6:7::", true},
      {"ipv6", "1::2::3", false},
      {"uri", "https://example.org/a?b=1", true},
      {"uri", "example.org", false},
      {"unheard-of", "anything", true},
  };
  for (const auto& [format, text, expected] : cases) {
    const Dfa dfa = schema_dfa(R"({"type": "string", "format": ")" + std::string(format) + "\"}");
    EXPECT_EQ(dfa.matches("\"" + std::string(text) + "\""), expected) << format << " " << text;
    EXPECT_LT(dfa.states, 1500) << format;
  }
  // As pydantic writes a URL.
  schema_dfa(R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})");
}

}  // namespace
}  // namespace dllm::constrain
