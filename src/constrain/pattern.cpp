#include "constrain/pattern.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "text/utf8.h"

namespace dllm::constrain {
namespace {

PatternPtr make_pattern(Pattern::Kind kind, std::vector<PatternPtr> parts, std::int32_t least = 0,
                        std::int32_t most = 0) {
  std::int32_t depth = 0;
  for (const PatternPtr& part : parts) depth = std::max(depth, part->depth + 1);
  return std::make_shared<Pattern>(Pattern{kind, {}, {}, std::move(parts), least, most, depth});
}

}  // namespace

PatternPtr one_of(CharSet chars) {
  return std::make_shared<Pattern>(Pattern{Pattern::Kind::kChars, std::move(chars), {}, {}, 0, 0, 0});
}

PatternPtr literal(std::string_view text) {
  return std::make_shared<Pattern>(Pattern{Pattern::Kind::kText, {}, std::string(text), {}, 0, 0, 0});
}

PatternPtr sequence(std::vector<PatternPtr> parts) {
  if (parts.size() == 1) return parts.front();
  return make_pattern(Pattern::Kind::kSequence, std::move(parts));
}

PatternPtr either(std::vector<PatternPtr> parts) {
  if (parts.size() == 1) return parts.front();
  return make_pattern(Pattern::Kind::kEither, std::move(parts));
}

PatternPtr repeat(PatternPtr part, std::int32_t least, std::int32_t most) {
  return make_pattern(Pattern::Kind::kRepeat, {std::move(part)}, least, most);
}

PatternPtr counted(PatternPtr part, std::int32_t most) {
  return make_pattern(Pattern::Kind::kCounted, {std::move(part)}, 0, most);
}

PatternPtr both(PatternPtr first, PatternPtr second) {
  return make_pattern(Pattern::Kind::kBoth, {std::move(first), std::move(second)});
}

PatternPtr except(PatternPtr first, PatternPtr second) {
  return make_pattern(Pattern::Kind::kExcept, {std::move(first), std::move(second)});
}

PatternPtr at_place(const PatternPtr& pattern, std::string place) {
  auto named = std::make_shared<Pattern>(*pattern);
  named->place = std::move(place);
  return named;
}

namespace {

class CharReplacement {
 public:
  explicit CharReplacement(const std::function<PatternPtr(const CharSet&)>& replace) : replace_(replace) {}

  PatternPtr of(const PatternPtr& pattern) {
    if (const auto known = done_.find(pattern.get()); known != done_.end()) return known->second;
    PatternPtr result;
    if (pattern->kind == Pattern::Kind::kChars) {
      result = replace_(pattern->chars);
    } else if (pattern->kind == Pattern::Kind::kText) {
      result = text(pattern->text);
    } else {
      std::vector<PatternPtr> parts = pattern->parts;
      for (PatternPtr& part : parts) part = of(part);
      result = make_pattern(pattern->kind, std::move(parts), pattern->least, pattern->most);
    }
    done_.emplace(pattern.get(), result);
    return result;
  }

 private:
  PatternPtr text(std::string_view text) {
    std::vector<PatternPtr> parts;
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_at(text, i);
      PatternPtr& part = chars_[c.code];
      if (part == nullptr) part = replace_({c.code, c.code});
      parts.push_back(part);
      i += c.size;
    }
    return sequence(std::move(parts));
  }

  const std::function<PatternPtr(const CharSet&)>& replace_;
  std::map<const Pattern*, PatternPtr> done_;
  std::unordered_map<char32_t, PatternPtr> chars_;  ///< of texts, which repeat few characters
};

}  // namespace

PatternPtr replace_chars(const PatternPtr& pattern, const std::function<PatternPtr(const CharSet&)>& replace) {
  return CharReplacement(replace).of(pattern);
}

namespace {

class ShorterProducts {
 public:
  explicit ShorterProducts(std::int32_t most) : most_(most) {}

  PatternPtr of(const PatternPtr& pattern, bool within) {
    if (pattern->parts.empty()) return pattern;
    PatternPtr& known = done_[{pattern.get(), within}];
    if (known != nullptr) return known;
    using Kind = Pattern::Kind;
    const bool product = pattern->kind == Kind::kBoth || pattern->kind == Kind::kExcept;
    auto copy = std::make_shared<Pattern>(*pattern);
    for (std::size_t i = 0; i < copy->parts.size(); ++i) {
      // Of what may not match, less would be more.
      if (pattern->kind == Kind::kExcept && i > 0) continue;
      copy->parts[i] = of(pattern->parts[i], within || product);
    }
    const bool repeats = pattern->kind == Kind::kRepeat || pattern->kind == Kind::kCounted;
    if (within && repeats && copy->most != Pattern::kUnbounded)
      copy->most = std::min(copy->most, std::max(copy->least, most_));
    const bool same = copy->parts == pattern->parts && copy->most == pattern->most;
    return done_[{pattern.get(), within}] = same ? pattern : PatternPtr(std::move(copy));
  }

 private:
  const std::int32_t most_;
  std::map<std::pair<const Pattern*, bool>, PatternPtr> done_;
};

}  // namespace

PatternPtr with_shorter_products(const PatternPtr& pattern, std::int32_t most) {
  return ShorterProducts(most).of(pattern, /*within=*/false);
}

}  // namespace dllm::constrain
