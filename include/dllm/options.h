#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dllm/error.h"

/// How an answer is decoded. Decoding has six parts: decoder, window, cache policy, suffix policy, smoothing, mode.
/// Each part is a method chosen by name. A method declares its options in its own source file; flags, environment
/// variables, help, JSON and checks are derived from that declaration. This header names none of them.
namespace dllm {

/// The value of an option. Choices are strings.
using OptionValue = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;

/// "true", "32", "0.9", "cosine"
std::string to_text(const OptionValue& value);

/// Option values by key.
using OptionMap = std::map<std::string, OptionValue, std::less<>>;

/// A method by name, and its given options: {"threshold", {{"threshold", 0.8}}}.
struct MethodChoice {
  std::string name = {};   ///< empty: the preset's, else the default for the model
  OptionMap options = {};  ///< only what is given
};

/// Options as given by the caller. Every field may be absent; its default may depend on the model. An option that the
/// chosen combination of methods does not read is an error, never ignored.
struct GenerateOptions {
  std::string preset = {};  ///< a named set of options (presets()), overridden by those given here; empty: none

  std::optional<std::int32_t> length = {};  ///< the canvas: masks after the prompt
  /// Tokens of the answer at most; -1: all that the context leaves; absent: the canvas's. Never changes the words
  /// before it is reached (docs/guide/decoding.md). With exact_length and without length, it is the canvas.
  std::optional<std::int32_t> max_tokens = {};
  std::optional<std::int32_t> block_length = {};  ///< positions decoded together
  std::optional<std::string> block_origin = {};   ///< prompt-end or absolute
  std::optional<bool> exact_length = {};          ///< decode every position: no stop at end-of-sequence tokens
  std::optional<bool> suppress_eos = {};          ///< end-of-sequence tokens get probability 0 (LLaDA's logits_eos_inf)
  std::optional<bool> defer_eos = {};             ///< end-of-sequence tokens come last (LLaDA's confidence_eos_eot_inf)
  std::optional<double> temperature = {};         ///< 0: greedy
  std::optional<std::int32_t> top_k = {};         ///< 0: off
  std::optional<double> top_p = {};               ///< 1: off
  std::optional<double> min_p = {};               ///< least probability, relative to the likeliest token's; 0: off
  /// Of tokens in prompt or answer: their logits are divided by it, or multiplied if negative; 1: off
  std::optional<double> repetition_penalty = {};
  std::optional<double> presence_penalty = {};   ///< subtracted from the logits of tokens in the answer; 0: off
  std::optional<double> frequency_penalty = {};  ///< the same, per occurrence
  std::optional<std::string> logit_bias = {};    ///< "ID+BIAS,ID-BIAS", added to the logits of these tokens
  std::optional<double> cfg_scale = {};          ///< classifier-free guidance; 0: off
  /// Seed of all random draws. Accepted with every method: if nothing is drawn, all seeds give the same answer.
  std::optional<std::uint64_t> seed = {};
  std::optional<std::int32_t> context = {};  ///< limit of prompt plus canvas; absent: the model's context
  /// Stop texts: the answer ends before the first one. Only final text is searched.
  std::vector<std::string> stop = {};
  /// What the answer must match, for models that fill masks or predict next tokens; at most one, at temperature 0. A
  /// regular expression for the whole text, or a JSON Schema as text (docs/guide/structure.md).
  std::optional<std::string> regex = {}, json_schema = {};
  /// The same for calls of tools: {"tools": [{"name": NAME, "parameters": SCHEMA}, ...], "several": BOOL}. The answer
  /// is <tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call>, once or, if `several`, more often.
  std::optional<std::string> tool_calls = {};
  std::optional<bool> compat = {};  ///< exact upstream behaviour where it differs from ours (docs/guide/decoding.md)

  MethodChoice decoder = {};    ///< which predictions become tokens
  MethodChoice window = {};     ///< which positions compete
  MethodChoice cache = {};      ///< which K/V rows are recomputed
  MethodChoice suffix = {};     ///< which masks after the window the model sees
  MethodChoice smoothing = {};  ///< what the model reads at a mask
  MethodChoice mode = {};       ///< for models trained for several: which way they decode

