#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dllm {

/// How a model marks its thoughts in an answer.
struct ThoughtFormat {
  enum class Kind {
    kNone,     ///< not at all: an answer is its text
    kTags,     ///< "<think>…</think>text": once, at the beginning
    kChannel,  ///< Gemma 4: "<|channel>thought\n…<channel|>text", anywhere
    kHarmony,  ///< gpt-oss: "<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>text"
  };
  Kind kind = Kind::kNone;
  std::string open{}, close{};  ///< of kTags and kChannel

  explicit operator bool() const { return kind != Kind::kNone; }
  /// All texts that structure an answer. They may be control tokens, which have no text otherwise.
  std::vector<std::string> markers() const;
};

/// The format whose markers a chat template contains.
ThoughtFormat thought_format(std::string_view chat_template);

/// Whether an answer begins inside a thought, because the prompt ends with its beginning. `opening`: what the template
/// writes after the last text of the conversation.
bool opens_thought(const ThoughtFormat& format, std::string_view opening);

/// An expression for the thoughts that may come before a structured text, as the format and the prompt have them; empty
/// if the format has none that an expression describes. They contain no "</", or what else their end begins with.
std::string thoughts_regex(const ThoughtFormat& format, std::string_view opening);

/// An expression for what must come before a structured text if there are no thoughts: the header of harmony's last
/// message, as far as the prompt has not begun it. Empty: nothing.
std::string header_regex(const ThoughtFormat& format, std::string_view opening);

/// A call that is a message of its own (harmony).
struct MessageCall {
  std::string name, arguments;
};

struct SplitAnswer {
  std::string thoughts;              ///< without markers, and without white space around them
  std::string text;                  ///< the rest; white space between thoughts and text belongs to neither
  std::vector<MessageCall> calls{};  ///< only of complete answers
  std::size_t thought_bytes = 0;     ///< of the answer, up to the end of its last thought
};

/// What is thought and what is text in an answer. If it is not `complete`, thoughts and text are only as long as they
/// are certain: those of a longer answer begin with them. A thought that nothing closes ends with the answer, or where
/// a call begins (`call_marker`; empty: there are none).
SplitAnswer split_answer(const ThoughtFormat& format, std::string_view opening, std::string_view answer, bool complete,
                         std::string_view call_marker = {});

}  // namespace dllm
