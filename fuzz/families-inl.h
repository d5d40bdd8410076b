#pragma once

// How families are written: texts with n of something in them.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "families.h"

namespace dllm::fuzz {

std::vector<Family> families_of_texts();          ///< requests, schemas, and those of the next two
std::vector<Family> families_of_conversations();  ///< in requests
std::vector<Family> families_of_templates();      ///< and of tokenizers
std::vector<Family> families_of_files();          ///< of models, evaluations and the NPU

namespace {

using std::string;

string number(std::size_t i) { return std::to_string(i); }

string replaced(string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

/// `one` n times with `between` in between; "#" in it is its number, "+" the next one's. Names begin alike and are
/// long, so that a search that compares each with all others takes its time: short ones of different lengths are told
/// apart at once, and where their number is limited such a search stays within what growth.h allows.
string several(std::size_t n, std::string_view one, std::string_view between = "") {
  const bool plain = one.find_first_of("#+") == one.npos;
  string text;
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) text += between;
    if (plain) {
      text += one;
      continue;
    }
    for (const char c : one) {
      if (c == '#' || c == '+')
        text += number(c == '#' ? i : i + 1);
      else
        text += c;
    }
  }
  return text;
}

/// before, the parts, after.
Make list(string before, string one, string between, string after) {
  return [=](std::size_t n) { return before + several(n, one, between) + after; };
}

/// before, n times `open`, middle, n times `close`, after.
Make nest(string before, string open, string middle, string close, string after) {
  return [=](std::size_t n) { return before + several(n, open) + middle + several(n, close) + after; };
}

Make wrapped(string before, Make inner, string after) {
  return [=](std::size_t n) { return before + inner(n) + after; };
}

}  // namespace
}  // namespace dllm::fuzz
