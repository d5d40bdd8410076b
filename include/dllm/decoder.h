#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dllm/error.h"
#include "dllm/options.h"

/// Decoders of a program's own: which predictions become tokens (docs/guide/extend-decoder.md).
namespace dllm {

/// One of the likeliest tokens of a position.
struct LikelyToken {
  std::int32_t token = -1;
  double probability = 0;
};

/// The model's prediction at a position.
struct Prediction {
  std::int32_t position = 0;
  std::int32_t token = -1;            ///< the likeliest one, or the one that was drawn
  bool masked = true;                 ///< whether the position is a mask now
  bool eligible = true;               ///< false where the model predicts the mask itself: the position should wait
  double confidence = 0;              ///< probability of `token`
  double log_odds = 0;                ///< of the confidence; ranks those that round to 1
  double margin = 0;                  ///< largest minus second largest probability
  double entropy = 0;                 ///< nats
  double own_probability = 0;         ///< of the token that is there; 0 for masks, and unless the decoder revises
  std::vector<LikelyToken> likely{};  ///< DecoderDeclaration::top_tokens of them, the likeliest first
  std::span<const float> logits{};    ///< of all tokens, if DecoderDeclaration::logits; valid during the call
};

/// The sequence before a step. The spans have an entry per position of prompt and canvas; valid during the call.
struct DecodingState {
  std::span<const std::int32_t> tokens;
  std::span<const std::uint8_t> masked;   ///< 1: a mask
  std::span<const std::int32_t> kv_age;   ///< passes since K and V of the position were computed; -1: never
  std::int32_t prompt_end = 0;            ///< first position of the answer
  std::int32_t begin = 0, end = 0;        ///< the window: positions that compete now
  std::int32_t window_step = 0;           ///< steps made in this window
  std::int32_t masks_at_start = 0;        ///< masks of the window at its first step
  std::uint32_t step = 0;                 ///< steps made in the sequence
  std::span<const Prediction> shadows{};  ///< in decide(): of the positions of shadowed()
};

/// What becomes of a position.
struct Decision {
  enum class Kind : std::uint8_t {
    kCommit,  ///< a mask gets a token
    kRevise,  ///< a decided position gets another token
    kRemask,  ///< a decided position becomes a mask again
  };
  std::int32_t position = 0;
  Kind kind = Kind::kCommit;
  std::int32_t token = -1;  ///< one of Prediction::likely; -1: the predicted one
};

/// A decision that is not possible, thrown by the call that decodes. A bug of the decoder.
struct DecisionError : std::runtime_error {
  explicit DecisionError(Error what) : std::runtime_error(what.message()), error(std::move(what)) {}
  Error error;
};

/// Passes over one window that a decoder may take before it counts as one that does not end.
inline constexpr std::int32_t kMostPassesOfWindow = 1000;

/// Decides which predictions become tokens. One object per answer, which may keep state between its steps. What it
/// throws goes to the caller of the call that decodes.
class CustomDecoder {
 public:
  virtual ~CustomDecoder() = default;

  /// The positions of the window after the prompt whose predictions decide() gets, at least one of the masked ones.
  /// Fewer are cheaper. Empty: all masks of the window, and with DecoderDeclaration::revises all its positions.
  virtual std::vector<std::int32_t> wanted(const DecodingState& state) {
    (void)state;
    return {};
  }
  /// Decided positions of the window that are predicted once more, ascending, each without its token in the input while
  /// everything else sees it. Asked after wanted(), of decoders that declare `shadows`. Each costs a row. Decisions
  /// about them are allowed like those about the positions of wanted().
  virtual std::vector<std::int32_t> shadowed(const DecodingState& state) {
    (void)state;
    return {};
  }
  /// The decisions of this step. None: the engine commits the most confident position, so that every step makes
  /// progress. A step may mask more positions again than it commits, but a window takes at most
  /// kMostPassesOfWindow passes.
  virtual std::vector<Decision> decide(const DecodingState& state, std::span<const Prediction> predictions) = 0;
  /// Asked when the window has no mask left: true for another pass (at most kMostPassesOfWindow), for a decoder that
  /// revises.
  virtual bool holds(const DecodingState& state) {
    (void)state;
    return false;
  }
};

/// What the engine knows of a decoder before there is an object.
struct DecoderDeclaration {
  std::string name;     ///< lower-case letters, digits, hyphens: GenerateOptions::decoder.name, --algorithm
  std::string meaning;  ///< one line
  /// Its options: key, type, standard, meaning; as needed minimum, maximum, unit, choices. No flags: "--" and the key.
  std::vector<OptionInfo> options{};
  bool revises = false;         ///< decides kRevise or kRemask: all positions of the window have predictions
  std::int32_t top_tokens = 0;  ///< length of Prediction::likely
  bool logits = false;          ///< Prediction::logits are wanted
  bool shadows = false;         ///< shadowed() names some; backends without shadow rows then refuse the decoder
  /// With the values of all its options. Neither it nor what it returns may be null.
  std::function<std::unique_ptr<CustomDecoder>(const OptionMap& options)> make{};
};

/// Adds a decoder to this process, or replaces one of the same name that was added before. Thread-safe. Windows,
/// caches, streams and batches then work with it. Errors: kUsage (the engine has a decoder of the name; an option is
/// another's; no name; no `make`).
Expected<void> register_custom_decoder(DecoderDeclaration declaration);

}  // namespace dllm
