#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/rank_gather.h"

namespace dllm::cpu {

/// Rows of codes with all their parameters, in `memory`; corrections for `formats` formats in sequence. Throws
/// std::bad_alloc.
QuantizedRows place_rows(Buffer& memory, std::int64_t rows, std::int64_t k, std::size_t formats = 1);

/// The rows of one value, quantized to int8 for products with packed weights.
class Activations {
 public:
  /// Makes room for `rows` of `k` (a multiple of 32) values. `exact`: scales are not rounded (quantize_row). Throws
  /// std::bad_alloc. `residual`: also quantizes what the codes leave of the values (residual()).
  void begin(std::int64_t rows, std::int64_t k, bool exact, bool residual = false);

  /// Quantizes x[0, count), the values of `row` from column `from` on; both are multiples of 32. Threads may quantize
  /// different parts concurrently.
  void quantize(const KernelSet& kernels, const float* x, std::int64_t row, std::int64_t from, std::int64_t count);

  /// The columns of other ranks, whose parts are multiples of 32; this rank's are quantized. Throws std::bad_alloc,
  /// RanksFailed.
  void gather(RankGather& ranks, std::span<const std::int64_t> parts) {
    if (!ranks.codes(rows_, count_, parts)) regular_.store(false, std::memory_order_relaxed);
  }

  /// The rows of other ranks; `by_rank`: whose each is. Throws as gather() does.
  void gather_rows(RankGather& ranks, std::span<const std::vector<std::int64_t>> by_rank) {
    if (!ranks.code_rows(rows_, k_, by_rank)) regular_.store(false, std::memory_order_relaxed);
  }

  /// For a product with weights of `format`. Every row is quantized. Valid until begin(); throws std::bad_alloc.
  QuantizedRows view(const PackedFormat& format);

  bool exact() const { return exact_; }

  /// The same rows minus the values of their codes, quantized again: the arithmetic `residual`. nullptr: not made.
  Activations* residual() { return residual_ ? rest_.get() : nullptr; }

 private:
  struct Corrections {
    std::int32_t zero = 0;
    std::int32_t group = 0;
    std::int32_t* values = nullptr;
  };

  Buffer memory_;
  QuantizedRows rows_;
  std::int64_t count_ = 0;
  std::int64_t k_ = 0;
  bool exact_ = false;
  std::atomic<bool> regular_{true};
  /// Formats with the same exactness differ only in a few zero points and groups.
  std::array<Corrections, 8> corrections_;
  std::size_t formats_ = 0;
  bool residual_ = false;
  std::unique_ptr<Activations> rest_;
};

/// The quantized rows that the operators of a step share: one value, quantized once, may be used by several products,
/// and a value may be quantized while another is read.
class ActivationStore {
 public:
  /// nullptr: value `id` is not stored with these scales.
  Activations* find(std::int64_t id, bool exact);
  /// A new entry, which replaces the oldest one.
  Activations& begin(std::int64_t id, std::int64_t rows, std::int64_t k, bool exact, bool residual);
  /// Forgets all values.
  void clear();

 private:
  /// A run of operators reads one value and writes another, each with exact scales, rounded ones, or both.
  static constexpr std::size_t kSlots = 4;
  std::array<std::int64_t, kSlots> ids_{-1, -1, -1, -1};
  std::array<Activations, kSlots> slots_;
  std::size_t next_ = 0;
};

}  // namespace dllm::cpu
