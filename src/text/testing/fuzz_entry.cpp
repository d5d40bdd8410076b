#include "text/testing/fuzz_entry.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

namespace dllm {
namespace {

constexpr std::size_t kMaxText = 4096;  // a pattern may use its whole match limit at every character
constexpr std::size_t kMaxKnownText =
    1 << 18;  // those of the presets do not, and what merges a word must take its time

void check(bool holds) {
  if (!holds) std::abort();
}

bool lossless(const TokenizerSpec& spec) {
  const auto removes = [](const SplitRule& rule) { return rule.behavior == SplitBehavior::kRemoved; };
  return !spec.nfc && !spec.add_prefix_space && spec.flags.empty() && std::ranges::none_of(spec.rules, removes);
}

void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokenizer, true);
  std::string streamed;
  for (const TokenId id : ids) streamed += decoder.push(id);
  streamed += decoder.flush();
  check(streamed == replace_invalid_utf8(tokenizer.decode(ids, true)));
}

}  // namespace

void fuzz_tokenizer_json(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(input.find('\0'), input.size());
  const std::string_view text = zero < input.size() ? input.substr(zero + 1) : input;
  auto spec = Tokenizer::spec_from_hf(std::string(input.substr(0, zero)), "");
  if (!spec) return;
  check(spec->tokens.size() == spec->kinds.size());
  auto tokenizer = Tokenizer::create(*std::move(spec));
  if (!tokenizer) return;
  const bool known = tokenizer->spec().patterns.empty() || !tokenizer->spec().pre_name.empty();
  for (const bool parse_special : {false, true}) {
    const std::string_view part = text.substr(0, known ? kMaxKnownText : kMaxText);
    const std::vector<TokenId> ids = tokenizer->encode(part, parse_special);
    for (const TokenId id : ids) check(id >= 0 && id < tokenizer->vocab_size());
    if (lossless(tokenizer->spec()) && tokenizer->missing_bytes().empty()) check(tokenizer->decode(ids, true) == part);
    check_stream(*tokenizer, ids);
  }
  Metadata metadata;
  if (Tokenizer::spec_to_gguf(tokenizer->spec(), metadata)) {
    const auto again = Tokenizer::spec_from_gguf(metadata);
    check(again.has_value() && again->tokens == tokenizer->spec().tokens && again->nfc == tokenizer->spec().nfc &&
          again->patterns == tokenizer->spec().patterns && again->bos == tokenizer->spec().bos);
  }
}

void fuzz_chat_template(const std::uint8_t* data, std::size_t size) {
  auto compiled = ChatTemplate::compile(std::string(reinterpret_cast<const char*>(data), size));
  if (!compiled) {
    check(!compiled.error().what.empty() && !compiled.error().where.empty());
    return;
  }
  static const nlohmann::ordered_json variables = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Gr\u00fc\u00dfe <b> '1'"},
                 {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
                 {"role": "tool", "content": "ok"}, {"role": "user", "content": "bye"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 3, "l": [3, 1, 2], "d": {"a": 1, "b": "x"}
  })");
  // Few steps: the limits are the same code for any number, and slow inputs are not what the fuzzer looks for.
  const auto text = compiled->render_marked(variables, 200'000);
  check(text ? text->bytes.size() <= (std::size_t{16} << 20) : !text.error().where.empty());
  check(!text || text->marks.empty() || text->marks.size() == text->bytes.size());
}

}  // namespace dllm
