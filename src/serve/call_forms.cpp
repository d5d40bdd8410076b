#include "serve/call_forms.h"

#include <algorithm>
#include <utility>

namespace dllm::serve {
namespace {

constexpr std::string_view kHermesOpen = "<tool_call>", kGemmaOpen = "<|tool_call>", kGemmaClose = "<tool_call|>",
                           kGemmaQuote = "<|\"|>", kGemmaCall = "call:", kGap = " \t\r\n";
constexpr int kDeepestArgument = 64;

std::string_view trimmed_call(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kGap);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kGap) + 1 - begin);
}

std::optional<WrittenCall> read_hermes_call(const CallForm& form, std::string_view text) {
  const std::size_t begin = form.open.size(), end = text.find(form.close, begin);
  if (end == text.npos) return std::nullopt;
  const auto json = parse_body(trimmed_call(text.substr(begin, end - begin)));
  if (!json || !json->contains("name") || !(*json)["name"].is_string()) return std::nullopt;
  WrittenCall call{.name = (*json)["name"].get<std::string>(), .bytes = end + form.close.size()};
  if (const auto arguments = json->find("arguments"); arguments != json->end()) call.arguments = *arguments;
  if (!call.arguments.is_object()) return std::nullopt;
  return call;
}

/// Reads Gemma's arguments: keys without quotes, texts between <|"|>, which nothing in them escapes. JSON's quotes are
/// read as well, and a value that is nothing else is a text: small models forget the quotes.
class GemmaReader {
 public:
  explicit GemmaReader(std::string_view text) : text_(text) {}

  bool take(std::string_view wanted) {
    skip_gap();
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  std::size_t at() const { return at_; }

  std::string_view word(std::string_view ends) {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, begin), text_.size());
    return trimmed_call(text_.substr(begin, at_ - begin));
  }

  std::optional<Json> value(int depth) {
    if (depth > kDeepestArgument) return std::nullopt;
    if (take("{")) return members(depth);
    if (take("[")) return items(depth);
    if (is_quoted()) {
      if (auto text = quoted()) return Json(*std::move(text));
      return std::nullopt;
    }
    const std::string_view plain = word(",}]");
    if (plain.empty() || plain.find('<') != plain.npos) return std::nullopt;
    if (plain == "None") return Json();  // as templates write what has no value
    if (auto scalar = parse_text(plain, "the call", "")) return *std::move(scalar);
    return Json(std::string(plain));
  }

 private:
  void skip_gap() { at_ = std::min(text_.find_first_not_of(kGap, at_), text_.size()); }
  bool is_quoted() {
    skip_gap();
    return text_.substr(at_).starts_with(kGemmaQuote) || text_.substr(at_).starts_with('"');
  }

  std::optional<std::string> quoted() {
    if (take(kGemmaQuote)) {
      const std::size_t begin = at_, end = text_.find(kGemmaQuote, begin);
      if (end == text_.npos) return std::nullopt;
      at_ = end + kGemmaQuote.size();
      return std::string(text_.substr(begin, end - begin));
    }
    const std::size_t begin = at_;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    if (at_ >= text_.size()) return std::nullopt;
    ++at_;
    const auto json = parse_text(text_.substr(begin, at_ - begin), "the call", "");
    if (!json || !json->is_string()) return std::nullopt;
    return json->get<std::string>();
  }

  std::optional<Json> members(int depth) {
    Json object = Json::object();
    if (take("}")) return object;
    do {
      const std::optional<std::string> key = is_quoted() ? quoted() : std::string(word(":,{}[]"));
      if (!key || key->empty() || object.contains(*key) || !take(":")) return std::nullopt;
      auto one = value(depth + 1);
      if (!one) return std::nullopt;
      object[*key] = *std::move(one);
    } while (take(","));
    if (!take("}")) return std::nullopt;
    return object;
  }

  std::optional<Json> items(int depth) {
    Json list = Json::array();
    if (take("]")) return list;
    do {
      auto one = value(depth + 1);
      if (!one) return std::nullopt;
      list.push_back(*std::move(one));
    } while (take(","));
    if (!take("]")) return std::nullopt;
    return list;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::optional<WrittenCall> read_gemma_call(const CallForm& form, std::string_view text) {
  GemmaReader reader(text);
  if (!reader.take(form.open) || !reader.take(kGemmaCall)) return std::nullopt;
  WrittenCall call{.name = std::string(reader.word("{<"))};
  auto arguments = reader.value(0);
  if (!arguments || !arguments->is_object() || !reader.take(form.close)) return std::nullopt;
  call.arguments = *std::move(arguments);
  call.bytes = reader.at();
  return call;
}

}  // namespace

const std::vector<CallForm>& call_forms() {
  static const std::vector<CallForm> all = {
      {kHermesOpen, "</tool_call>", {kHermesOpen, "</tool_call>"}},
      {kGemmaOpen, kGemmaClose, {kGemmaOpen, kGemmaClose, kGemmaQuote}},
  };
  return all;
}

std::optional<WrittenCall> read_call(const CallForm& form, std::string_view text) {
  return form.open == kGemmaOpen ? read_gemma_call(form, text) : read_hermes_call(form, text);
}

}  // namespace dllm::serve
