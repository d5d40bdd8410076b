#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "dllm/error.h"
#include "ranks/communicator.h"

namespace dllm::cpu {

/// Thrown where ranks cannot go on; CpuBackend::forward() returns the error.
struct RanksFailed {
  Error error;
};

/// A rank's exchanges with the others. Every call throws std::bad_alloc and RanksFailed.
class RankGather {
 public:
  /// `ranks` is borrowed; nullptr: this is the only one.
  explicit RankGather(Communicator* ranks) : ranks_(ranks) {}

  bool active() const { return ranks_ != nullptr && ranks_->size() > 1; }
  int rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }
  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }

  void abort(const std::string& why) {
    if (active()) ranks_->abort(why);
  }

  /// fill(bytes of this rank), then take(rank, its bytes) for each rank, this one too.
  template <class Fill, class Take>
  void exchange(std::span<const std::size_t> sizes, const Fill& fill, const Take& take) {
    std::size_t sum = 0;
    for (const std::size_t size : sizes) sum += size;
    const std::size_t own = sizes[static_cast<std::size_t>(rank())];
    own_.reserve(own + 1);
    all_.reserve(sum + 1);
    fill(own_.data());
    gather(std::span(own_.data(), own), sizes, std::span(all_.data(), sum));
    const std::byte* at = all_.data();
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      take(static_cast<int>(r), at);
      at += sizes[r];
    }
  }

  /// Columns [sum of parts before r, + parts[r]) of out[rows][sum of parts] are those of rank r. `x`: this rank's,
  /// [rows][its part]; nullptr if it has none.
  void columns(const float* x, std::int64_t rows, std::span<const std::int64_t> parts, float* out);
  /// The same of rows [rows][sum of parts] that hold this rank's columns.
  void columns_in_place(std::int64_t rows, std::span<const std::int64_t> parts, float* out);
  /// Codes and scales; the others' parameters are derived. All parts are multiples of 32. Returns whether the others'
  /// scales permit `regular`.
  bool codes(const QuantizedRows& rows, std::int64_t count, std::span<const std::int64_t> parts);
  /// The same of whole rows of `k` codes; `by_rank`: whose each is.
  bool code_rows(const QuantizedRows& rows, std::int64_t k, std::span<const std::vector<std::int64_t>> by_rank);
  /// Rows of out[rows][width]; `by_rank`: whose each is.
  void rows(std::span<const std::vector<std::int64_t>> by_rank, std::int64_t width, float* out);
  /// Bytes of which only their rank knows the number.
  std::vector<std::vector<std::byte>> blobs(std::span<const std::byte> own);

 private:
  template <class Put, class Take>
  void exchange_rows(std::span<const std::vector<std::int64_t>> by_rank, std::size_t bytes, const Put& put,
                     const Take& take);
  void gather(std::span<const std::byte> own, std::span<const std::size_t> sizes, std::span<std::byte> all);

  Communicator* ranks_;
  Buffer own_, all_;
};

}  // namespace dllm::cpu
