#include "text/thoughts.h"

#include <algorithm>
#include <array>
#include <utility>

namespace dllm {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kStart = "<|start|>", kChannelMark = "<|channel|>", kMessage = "<|message|>";
constexpr std::array<std::string_view, 3> kMessageEnds = {"<|end|>", "<|return|>", "<|call|>"};

/// Pairs that chat templates of published models have. The first one wins: "<think>" is also part of what templates
/// with other tags explain.
constexpr std::pair<std::string_view, std::string_view> kTags[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},                     // Magistral
    {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command A
    {"<seed:think>", "</seed:think>"},           // Seed-OSS
    {"<|think_start|>", "<|think_end|>"},        // Solar
    {"<|inner_prefix|>", "<|inner_suffix|>"},    // Apertus
    {"<thinking>", "</thinking>"},
    {"<thought>", "</thought>"},
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string_view without_first_spaces(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

std::string_view without_last_spaces(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1 is 0
}

/// Without an end that may become one of the markers.
std::string_view without_begun(std::string_view text, const std::vector<std::string>& markers) {
  std::size_t held = 0;
  for (const std::string& marker : markers)
    for (std::size_t size = std::min(marker.size() - 1, text.size()); size > held; --size)
      if (text.ends_with(std::string_view(marker).substr(0, size))) held = size;
  return text.substr(0, text.size() - held);
}

/// Appends a thought to those before it.
void add_thought(SplitAnswer& answer, std::string_view thought) {
  thought = without_last_spaces(without_first_spaces(thought));
  if (thought.empty()) return;
  if (!answer.thoughts.empty()) answer.thoughts += "\n\n";
  answer.thoughts += thought;
}

/// Appends text; what is between thoughts and text belongs to neither.
void add_text(SplitAnswer& answer, std::string_view text, bool after_thought) {
  answer.text += after_thought && answer.text.empty() ? without_first_spaces(text) : text;
}

/// Text that may be told: all of it, or what cannot be a part of a marker.
std::string_view certain(std::string_view text, bool complete, const std::vector<std::string>& markers) {
  return complete ? text : without_begun(text, markers);
}

struct Position {
  std::size_t at = std::string_view::npos, size = 0;
};

/// The first of several texts at or after `from`.
template <class Texts>
Position first_of(std::string_view text, const Texts& wanted, std::size_t from) {
  Position first;
  for (const auto& one : wanted) {
    const std::string_view marker = one;
    const std::size_t at = text.find(marker, from);
    if (at < first.at) first = {at, marker.size()};
  }
  return first;
}

SplitAnswer split_tags(const ThoughtFormat& format, bool opened, std::string_view answer, bool complete,
                       std::string_view call_marker) {
  SplitAnswer result;
  const std::string_view whole = answer;
  const std::string_view begun = without_first_spaces(answer);
  // Some models repeat the tag that their prompt ends with.
  if (begun.starts_with(format.open)) {
    answer = begun.substr(format.open.size());
    opened = true;
  } else if (!complete && std::string_view(format.open).starts_with(begun)) {
    return result;
  }
  if (!opened) {
    result.text = answer;
    return result;
  }
  const std::size_t end = answer.find(format.close);
  if (end != answer.npos) {
    const std::string_view rest = answer.substr(end + format.close.size());
    add_thought(result, answer.substr(0, end));
    add_text(result, rest, /*after_thought=*/true);
    result.thought_bytes = whole.size() - rest.size();
    return result;
  }
  std::vector<std::string> ends = {format.close};
  if (!call_marker.empty()) ends.emplace_back(call_marker);
  const std::size_t call = call_marker.empty() ? answer.npos : answer.find(call_marker);
  std::string_view thought = answer.substr(0, call);
  if (call == answer.npos && !complete) thought = without_begun(thought, ends);
  add_thought(result, thought);
  result.thought_bytes = call == answer.npos ? whole.size() : whole.size() - (answer.size() - call);
  if (call != answer.npos && complete) result.text = answer.substr(call);
  return result;
}

/// The name of a channel, "thought\n"; npos: it is not complete. A channel without a name has none.
std::size_t label_size(std::string_view body, bool complete) {
  constexpr std::size_t kLongest = 24;
  const std::size_t end = body.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
  if (end == body.npos && complete) return body == "thought" || body == "final" ? body.size() : 0;
  if (end == body.npos) return body.size() > kLongest ? 0 : body.npos;
  return body[end] == '\n' && end <= kLongest ? end + 1 : 0;
}

SplitAnswer split_channels(const ThoughtFormat& format, std::string_view prefix, std::string_view answer,
                           bool complete) {
  SplitAnswer result;
  const std::string all = std::string(prefix) + std::string(answer);
  const std::string_view text = all;
  const std::vector<std::string> markers = {format.open, format.close};
  bool thought = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find(format.open, at);
    const std::string_view rest = text.substr(at, open == text.npos ? open : open - at);
    const std::string_view before = open == text.npos ? certain(rest, complete, markers) : rest;
    // Blanks may turn out to be in front of a thought.
    const bool blank = result.text.empty() && without_first_spaces(before).empty() && (!complete || open != text.npos);
    if (!blank) add_text(result, before, thought);
    if (open == text.npos) break;
    const std::size_t body = open + format.open.size();
    const std::size_t close = text.find(format.close, body);
    const std::string_view inside = text.substr(body, close == text.npos ? close : close - body);
    const bool ended = complete || close != text.npos;
    const std::size_t label = label_size(inside, ended);
    if (label == inside.npos) break;
    const std::string_view name = without_last_spaces(inside.substr(0, label)), said = inside.substr(label);
    const std::string_view sure = ended ? said : without_begun(said, markers);
    if (name == "final") {
      add_text(result, sure, thought);
    } else {
      thought = true;
      add_thought(result, sure);
      result.thought_bytes = std::min(close == text.npos ? text.size() : close + format.close.size(), text.size());
    }
    at = close == text.npos ? text.size() : close + format.close.size();
  }
  result.thought_bytes -= std::min(result.thought_bytes, prefix.size());
  return result;
}

/// What the header of a harmony message says: "<|start|>assistant to=functions.f<|channel|>commentary".
struct Header {
  std::string_view channel, recipient;
};

Header read_header(std::string_view text) {
  const auto word = [&](std::string_view key) -> std::string_view {
    const std::size_t at = text.find(key);
    if (at == text.npos) return {};
    const std::string_view rest = text.substr(at + key.size());
    return rest.substr(0, std::min(rest.find_first_of(" <\n"), rest.size()));
  };
  return {word(kChannelMark), word(" to=")};
}

/// One message of a harmony answer.
void add_message(SplitAnswer& result, const Header& header, std::string_view body, bool complete) {
  constexpr std::string_view kFunctions = "functions.";
  if (header.recipient.starts_with(kFunctions)) {
    if (complete) result.calls.push_back({std::string(header.recipient.substr(kFunctions.size())), std::string(body)});
  } else if (header.channel == "analysis") {
    add_thought(result, body);
  } else {
    if (!result.text.empty() && !body.empty()) result.text += "\n\n";
    result.text += body;
  }
}

SplitAnswer split_harmony(std::string_view prefix, std::string_view answer, bool complete,
                          const std::vector<std::string>& markers) {
  SplitAnswer result;
  // An answer that does not go on with the header of its prompt is plain text.
  const bool in_header = !contains(prefix, kMessage);
  if (in_header && !answer.starts_with("<|") && !answer.starts_with(" to=")) {
    const bool may =
        !complete && (std::string_view("<|").starts_with(answer) || std::string_view(" to=").starts_with(answer));
    if (!may) result.text = certain(answer, complete, markers);
    return result;
  }
  const std::string all = std::string(prefix) + std::string(answer);
  const std::string_view text = all;
  for (std::size_t at = 0; at < text.size();) {
    const Position message = first_of(text, std::array{kMessage}, at);
    if (message.at == text.npos) break;  // the header is not complete
    const Header header = read_header(text.substr(at, message.at - at));
    const std::size_t body = message.at + message.size;
    Position end = first_of(text, kMessageEnds, body);
    // Some answers leave the end out.
    const Position next = first_of(text, std::array{kStart, kChannelMark}, body);
    if (next.at < end.at) end = {next.at, 0};
    const bool ended = end.at != text.npos;
    const std::string_view said = text.substr(body, ended ? end.at - body : end.at);
    add_message(result, header, ended ? said : certain(said, complete, markers), complete);
    at = ended ? end.at + end.size : text.size();
    if (header.channel == "analysis" && header.recipient.empty()) result.thought_bytes = at;
  }
  result.thought_bytes -= std::min(result.thought_bytes, prefix.size());
  return result;
}

/// An expression for a text.
std::string escaped(std::string_view text) {
  std::string regex;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}/-").find(c) != std::string_view::npos) regex += '\\';
    regex += c;
  }
  return regex;
}

