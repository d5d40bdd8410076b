#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decode/decoder/decoder.h"
#include "decode/method_traits.h"
#include "decode/option_row.h"
#include "dllm/decoder.h"
#include "dllm/error.h"

namespace dllm {

/// What decoders that users write have in common, in C++ (dllm/decoder.h) and in Python (dllm.Decoder): what they
/// declare, and the checks of what they say. A language adds how it asks, its words and how it refuses.
class UserDecoder : public Decoder {
 public:
  struct Declared {
    std::string name;
    std::int32_t top_tokens = 0;
    bool revises = false, logits = false, shadows = false;

    MethodTraits traits() const { return {.revises = revises, .shadows = shadows, .commits_other = top_tokens > 0}; }
  };
  /// The language's names in errors and hints.
  struct Words {
    const char* decide;       ///< the function that decides
    const char* predictions;  ///< where it finds its choices
    const char* revise;       ///< how decided tokens are changed
    const char* declare;      ///< how a decoder says that it does so
    const char* likely;       ///< where other tokens are listed
  };

  UserDecoder(Declared declared, const Words& words) : declared_(std::move(declared)), words_(words) {}

  void configure(ScoreRequest& request) const final;
  bool revises() const final { return declared_.revises; }
  bool keeps_schedule() const final { return acted_; }
  std::vector<Position> wanted(const DecodeContext& context) final;
  /// Of decided tokens: what the model thinks of them.
  std::vector<TokenQuery> queries(const DecodeContext& context) final;
  std::vector<Position> shadowed(const DecodeContext& context) final;
  /// Asks once per pass, however often the loop does.
  bool holds_window(const DecodeContext& context) const final;
  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) final;

 protected:
  /// nullopt: it leaves the choice to the engine.
  virtual std::optional<std::vector<Position>> ask_wanted(const DecodeContext& context) = 0;
  virtual std::vector<Position> ask_shadowed(const DecodeContext& context) = 0;
  virtual bool ask_holds(const DecodeContext& context) const = 0;
  /// Token -1: the predicted one.
  virtual std::vector<Decision> ask_decisions(const DecodeContext& context, std::span<const Candidate> candidates) = 0;
  /// Throws what the language's callers expect.
  virtual void fail(Error error) const = 0;

  [[noreturn]] void refuse(std::string what, const char* method, std::string hint) const;
  const Declared& declared() const { return declared_; }

 private:
  void check_distinct(std::span<const Position> ascending, const char* method) const;
  Edit edit_of(const Decision& decision, const DecodeContext& context, std::span<const Candidate> candidates) const;

  struct Held {
    Position window = -1;    ///< its begin
    std::uint32_t step = 0;  ///< of the last question
    bool answer = false;
    std::int32_t passes = 0;
  };
  Declared declared_;
  const Words& words_;
  std::vector<Position> asked_;
  bool acted_ = false;  ///< in the last pass
  mutable Held held_;
};

/// A row of the option table for an option that such a decoder has, whose default is `info.standard`; options are kept
/// as they are given. Errors: kUsage.
Expected<OptionRow<OptionMap>> user_option_row(OptionInfo info);

}  // namespace dllm
