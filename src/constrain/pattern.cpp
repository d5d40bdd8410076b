#include "constrain/pattern.h"

#include <map>
#include <utility>

#include "text/utf8.h"

namespace dllm::constrain {

PatternPtr one_of(CharSet chars) {
  return std::make_shared<Pattern>(Pattern{Pattern::Kind::kChars, std::move(chars), {}, 0, 0});
}

PatternPtr literal(std::string_view text) {
  std::vector<PatternPtr> parts;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    parts.push_back(one_of({c.code, c.code}));
    i += c.size;
  }
  return sequence(std::move(parts));
}

PatternPtr sequence(std::vector<PatternPtr> parts) {
  if (parts.size() == 1) return parts.front();
  return std::make_shared<Pattern>(Pattern{Pattern::Kind::kSequence, {}, std::move(parts), 0, 0});
}

PatternPtr either(std::vector<PatternPtr> parts) {
  if (parts.size() == 1) return parts.front();
  return std::make_shared<Pattern>(Pattern{Pattern::Kind::kEither, {}, std::move(parts), 0, 0});
}

PatternPtr repeat(PatternPtr part, std::int32_t least, std::int32_t most) {
  return std::make_shared<Pattern>(Pattern{Pattern::Kind::kRepeat, {}, {std::move(part)}, least, most});
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
    } else {
      Pattern copy = *pattern;
      for (PatternPtr& part : copy.parts) part = of(part);
      result = std::make_shared<Pattern>(std::move(copy));
    }
    done_.emplace(pattern.get(), result);
    return result;
  }

 private:
  const std::function<PatternPtr(const CharSet&)>& replace_;
  std::map<const Pattern*, PatternPtr> done_;
};

}  // namespace

PatternPtr replace_chars(const PatternPtr& pattern, const std::function<PatternPtr(const CharSet&)>& replace) {
  return CharReplacement(replace).of(pattern);
}

}  // namespace dllm::constrain
