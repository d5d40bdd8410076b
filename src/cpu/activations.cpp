#include "cpu/activations.h"

#include <algorithm>
#include <cassert>

namespace dllm::cpu {

QuantizedRows place_rows(Buffer& memory, std::int64_t rows, std::int64_t k, std::size_t formats) {
  QuantizedRows placed;
  // The stride is a cache line more than the length: with a stride of 4096 bytes all rows of a tile would map to the
  // same sets of the L1 cache.
  placed.stride = k + 64;
  const std::size_t value_bytes = bytes_of<std::int8_t>(rows * placed.stride);
  const std::size_t group_bytes = bytes_of<float>(rows * k / kScaleBlock);
  memory.reserve(value_bytes + (6 + 2 * formats) * group_bytes);
  std::byte* at = memory.data();
  const auto take = [&at](std::size_t bytes) { return std::exchange(at, at + bytes); };
  placed.values = reinterpret_cast<std::int8_t*>(take(value_bytes));
  placed.scales = reinterpret_cast<float*>(take(group_bytes));
  placed.exponents = reinterpret_cast<std::int32_t*>(take(group_bytes));
  placed.multiples = reinterpret_cast<std::int32_t*>(take(group_bytes));
  placed.offsets = reinterpret_cast<float*>(take(group_bytes));
  placed.sums = reinterpret_cast<std::int32_t*>(take(2 * group_bytes));
  placed.corrections = reinterpret_cast<std::int32_t*>(take(2 * formats * group_bytes));
  return placed;
}

void Activations::begin(std::int64_t rows, std::int64_t k, bool exact, bool residual) {
  rows_ = place_rows(memory_, rows, k, corrections_.size());
  for (std::size_t i = 0; i < corrections_.size(); ++i)
    corrections_[i].values = rows_.corrections + static_cast<std::int64_t>(i) * (rows * k / kSumBlock);
  count_ = rows;
  k_ = k;
  exact_ = exact;
  regular_.store(!exact, std::memory_order_relaxed);
  formats_ = 0;
  residual_ = residual;
  if (!residual) return;
  if (!rest_) rest_ = std::make_unique<Activations>();
  rest_->begin(rows, k, exact);
}

namespace {

/// x - scale q, rounded once: both terms and their difference are exact in float64 unless the value is far below its
/// scale's last code, which is then its own residual.
void subtract_codes(const float* x, const std::int8_t* codes, const float* scales, std::int64_t count, float* rest) {
  for (std::int64_t i = 0; i < count; ++i)
    rest[i] = static_cast<float>(static_cast<double>(x[i]) -
                                 static_cast<double>(scales[i / kScaleBlock]) * static_cast<double>(codes[i]));
}

}  // namespace

void Activations::quantize(const KernelSet& kernels, const float* x, std::int64_t row, std::int64_t from,
                           std::int64_t count) {
  const std::int64_t group = (row * k_ + from) / kScaleBlock;
  kernels.quantize_row(x, count, exact_, rows_.values + row * rows_.stride + from, rows_.scales + group,
                       rows_.sums + 2 * group);
  if (!derive_groups(rows_, group, count / kScaleBlock)) regular_.store(false, std::memory_order_relaxed);
  if (!residual_) return;
  constexpr std::int64_t kPiece = 16 * kScaleBlock;
  float rest[kPiece];
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t size = std::min(kPiece, count - at);
    subtract_codes(x + at, rows_.values + row * rows_.stride + from + at, rows_.scales + group + at / kScaleBlock, size,
                   rest);
    rest_->quantize(kernels, rest, row, from + at, size);
  }
}

QuantizedRows Activations::view(const PackedFormat& format) {
  QuantizedRows view = rows_;
  view.regular = regular_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < formats_; ++i)
    if (corrections_[i].zero == format.zero && corrections_[i].group == format.group) {
      view.corrections = corrections_[i].values;
      return view;
    }
  assert(formats_ < corrections_.size());
  Corrections& corrections = corrections_[formats_++];
  corrections.zero = format.zero, corrections.group = format.group;
  view.corrections = corrections.values;
  fill_corrections(view, count_, k_, format);
  return view;
}

Activations* ActivationStore::find(std::int64_t id, bool exact) {
  for (std::size_t i = 0; i < kSlots; ++i)
    if (ids_[i] == id && slots_[i].exact() == exact) return &slots_[i];
  return nullptr;
}

Activations& ActivationStore::begin(std::int64_t id, std::int64_t rows, std::int64_t k, bool exact, bool residual) {
  const std::size_t slot = next_;
  next_ = (next_ + 1) % kSlots;
  ids_[slot] = -1;
  slots_[slot].begin(rows, k, exact, residual);
  ids_[slot] = id;
  return slots_[slot];
}

void ActivationStore::clear() { ids_.fill(-1); }

}  // namespace dllm::cpu
