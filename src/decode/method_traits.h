#pragma once

#include <cstdint>
#include <optional>

#include "backend/step_plan.h"
#include "decode/loop/second_path_options.h"

namespace dllm {

/// What the engine must know of a method before one is made: whether it suits the model, the other parts and what is
/// asked. A method declares in its own file what is true of it (MethodEntry::always(), MethodEntry::depending_on());
/// the engine asks for traits and knows no method by name. Each holds for every object that the method makes
/// (decode/traits_test.cpp).
struct MethodTraits {
  // Of decoders.
  bool greedy = false;     ///< defined for arg-max predictions only (temperature 0)
  bool revises = false;    ///< Decoder::revises()
  bool stateless = false;  ///< a step's edits depend on its candidates only: positions may move between steps
  bool shadows = false;    ///< Decoder::shadowed() asks for some
  /// How many states Decoder::guesses() or variants() names at most, which the loop forwards in the same pass on
  /// branches of the cache.
  std::int32_t branches = 0;
  std::int32_t checks = 0;     ///< how many tokens Decoder::drafts() names at most
  bool soft = false;           ///< Decoder::soft_tokens() names some
  bool commits_other = false;  ///< may commit or revise to another token than the candidate's, which breaks constraints
  ScoreDistribution distribution = ScoreDistribution::kRaw;  ///< that configure() asks for
  bool drains_fully = false;                                 ///< Reviser::drains_fully()
  std::optional<SecondPathOptions> second_path{};            ///< Reviser::second_path()

  // Of windows.
  bool whole_blocks = false;    ///< each block of the grid in turn, found anew in every step: positions may move
  bool instant_drafts = false;  ///< drafts become tokens without a check (DraftAcceptance::kInstant)

  // Of cache policies.
  bool exact_rows = false;      ///< every row is what a full pass would compute: rows of finished blocks can be shared
  bool refills_blocks = false;  ///< a full pass at the first pass of every unit of the window
  bool asks_predictions = false;  ///< which rows it recomputes depends on what was predicted

  // Of suffixes.
  bool all_masks = false;  ///< everything after the window is seen: text after the answer too
  bool grows = false;      ///< the answer gets as many masks as it seems to need

  // Of smoothing.
  bool smooths = false;  ///< masks carry something of their last prediction

  // Of modes.
  bool by_decoder = false;  ///< blocks of masks, of which the decoder chooses what a pass commits
  bool in_order = false;    ///< one token after the other: there are no blocks
};

}  // namespace dllm
