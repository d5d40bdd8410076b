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

/// How an answer is decoded. A decoding has five parts: decoder, window, cache policy, suffix policy, smoothing. Each
/// part is a method chosen by name, and each method owns its options: it declares them in its own source file, and
/// flags, environment variables, help, JSON and checks follow from that declaration. This header names none of them.
namespace dllm {

/// The value of an option. Choices are strings.
using OptionValue = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;

/// "true", "32", "0.9", "cosine"
std::string to_text(const OptionValue& value);

/// Values by key.
using OptionMap = std::map<std::string, OptionValue, std::less<>>;

/// A method by name, and the options given to it: {"threshold", {{"threshold", 0.8}}}.
struct MethodChoice {
  std::string name = {};   ///< empty: the preset's, else the default for the model
  OptionMap options = {};  ///< only what is given
};

/// What is asked for. Every field may be absent; the default may then depend on the model. An option that nothing reads
/// in the chosen combination is an error of the call that gets it, never ignored.
struct GenerateOptions {
  std::string preset = {};  ///< a named set of options (presets()); what is given here overrides it; empty: none

  std::optional<std::int32_t> length = {};        ///< generated tokens at most (the canvas after the prompt)
  std::optional<std::int32_t> block_length = {};  ///< positions decoded together
  std::optional<std::string> block_origin = {};   ///< prompt-end or absolute
  std::optional<bool> exact_length = {};          ///< decode every position: no stop at end-of-sequence tokens
  std::optional<bool> suppress_eos = {};          ///< end-of-sequence tokens get probability 0 (LLaDA's logits_eos_inf)
  std::optional<bool> defer_eos = {};             ///< they are committed last (LLaDA's confidence_eos_eot_inf)
  std::optional<double> temperature = {};         ///< 0: greedy
  std::optional<std::int32_t> top_k = {};         ///< 0: off
  std::optional<double> top_p = {};               ///< 1: off
  std::optional<double> cfg_scale = {};           ///< classifier-free guidance; 0: off
  /// Of every random draw. Accepted with every method: where nothing is drawn, all seeds give the same answer.
  std::optional<std::uint64_t> seed = {};
  std::optional<std::int32_t> context = {};  ///< prompt and canvas together at most; absent: the model's context
  /// Texts that end an answer, which is cut in front of the first one. They are looked for in what is final.
  std::vector<std::string> stop = {};
  std::optional<bool> compat = {};  ///< upstream's behaviour, bit for bit, where ours differs (docs/guide/decoding.md)

  MethodChoice decoder = {};    ///< which predictions become tokens
  MethodChoice window = {};     ///< which positions compete
  MethodChoice cache = {};      ///< which K/V rows are recomputed
  MethodChoice suffix = {};     ///< which masks after the window exist for the model
  MethodChoice smoothing = {};  ///< what a mask shows the model

  /// Gives one option by its key or one of its flags' names ("threshold", "--threshold"; "algorithm", "window", …
  /// choose methods), from text. Errors: kUsage (unknown key, not a value of this option).
  Expected<void> set(std::string_view key, std::string_view text);
};

/// Every option with its value, as a generation used it. Made by LanguageModel::resolve(); a Generation carries it.
struct ResolvedOptions {
  std::string preset;
  std::int32_t length = 128;
  std::int32_t block_length = 32;
  std::string block_origin = "prompt-end";
  bool exact_length = false;
  bool suppress_eos = false;
  bool defer_eos = false;
  double temperature = 0;
  std::int32_t top_k = 0;
  double top_p = 1;
  double cfg_scale = 0;
  std::uint64_t seed = 0;
  std::int32_t context = 0;  ///< prompt and canvas together at most; never more than the model's context
  std::vector<std::string> stop;
  bool compat = false;
  MethodChoice decoder, window, cache, suffix, smoothing;  ///< options: all that the method reads

  /// Everything that is read, in the order of the documentation: {"length", 128}, …, {"algorithm", "threshold"}, …
  std::vector<std::pair<std::string, OptionValue>> values;
};

enum class OptionType { kBool, kInteger, kUnsigned, kNumber, kText, kChoice };

/// How a method declares one of its options.
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
};

struct MethodInfo {
  std::string name;                  ///< "threshold"
  std::vector<std::string> aliases;  ///< names that other programs use for it
  std::string meaning;               ///< one line
  std::vector<OptionInfo> options;
};

/// A part of the decoding and the methods to choose from.
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

/// Everything there is to choose, as the methods of this build declare it: what help, JSON schemas and bindings read.
struct OptionsInfo {
  std::vector<OptionInfo> common;  ///< of every generation: the typed fields of GenerateOptions
  std::vector<PartInfo> parts;
  std::vector<PresetInfo> presets;
};
const OptionsInfo& options_info();

}  // namespace dllm
