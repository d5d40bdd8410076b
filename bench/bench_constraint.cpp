// What a constrained answer costs per pass on top of the model: the largest logits by class of tokens, and the most
// probable accepted tokens of a block of 32. The vocabulary has LLaDA's size; its words are made up.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "constrain/best_path.h"
#include "constrain/json_schema.h"

namespace {

using namespace dllm;
using namespace dllm::constrain;

constexpr std::size_t kVocabulary = 126'464;
constexpr std::int32_t kBlock = 32;
constexpr std::int32_t kAfter = 96;  ///< positions after the block

/// All bytes, JSON's punctuation in the combinations that tokenizers have, numbers, words with and without a space.
std::vector<std::string> vocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (const char* text :
       {"\":", "\": ", "\":\"", "\": \"", "\",", "\", ", "\",\"", "\", \"", "\"}",  "{\"",   "[\"",  "],",   "},",
        "}}",  "]}",   "\"]",   " \"",    ": ",  ", ",   " {",    " [",     "true", "false", "null", "\\\"", "\\n"})
    tokens.emplace_back(text);
  for (int n = 10; n < 1000; ++n) tokens.push_back(std::to_string(n));
  std::mt19937 rng(1);
  while (tokens.size() < kVocabulary) {
    std::string word = rng() % 2 == 0 ? " " : "";
    const auto size = 2 + rng() % 9;
    const bool wide = rng() % 6 == 0;  // two- and three-byte characters
    for (std::size_t i = 0; i < size; ++i) {
      if (wide) {
        word += static_cast<char>(0xE4 + rng() % 5);
        word += static_cast<char>(0x80 + rng() % 0x40);
        word += static_cast<char>(0x80 + rng() % 0x40);
      } else {
        word += static_cast<char>('a' + rng() % 26);
      }
    }
    if (rng() % 20 == 0) word += ".,;:!?-)\"'"[rng() % 10];
    tokens.push_back(std::move(word));
  }
  return tokens;
}

const char* const kSchemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type":
        "array", "items": {"type": "string"}}}, "required": ["name", "age", "tags"]})",
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "city": {"type": "string",
        "maxLength": 40}, "mail": {"type": "string", "pattern": "^[a-z.]+@[a-z.]+$"}}, "required": ["name", "mail"]})",
    R"({"type": "object"})",
};

TokenAutomaton automaton_of(const char* schema, const std::vector<std::string>& texts) {
  const std::vector<std::string_view> tokens(texts.begin(), texts.end());
  const TokenId stop = 5;
  return *TokenAutomaton::build(*compile(**parse_schema(schema)), tokens, {&stop, 1});
}

/// The median of so many runs, in milliseconds.
template <class F>
double median_ms(int runs, F run) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[static_cast<std::size_t>(runs / 2)];
}

void report(const char* schema, const std::vector<std::string>& texts, std::span<const float> logits) {
  const double built = median_ms(3, [&] { automaton_of(schema, texts); });
  const TokenAutomaton automaton = automaton_of(schema, texts);
  PathFinder finder(automaton);
  std::vector<Slot> slots(kBlock);  // all are masks
  for (std::int32_t i = 0; i < kBlock; ++i) slots[static_cast<std::size_t>(i)].row = i;
  ClassWeights weights(automaton);
  const double weighed = median_ms(15, [&] {
    weights.clear();
    for (std::size_t i = 0; i < kBlock; ++i) weights.add(logits.subspan(i * kVocabulary, kVocabulary));
  });
  bool found = true;
  const double searched = median_ms(15, [&] { found = found && finder.best(slots, weights, kAfter).has_value(); });
  std::printf("%5d states, %4d classes: built once in %.0f ms; per pass %.2f ms by class, %.2f ms path%s\n",
              automaton.states(), automaton.classes(), built, weighed, searched, found ? "" : " (none)");
}

}  // namespace

int main() {
  const auto texts = vocabulary();
  std::mt19937 rng(2);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocabulary * kBlock);
  for (float& z : logits) z = normal(rng);
  for (const char* schema : kSchemas) report(schema, texts, logits);
}
