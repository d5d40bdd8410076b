#include "eval/verify_texts.h"

#include <cstdint>
#include <string_view>

namespace dllm {
namespace {

constexpr std::uint64_t kVerifyTexts = 200;

/// What pre-tokenizers disagree on: digits, contractions, case, runs of white space and newlines, marks, scripts
/// without spaces, joined emoji, and punctuation next to letters.
constexpr std::string_view kVerifyPieces[] = {
    " ",      "  ",         "\n",     "\n\n",   "\r\n",     "\t",     "a",     "The",     "run",     "ing",   "HTTP",
    "iPhone", "'s",         "'LL",    "don't",  "1",        "42",     "2024",  "1234567", ".",       ",",     "!?",
    "--",     "#",          "_",      "$",      "€",        "(",      ")",     "{",       "}",       "\\",    "/",
    "é",      "e\u0301",    "ß",      "世界",   "ひらがな", "한국어", "हिन्दी", "ไทย",     "العربية", "Жизнь", "ζωή",
    "😀",     "👩\u200d👧", "\u00a0", "\u3000", "½",        "²",      "٣",     "Ⅳ",       "。",      "…",     "<|",
};

}  // namespace

std::vector<std::string> verify_texts() {
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < kVerifyTexts; ++i) {
    std::uint64_t state = 2 * i + 1;
    const auto draw = [&](std::uint64_t below) {
      state = 6364136223846793005U * state + 1442695040888963407U;
      return (state >> 33) % below;
    };
    std::string text;
    for (std::uint64_t left = draw(20) + 1; left > 0; --left) text += kVerifyPieces[draw(std::size(kVerifyPieces))];
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> verify_prompts() {
  return {
      "What is 17 + 25? Answer with the number only.",
      "Write a Python function that returns the larger of two numbers.",
      "Name three cities in France.",
      "用一句话介绍北京。",
  };
}

}  // namespace dllm
