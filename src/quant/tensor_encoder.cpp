#include "quant/tensor_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"

namespace dllm {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kChunkElems = 1 << 16;  // 256 KiB of floats: stays in the second-level cache

/// No type overflows below this: scales are fp16 and at most twice the largest weight of their block.
constexpr float kSafeMagnitude = 32768.f;

struct Scan {
  std::int64_t not_finite = kNone;
  float largest = 0.f;
};

Scan scan(const float* values, std::int64_t count) {
  Scan result;
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(values[i]);
    if (!(magnitude <= std::numeric_limits<float>::max())) {
      result.not_finite = i;
      return result;
    }
    result.largest = std::max(result.largest, magnitude);
  }
  return result;
}

/// Threads find faults in any order; the first element is reported whatever the order.
void keep_smallest(std::atomic<std::int64_t>& smallest, std::int64_t value) {
  std::int64_t seen = smallest.load(std::memory_order_relaxed);
  while (value < seen && !smallest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

Error fault(const SourceTensor& tensor, std::int64_t element, std::string_view what, std::string hint) {
  const std::int64_t row = tensor.shape.front();
  return {ErrorCode::kInvalidFile,
          fmt::format("element {} (row {}, column {}) {}", element, element / row, element % row, what), tensor.name,
          std::move(hint)};
}

}  // namespace

struct TensorEncoder::Job {
  const Codec& from;
  const Codec& to;
  const std::byte* src;
  std::byte* dst;  ///< null: the bytes are unchanged and only checked
  std::int64_t row;
  std::int64_t rows;        ///< of one matrix
  const float* importance;  ///< [matrices][row], or null
};

TensorEncoder::TensorEncoder(int threads) : pool_(threads), scratch_(static_cast<std::size_t>(pool_.size())) {}

Expected<std::span<const std::byte>> TensorEncoder::encode(const SourceTensor& tensor, TensorType type,
                                                           std::span<const float> importance) {
  const std::span<const std::byte> bytes = tensor_bytes(tensor, ordered_);
  const bool same = tensor.type == type;
  const Codec& to = codec(type);
  const std::int64_t row = tensor.shape.front(), rows = row_count(tensor.shape);
  if (!same) encoded_.resize(static_cast<std::size_t>(rows * to.row_bytes(row)));
  const Job job{.from = codec(tensor.type),
                .to = to,
                .src = bytes.data(),
                .dst = same ? nullptr : encoded_.data(),
                .row = row,
                .rows = tensor.shape.size() > 1 ? tensor.shape[1] : 1,
                .importance = to.quantize_weighted != nullptr ? importance.data() : nullptr};
  const std::int64_t chunk = std::max<std::int64_t>(1, kChunkElems / row);  // rows
  for (auto& scratch : scratch_) scratch.resize(static_cast<std::size_t>(chunk * row));
  not_finite_ = overflow_ = kNone;
  parallel_pieces(pool_, rows, chunk, [&](std::int64_t first, std::int64_t end, int worker) {
    encode_rows(job, first, end, scratch_[static_cast<std::size_t>(worker)].data());
  });
  if (not_finite_ != kNone)
    return fault(tensor, not_finite_, "is not a finite number", "the weights are damaged, or training diverged");
  if (overflow_ != kNone)
    return fault(tensor, overflow_, fmt::format("is too large for type {}", to.name),
                 "BF16 and F32 have a larger range");
  return same ? bytes : std::span<const std::byte>(encoded_);
}

void TensorEncoder::encode_rows(const Job& job, std::int64_t first, std::int64_t end, float* scratch) {
  const std::int64_t count = (end - first) * job.row;
  const std::int64_t offset = first * job.row;
  job.from.dequantize(job.src + first * job.from.row_bytes(job.row), scratch, count);
  const Scan found = scan(scratch, count);
  if (found.not_finite != kNone) return keep_smallest(not_finite_, offset + found.not_finite);
  if (job.dst == nullptr) return;
  std::byte* dst = job.dst + first * job.to.row_bytes(job.row);
  if (job.importance == nullptr) {
    job.to.quantize(scratch, dst, count);
  } else {
    for (std::int64_t r = first; r < end; ++r)
      job.to.quantize_weighted(scratch + (r - first) * job.row, job.importance + r / job.rows * job.row,
                               dst + (r - first) * job.to.row_bytes(job.row), job.row);
  }
  if (found.largest < kSafeMagnitude) return;
  job.to.dequantize(dst, scratch, count);
  const Scan written = scan(scratch, count);
  if (written.not_finite != kNone) keep_smallest(overflow_, offset + written.not_finite);
}

}  // namespace dllm
