#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serve/api.h"

namespace dllm::serve {

/// What a request says about thoughts, in the fields of all APIs.
struct Thinking {
  Json variables = Json::object();      ///< `chat_template_kwargs`
  Json defaults = Json::object();       ///< the server's
  std::optional<bool> wanted{};         ///< switched on or off
  std::string wanted_by{};              ///< the field that says so
  std::optional<std::string> effort{};  ///< "low", ...
  std::string effort_field{};
  std::optional<std::int64_t> budget{};  ///< tokens
  std::string budget_field{};
  bool apart = true;       ///< from the text
  bool hidden = false;     ///< not sent at all
  bool sealed = false;     ///< sent as a text that only this server reads (Anthropic's `display`)
  bool encrypted = false;  ///< sent so as well (Responses' `include`)

  /// Whether the request asks for thoughts or says that it wants none; nullopt: it says nothing.
  std::optional<bool> asks() const;
};

/// Reads `chat_template_kwargs`, `enable_thinking`, `think`, `thinking`, `reasoning_effort`, `reasoning`,
/// `thinking_budget` and its other names, `reasoning_format`, `include_reasoning`, `separate_reasoning`. Errors: kUsage
/// (malformed; two fields that contradict each other).
Expected<Thinking> read_thinking(Fields& fields, const ServedModel& served);

/// What a request's wishes mean to a chat template.
struct TemplateWish {
  Json variables = Json::object();
  bool switched = false;  ///< by a variable that the template reads
};

/// What the template does not read is ignored. `structured`: the answer has a structure; unless the request asks for
/// thoughts, they are then switched off where the template can.
TemplateWish template_wish(const Thinking& thinking, const TemplateFacts& facts, bool structured, Ignored& ignored);

/// Thoughts as a text that clients keep and send back unread, and the thoughts of such a text (nullopt: another
/// server's).
std::string sealed_thoughts(const std::string& thoughts);
std::optional<std::string> unsealed_thoughts(const std::string& text);

}  // namespace dllm::serve
