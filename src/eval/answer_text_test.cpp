// Extraction of results from answers, and Python literals: cases decided by lm-evaluation-harness' patterns.
#include "eval/answer_text.h"

#include <gtest/gtest.h>

#include "eval/python_literal.h"

namespace dllm {
namespace {

TEST(ExactMatch, IgnoresWhiteSpaceAtTheEndOnly) {
  EXPECT_TRUE(exact_match("16", "16"));
  EXPECT_TRUE(exact_match("16 \n", "16"));
  EXPECT_TRUE(exact_match("16", "16\n"));
  EXPECT_FALSE(exact_match(" 16", "16"));
  EXPECT_FALSE(exact_match("16 17", "16"));
  EXPECT_FALSE(exact_match("", "16"));
  EXPECT_TRUE(exact_match("", " "));
}

TEST(LastNumber, IsTheHarnessFlexibleMatch) {
  const struct {
    const char *text, *number;
  } cases[] = {
      {"She has 3 + 4 = 7 eggs.", "7"},
      {"That makes $1,234.50.", "1234.50"},
      {"The answer is -12", "-12"},
      {"10-5", "-5"},  // the pattern knows no subtraction
      {"so 18 dollars per day. #### 18", "18"},
      {"x = 4.", "4"},
      {"80,000 and 70000", "70000"},
      {"$5", "5"},
      {"7 ...", ".."},  // two or more of `$0-9.,` match, even without a digit
  };
  for (const auto& c : cases) EXPECT_EQ(last_number(c.text).value_or("none"), c.number) << c.text;
  EXPECT_FALSE(last_number("no figure at all, none. $"));
}

TEST(MarkedNumber, IsTheStrictMatch) {
  EXPECT_EQ(marked_number("a 1\n#### 18").value_or("none"), "18");
  EXPECT_EQ(marked_number("#### -1,200.").value_or("none"), "-1200");
  EXPECT_EQ(marked_number("#### 5\n#### 6").value_or("none"), "5");
  EXPECT_FALSE(marked_number("####18"));
  EXPECT_FALSE(marked_number("#### x"));
  EXPECT_FALSE(marked_number("18"));
}

TEST(CodeBlock, TakesTheFirst) {
  EXPECT_EQ(code_block("Sure:\n```python\nx = 1\n```\nand\n```\ny\n```").value_or("none"), "x = 1\n");
  EXPECT_EQ(code_block("```\nopen").value_or("none"), "open");
  EXPECT_FALSE(code_block("x = 1"));
}

TEST(FirstOption, ByPlaceThenLength) {
  EXPECT_EQ(first_option("I think Answer2, not answer1", {"answer1", "answer2"}), 1);
  EXPECT_EQ(first_option("answer12", {"answer1", "answer12"}), 1);
  EXPECT_EQ(first_option("FALSE", {"true", "false"}), 1);
  EXPECT_EQ(first_option("perhaps", {"true", "false"}), -1);
}

TEST(PythonLiteral, EqualValuesHaveOneSpelling) {
  const std::pair<const char*, const char*> same[] = {
      {"[1, 2,3]", "[1,2,3]"},
      {"(4, 1)", "( 4,1, )"},
      {"(4)", "4"},
      {"'a\\'b'", "\"a'b\""},
      {"'a' 'b'", "'ab'"},
      {"{'a': 1, 'b': 2}", "{\"b\": 2, \"a\": 1}"},
      {"{1: 1, 1: 2}", "{1: 2}"},
      {"{3, 1, 2}", "{1,2,3}"},
      {"1.0", "1"},
      {"True", "1"},
      {"-0", "0"},
      {"1e3", "1000"},
      {"'\\u00e9'", "'\xc3\xa9'"},
      {"'''x'''", "'x'"},
      {"r'\\d'", "'\\\\d'"},
      {"[]", " [ ] "},
      {"()", "( )"},
      {"12345678901234567890123", "+12345678901234567890123"},
  };
  for (const auto& [a, b] : same) {
    ASSERT_TRUE(canonical_python_literal(a)) << a;
    EXPECT_EQ(canonical_python_literal(a), canonical_python_literal(b)) << a << " and " << b;
  }
  const std::pair<const char*, const char*> different[] = {
      {"[1]", "(1,)"}, {"'1'", "1"}, {"{}", "set()"}, {"b'a'", "'a'"}, {"(1,)", "(1)"}, {"1.5", "1"}, {"''", "None"}};
  for (const auto& [a, b] : different)
    EXPECT_NE(canonical_python_literal(a).value_or("x"), canonical_python_literal(b).value_or("y"))
        << a << " and " << b;
}

TEST(PythonLiteral, RefusesEverythingElse) {
  for (const char* text : {"", "f(1)", "[1", "[1 2]", "1 + 1", "'a", "{1: 2, 3}", "[,]", "(,)", "Nonesuch", "{**a}",
                           "1 2", "'\\x1'", "--"})
    EXPECT_FALSE(canonical_python_literal(text)) << text;
  EXPECT_FALSE(canonical_python_literal(std::string(1000, '[') + std::string(1000, ']')));
}

}  // namespace
}  // namespace dllm
