#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "dllm/error.h"
#include "format/metadata.h"
#include "text/marked_text.h"

namespace dllm {

/// GGUF `tokenizer.ggml.token_type` numbers.
enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

/// What a pre-tokenizer step does with the text that its pattern matches (Hugging Face's names). GGUF presets only use
/// kIsolated; the others come from tokenizer.json.
enum class SplitBehavior : std::uint8_t {
  kIsolated,            ///< matches and the text between them are pieces
  kRemoved,             ///< matches are dropped: text is lost, as in the original tokenizer
  kMergedWithPrevious,  ///< a match ends the piece it is in
  kMergedWithNext,      ///< a match begins a piece
  kContiguous,          ///< as isolated, but neighbouring matches are one piece
};

/// How one pattern splits; see TokenizerSpec::patterns.
struct SplitRule {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  ///< the text between matches counts as the match
  friend bool operator==(const SplitRule&, const SplitRule&) = default;
};

/// How an added token differs from "matched literally in the raw text".
struct AddedTokenFlags {
  TokenId id = 0;
  bool lstrip = false;      ///< also matches white space before it
  bool rstrip = false;      ///< also matches white space after it
  bool normalized = false;  ///< matched after normalisation, in the text between the other added tokens
  friend bool operator==(const AddedTokenFlags&, const AddedTokenFlags&) = default;
};

/// The complete definition of a BPE tokenizer; both loaders produce it, and the converter writes it to GGUF.
struct TokenizerSpec {
  /// Over characters (Gemma), not bytes: tokens are plain text with U+2581 for spaces, and a character without a token
  /// becomes the tokens of its bytes, <0x00> to <0xFF>. There are no patterns then.
  bool characters = false;
  std::vector<std::string> tokens;     ///< by id; normal tokens in the GPT-2 byte alphabet, special ones as plain text
  std::vector<TokenKind> kinds;        ///< by id
  std::vector<std::string> merges;     ///< by rank, "left right"
  std::vector<std::string> patterns;   ///< pre-tokenizer Split patterns, applied in sequence
  std::vector<SplitRule> rules;        ///< by pattern; empty: all are isolated
  std::vector<AddedTokenFlags> flags;  ///< only tokens with at least one set
  std::string pre_name;                ///< GGUF preset name; empty if the patterns match no preset
  bool nfc = false;                    ///< normalise text to NFC before splitting
  bool ignore_merges = false;          ///< a word that is a whole token is not merged (Llama 3)
  bool add_prefix_space = false;       ///< text that does not begin with a space gets one
  bool add_bos = false;                ///< a raw prompt (no chat template) begins with bos; encode() never adds it
  bool add_eos = false;                ///< likewise ends with eos
  std::optional<TokenId> bos, eos, eot, pad, mask, unk;
  /// What stands for a byte without a token; empty: nothing, the byte is left out. `fuse_unknown`: one for a run of
  /// them.
  std::optional<TokenId> unknown_byte;
  bool fuse_unknown = false;
  std::int32_t appended = 0;          ///< last tokens that are named as special ones, but not in the vocabulary
  std::vector<std::string> warnings;  ///< about the file's contradictions, and how they were resolved
};

/// BPE over bytes or characters. Immutable after construction and safe to share between threads.
class Tokenizer {
 public:
  /// Compiles the patterns and indexes vocabulary and merges. Errors (kInvalidFile): merges that name unknown tokens,
  /// duplicate tokens, special ids outside the vocabulary, a pattern that does not compile (with its text and offset).
  static Expected<Tokenizer> create(TokenizerSpec spec);

  /// From `tokenizer.ggml.*`. Models "gpt2" (bytes) and "gemma4" (characters) are known; an unknown `.pre` is an error
  /// that lists the presets, a missing one means "default", as in llama.cpp. Keys `dllm.tokenizer.*` (see spec_to_gguf)
  /// override the preset.
  static Expected<TokenizerSpec> spec_from_gguf(const Metadata& metadata);
  /// From the texts of Hugging Face's tokenizer.json, tokenizer_config.json and special_tokens_map.json (the last two
  /// may be empty).
  static Expected<TokenizerSpec> spec_from_hf(const std::string& tokenizer_json, const std::string& config_json,
                                              const std::string& special_json = "");
  /// Sets the keys that spec_from_gguf reads. Facts that the preset `.pre` does not carry go to `dllm.tokenizer.*`
  /// (patterns, nfc, ignore_merges). kUnsupported: split rules other than isolated and flags of added tokens.
  static Expected<void> spec_to_gguf(const TokenizerSpec& spec, Metadata& metadata);
  /// Names of the presets for `tokenizer.ggml.pre`.
  static std::vector<std::string> preset_names();

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// UTF-8 in, ids out. `parse_special`: the text of control and user-defined tokens becomes their id (leftmost, then
  /// longest match); user-defined (not "special") added tokens are always matched. Invalid UTF-8 bytes are kept as
  /// bytes: decode(encode(x)) == x for every byte string x if NFC, prefix space, stripping flags and removing rules are
  /// off, and every byte has a token.
  std::vector<TokenId> encode(std::string_view text, bool parse_special) const;
  /// encode() with `parse_special` that finds no control token in content: a token's text counts only if all of it is
  /// markup. Words may span content and markup, as in one text.
  std::vector<TokenId> encode(const MarkedText& text) const;

  /// The bytes of a token; empty for unused ids and ids outside the vocabulary. Control tokens give their
  /// text.
  std::string_view bytes(TokenId id) const;

  /// Concatenated bytes (may be invalid UTF-8 if the ids are); control tokens are left out unless `with_special`.
  std::string decode(const std::vector<TokenId>& ids, bool with_special) const;

  bool is_control(TokenId id) const;
  /// Bytes without a token, ascending. Empty for almost all vocabularies.
  std::string missing_bytes() const;
  TokenId vocab_size() const;
  const TokenizerSpec& spec() const;
  /// The id of the token whose text (special) or bytes (normal) are `text`.
  std::optional<TokenId> find(std::string_view text) const;

 private:
  struct Impl;
  std::vector<TokenId> encode(std::string_view text, bool parse_special, std::string_view marks) const;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Incremental detokenization: push(id) returns the text that became complete; bytes of an unfinished UTF-8 character
/// are held back. flush() at the end replaces an incomplete character by U+FFFD. Output is always valid UTF-8 (invalid
/// byte sequences become U+FFFD).
class StreamDecoder {
 public:
  /// `shown`: control tokens that have a text also without `with_special`; borrowed.
  StreamDecoder(const Tokenizer& tokenizer, bool with_special, std::span<const TokenId> shown = {})
      : tokenizer_(tokenizer), with_special_(with_special), shown_(shown) {}
  std::string push(TokenId id);
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  bool with_special_;
  std::span<const TokenId> shown_;
  std::string pending_;
};

}  // namespace dllm