/// The rest of the header of a message in this channel, of which the prompt has written `begun`: "<|start|>assistant"
/// and perhaps more. Empty: it is complete, or another one.
std::string left_of_header(std::string_view begun, std::string_view channel) {
  const std::string header = std::string(kChannelMark) + std::string(channel) + std::string(kMessage);
  if (contains(begun, kMessage)) return "";
  const std::size_t mark = begun.rfind(kChannelMark);
  if (mark == begun.npos) return header;
  return header.starts_with(begun.substr(mark)) ? header.substr(begun.size() - mark) : "";
}

/// One thought, which holds no "<|", then the header of the text.
std::string harmony_regex(std::string_view begun) {
  const std::string header = left_of_header(begun, "analysis");
  if (header.empty() && read_header(begun).channel != "analysis") return escaped(left_of_header(begun, "final"));
  const std::string next =
      std::string(kStart) + "assistant" + std::string(kChannelMark) + "final" + std::string(kMessage);
  const std::string thought = escaped(header) + R"(([^<]|<+[^<|])*)" + escaped("<|end|>") + escaped(next);
  return header.empty() ? thought : "(" + thought + "|" + escaped(left_of_header(begun, "final")) + ")";
}

/// The end of the prompt that belongs to the answer's first thought or message.
std::string_view unfinished(const ThoughtFormat& format, std::string_view opening) {
  if (format.kind == ThoughtFormat::Kind::kHarmony) {
    const std::size_t start = opening.rfind(kStart);
    return start == opening.npos ? std::string_view() : opening.substr(start);
  }
  const std::size_t open = opening.rfind(format.open);
  if (open == opening.npos || contains(opening.substr(open), format.close)) return {};
  return opening.substr(open);
}

}  // namespace

