#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "dllm/error.h"
#include "text/marked_text.h"

namespace dllm {

/// The variables that a template reads before it sets them. Empty for a text that is no template.
std::set<std::string, std::less<>> template_inputs(std::string_view source);

/// Why callers may not set this variable themselves; null: they may. Texts of special tokens are markup, so that one
/// who sets them could write control tokens.
const char* why_not_settable(std::string_view variable);

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

/// A compiled Jinja template (the subset used by chat templates of open models), with the settings of transformers:
/// trim_blocks, lstrip_blocks, loop controls, {% generation %}, its tojson. Immutable, shareable between threads.
class ChatTemplate {
 public:
  /// Errors (kInvalidFile) name line and column; statements outside the subset (include, extends, recursive loops) are
  /// kUnsupported and named.
  static Expected<ChatTemplate> compile(std::string source);

  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  struct Options {
    bool add_generation_prompt = true;
    std::string bos_token, eos_token;  ///< text of the special tokens
  };
  /// Renders messages. Errors, each with line and column: kUsage for raise_exception() in the template (its message);
  /// kInvalidFile for a wrong operand type and other errors of jinja2; kUnsupported for filters, tests and methods
  /// outside the subset, when they are reached; kResource for the limits on work (kMaxSteps), output and single texts
  /// (8 MiB), all intermediate texts (1 GiB) and nesting.
  Expected<std::string> render(const std::vector<ChatMessage>& messages, const Options& options) const;

  /// The same with arbitrary variables (a JSON object). Tests compare it with jinja2.
  Expected<std::string> render(const nlohmann::ordered_json& variables) const;

  /// Nodes evaluated, items visited or compared. A rendering takes seconds at most, and a template that compares each
  /// of 1,500 messages with each other still fits.
  static constexpr std::int64_t kMaxSteps = 50'000'000;

  /// Like render(), but distinguishes the template's text from the messages', whatever the template does to them
  /// (filters, slices, tojson): texts in the variables are content, except roles that are plain words (templates build
  /// `<|user|>` from them) and the variables with texts of special tokens: bos_token and its kin.
  Expected<MarkedText> render_marked(const std::vector<ChatMessage>& messages, const Options& options) const;
  Expected<MarkedText> render_marked(const nlohmann::ordered_json& variables, std::int64_t max_steps = kMaxSteps) const;

  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace dllm
