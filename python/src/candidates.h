#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arrays.h"
#include "decode/decoder/decoder.h"

namespace dllm::python {

/// The predictions of a step, as columns.
struct Candidates {
  std::vector<Candidate> rows;  ///< without their spans
  std::vector<std::int32_t> top_tokens;
  std::vector<float> top_logits;
  std::size_t top = 0;        ///< of each row
  std::vector<float> logits;  ///< [row][token]; empty: not asked for
  std::vector<double> own;    ///< probability of the token that is there; not a number: not asked for

  template <class T, class Get>
  auto column_of(Get get) const {
    return column<T>(rows, get);
  }
  /// Of the j-th best token of row i.
  double top_probability(std::size_t i, std::size_t j) const {
    return probability_of(rows[i], top_logits[i * top + j]);
  }
};

/// What a decoder is told of the sequence, copied: Python may keep it.
struct Context {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> masked;
  std::vector<std::int32_t> kv_age;
  std::int32_t prompt_end = 0, window_step = 0, masks_at_start = 0;
  std::uint32_t step = 0;
  PositionRange window;
  std::shared_ptr<Candidates> previous, shadows;
};

Context context_of(const DecodeContext& from, std::shared_ptr<Candidates> previous);

/// `top`: best tokens of each position. `logits`: with those of all tokens.
Candidates columns_of(std::span<const Candidate> candidates, std::size_t top, bool logits);

void bind_candidates(nanobind::module_& module);

}  // namespace dllm::python