std::vector<std::string> ThoughtFormat::markers() const {
  if (kind == Kind::kNone) return {};
  if (kind != Kind::kHarmony) return {open, close};
  std::vector<std::string> all = {std::string(kStart), std::string(kChannelMark), std::string(kMessage),
                                  "<|constrain|>"};
  all.insert(all.end(), kMessageEnds.begin(), kMessageEnds.end());
  return all;
}

ThoughtFormat thought_format(std::string_view chat_template) {
  using Kind = ThoughtFormat::Kind;
  if (contains(chat_template, kChannelMark) && contains(chat_template, kMessage)) return {.kind = Kind::kHarmony};
  constexpr std::string_view kOpen = "<|channel>", kClose = "<channel|>";
  if (contains(chat_template, kOpen) || contains(chat_template, kClose))
    return {.kind = Kind::kChannel, .open = std::string(kOpen), .close = std::string(kClose)};
  for (const auto& [open, close] : kTags)
    if (contains(chat_template, open) || contains(chat_template, close))
      return {.kind = Kind::kTags, .open = std::string(open), .close = std::string(close)};
  return {};
}

bool opens_thought(const ThoughtFormat& format, std::string_view opening) {
  if (!format) return false;
  const std::string_view begun = unfinished(format, opening);
  if (format.kind != ThoughtFormat::Kind::kHarmony) return !begun.empty();
  return contains(begun, kMessage) && read_header(begun).channel == "analysis";
}

std::string header_regex(const ThoughtFormat& format, std::string_view opening) {
  if (format.kind != ThoughtFormat::Kind::kHarmony) return "";
  return escaped(left_of_header(unfinished(format, opening), "final"));
}

std::string thoughts_regex(const ThoughtFormat& format, std::string_view opening) {
  if (format.kind == ThoughtFormat::Kind::kHarmony) return harmony_regex(unfinished(format, opening));
  if (format.kind == ThoughtFormat::Kind::kNone) return "";
  const std::string first = escaped(format.close.substr(0, 1)), second = escaped(format.close.substr(1, 1));
  // Runs of the first character are one step, so that no end can begin within them.
  const std::string inside = "([^" + first + "]|" + first + "+[^" + first + second + "])*";
  const std::string ended = inside + escaped(format.close) + "\\n?\\n?";
  if (opens_thought(format, opening)) return ended;
  const std::string label = format.kind == ThoughtFormat::Kind::kChannel ? "thought\\n" : "";
  return "(" + escaped(format.open) + label + ended + ")?";
}

SplitAnswer split_answer(const ThoughtFormat& format, std::string_view opening, std::string_view answer, bool complete,
                         std::string_view call_marker) {
  switch (format.kind) {
    case ThoughtFormat::Kind::kTags:
      return split_tags(format, opens_thought(format, opening), answer, complete, call_marker);
    case ThoughtFormat::Kind::kChannel:
      return split_channels(format, unfinished(format, opening), answer, complete);
    case ThoughtFormat::Kind::kHarmony:
      return split_harmony(unfinished(format, opening), answer, complete, format.markers());
    case ThoughtFormat::Kind::kNone:
      break;
  }
  return {.thoughts = "", .text = std::string(answer)};
}

}  // namespace dllm
