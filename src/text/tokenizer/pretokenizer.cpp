#include "text/tokenizer/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/try.h"
#include "text/tokenizer/oniguruma.h"
#include "text/utf8.h"

namespace dllm {
namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;

struct SplitStage {
  Code code;
  SplitRule rule;
};

// A stretch of text, and whether the pattern matched it (after `invert`).
struct Span {
  std::string_view text;
  bool match;
};

// In Oniguruma's Ruby syntax ^ and $ always match at lines: hence MULTILINE. See from_oniguruma().
constexpr std::uint32_t kCompileOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;

// Backtracking steps per call: generous for real patterns, which need a few per character, and a limit for others.
constexpr std::uint32_t kMatchLimitBase = 1'000'000, kMatchLimitPerByte = 32;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;

Expected<Code> compile_pattern(const std::string& source) {
  DLLM_TRY(const std::string pattern, from_oniguruma(source));
  int code = 0;
  std::size_t offset = 0;
  Code compiled(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kCompileOptions, &code,
                              &offset, nullptr));
  if (!compiled) {
    PCRE2_UCHAR reason[256] = {};
    pcre2_get_error_message(code, reason, sizeof(reason));
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("pre-tokenizer pattern '{}' does not compile at offset {}: {}",
                             replace_invalid_utf8(source), offset, reinterpret_cast<const char*>(reason)),
                 "", ""};
  }
  pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);  // without JIT pcre2_match interprets: same matches, slower
  return compiled;
}

// Finds the matches of one pattern in one piece, left to right. An empty match splits the text and is not found again
// where the previous match ended.
class Scanner {
 public:
  Scanner(const SplitStage& step, std::string_view subject, pcre2_match_data* data, pcre2_match_context* context)
      : step_(step), subject_(subject), data_(data), context_(context) {
    const std::size_t scaled = std::min<std::size_t>(subject.size(), 100'000'000) * kMatchLimitPerByte;
    pcre2_set_match_limit(context,
                          kMatchLimitBase + static_cast<std::uint32_t>(std::min<std::size_t>(scaled, 1U << 31)));
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }

  void run(std::vector<Span>& spans) {
    std::size_t start = 0, done = 0;
    while (start <= subject_.size() && find(start)) {
      const std::size_t* range = pcre2_get_ovector_pointer(data_);
      const std::size_t begin = range[0], end = range[1];
      if (begin < done || end < begin) break;  // \K can move the start of a match backwards
      push(spans, done, begin, false);
      push(spans, begin, end, true);
      done = end;
      start = end > begin ? end : next_char(end);
    }
    push(spans, done, subject_.size(), false);
  }

 private:
  bool find(std::size_t start) {
    const auto* text = reinterpret_cast<PCRE2_SPTR>(subject_.data());
    int rc = pcre2_match(step_.code.get(), text, subject_.size(), start, PCRE2_NO_UTF_CHECK, data_, context_);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(step_.code.get(), text, subject_.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_,
                       context_);
    }
    return rc >= 0;
  }

  std::size_t next_char(std::size_t at) const {
    return at < subject_.size() ? at + utf8_at(subject_, at).size : at + 1;
  }

  void push(std::vector<Span>& spans, std::size_t begin, std::size_t end, bool match) const {
    if (begin < end) spans.push_back({subject_.substr(begin, end - begin), match != step_.rule.invert});
  }

  const SplitStage& step_;
  std::string_view subject_;
  pcre2_match_data* data_;
  pcre2_match_context* context_;
};

std::string_view join(std::string_view left, std::string_view right) {
  return {left.data(), left.size() + right.size()};
}

// The spans are adjacent, so joining two neighbours is pointer arithmetic.
void apply_rule(const std::vector<Span>& spans, SplitBehavior behavior, std::vector<std::string_view>& out) {
  const std::size_t first = out.size();
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto& [text, match] = spans[i];
    const bool has_neighbour = i > 0 && out.size() > first;
    const bool previous_match = i > 0 && spans[i - 1].match;
    switch (behavior) {
      case SplitBehavior::kIsolated:
        out.push_back(text);
        break;
      case SplitBehavior::kRemoved:
        if (!match) out.push_back(text);
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (match && has_neighbour && !previous_match) {
          out.back() = join(out.back(), text);
        } else {
          out.push_back(text);
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (!match && has_neighbour && previous_match) {
          out.back() = join(out.back(), text);
        } else {
          out.push_back(text);
        }
        break;
      case SplitBehavior::kContiguous:
        if (has_neighbour && match == previous_match) {
          out.back() = join(out.back(), text);
        } else {
          out.push_back(text);
        }
        break;
    }
  }
}

}  // namespace

struct Pretokenizer::Impl {
  std::vector<SplitStage> steps;

  void split_valid(std::string_view text, std::vector<std::string_view>& pieces) const;
};

void Pretokenizer::Impl::split_valid(std::string_view text, std::vector<std::string_view>& pieces) const {
  std::vector<std::string_view> current{text}, next;
  std::vector<Span> spans;
  const MatchContext context(pcre2_match_context_create(nullptr));
  for (const SplitStage& step : steps) {
    const MatchData data(pcre2_match_data_create(1, nullptr));
    next.clear();
    for (const std::string_view piece : current) {
      spans.clear();
      Scanner(step, piece, data.get(), context.get()).run(spans);
      apply_rule(spans, step.rule.behavior, next);
    }
    current.swap(next);
  }
  pieces.insert(pieces.end(), current.begin(), current.end());
}

Pretokenizer::Pretokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Pretokenizer::~Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;

Expected<Pretokenizer> Pretokenizer::compile(const std::vector<std::string>& patterns,
                                             const std::vector<SplitRule>& rules) {
  if (!rules.empty() && rules.size() != patterns.size()) {
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} pre-tokenizer patterns but {} split rules", patterns.size(), rules.size()), "", ""};
  }
  auto impl = std::make_unique<Impl>();
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    DLLM_TRY(Code code, compile_pattern(patterns[i]));
    impl->steps.push_back({std::move(code), rules.empty() ? SplitRule{} : rules[i]});
  }
  return Pretokenizer(std::move(impl));
}

void Pretokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t valid = utf8_valid_run(text, i); valid > 0) {
      impl_->split_valid(text.substr(i, valid), pieces);
      i += valid;
    }
    const std::size_t begin = i;
    while (i < text.size()) {
      const Utf8Char c = utf8_at(text, i);
      if (c.valid) break;
      i += c.size;
    }
    if (i > begin) pieces.push_back(text.substr(begin, i - begin));
  }
}

}  // namespace dllm