  /// Sets one option from text, by its key or one of its flags' names ("threshold", "--threshold"; "algorithm",
  /// "window", … choose methods). Errors: kUsage (unknown key, invalid value).
  Expected<void> set(std::string_view key, std::string_view text);
};

/// How a token is chosen from a row of logits z. One value goes unchanged from the resolved options to the scored row.
struct Sampling {
  /// 0: arg-max. Otherwise the token is drawn from softmax(z / temperature), restricted by the members below, by the
  /// Gumbel-max rule arg max (z/T + g) in float64.
  double temperature = 0;
  std::int32_t top_k = 0;  ///< 0: off
  double top_p = 1;        ///< 1: off. Nucleus: tokens whose predecessors' cumulative probability is <= p.
  double min_p = 0;        ///< 0: off. Tokens with at least this part of the likeliest token's probability.

  /// use(member) of every member in turn, for what carries a request to another process.
  template <class Self, class Use>
  static void each(Self& self, const Use& use) {
    use(self.temperature), use(self.top_k), use(self.top_p), use(self.min_p);
  }
};

/// Every option with the value that a generation used. Made by LanguageModel::resolve(); stored in the Generation.
struct ResolvedOptions : Sampling {
  std::string preset;
  std::int32_t length = 128;    ///< of the canvas
  bool own_length = false;      ///< `length` was not given: it is the model's own, and shrinks with the context
  std::int32_t max_tokens = 0;  ///< as given, or 512 where no length is known and none can be found; 0: none
  std::int32_t block_length = 32;
  std::string block_origin = "prompt-end";
  bool exact_length = false;
  bool suppress_eos = false;
  bool defer_eos = false;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::string logit_bias;
  double cfg_scale = 0;
  std::uint64_t seed = 0;
  std::int32_t context = 0;  ///< limit of prompt plus canvas; at most the model's context
  std::vector<std::string> stop;
  std::string regex, json_schema, tool_calls;  ///< empty: none
  bool compat = false;
  MethodChoice decoder, window, cache, suffix, smoothing;  ///< options: all that the method reads
  MethodChoice mode;                                       ///< no name: the model has one way of decoding

  /// All options that are read, in the order of the documentation: {"length", 128}, …, {"algorithm", "threshold"}, …
  std::vector<std::pair<std::string, OptionValue>> values;
};

enum class OptionType { kBool, kInteger, kUnsigned, kNumber, kText, kChoice };

/// The declaration of one option.
struct OptionInfo {
  std::string key;                 ///< "threshold"
  std::vector<std::string> flags;  ///< "--threshold" first, then aliases (llama.cpp's spellings)
  OptionType type = OptionType::kText;
  std::string unit;     ///< "nats"; empty: none
  std::string meaning;  ///< one line
  double minimum = -std::numeric_limits<double>::infinity(), maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;     ///< of kChoice
  std::optional<OptionValue> standard;  ///< the default; absent: see standard_text
  std::string standard_text;            ///< "as the model recommends"; empty: the default is `standard`, or nothing
  std::string condition;                ///< "with --refresh-path second": read only then; empty: always
  bool repeated = false;                ///< may be given several times: a list of such values
  bool path = false;                    ///< a text that names a file
};

struct MethodInfo {
  std::string name;                  ///< "threshold"
  std::vector<std::string> aliases;  ///< other programs' names for it
  std::string meaning;               ///< one line
  std::vector<OptionInfo> options;
};

/// A part of the decoding, with the available methods.
struct PartInfo {
  std::string name;     ///< "decoder": the field of GenerateOptions
  OptionInfo selector;  ///< the option that chooses the method; no key: there is one method only
  std::vector<MethodInfo> methods;
};

struct PresetInfo {
  std::string name;
  std::string meaning;
  GenerateOptions options;
};

/// All options and methods of this build: the source of help, JSON schemas and bindings.
struct OptionsInfo {
  std::vector<OptionInfo> common;  ///< of every generation: the typed fields of GenerateOptions
  std::vector<PartInfo> parts;
  std::vector<PresetInfo> presets;
};
const OptionsInfo& options_info();

}  // namespace dllm
