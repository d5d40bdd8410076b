#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"
#include "format/gguf.h"
#include "format/tensor_info.h"

namespace dllm {

/// Random weights of any type, at memory speed and without a whole tensor in memory. Every byte is a function of (seed,
/// tensor's number, type, shape), whatever the number of threads.
///
/// Matrices: normal with mean 0 and standard deviation 1/sqrt(row length). A row times a normed activation has then
/// variance 1, and so has what each attention or feed-forward branch adds to the residual stream: it grows like
/// sqrt(2 x layers), 8 for 32 layers, and every activation stays finite in F16 range. GPT-2's further 1/sqrt(2 x
/// layers) on the branches' outputs would push the scales of K formats deep into the subnormals of F16, which trained
/// weights do not do. Gains: 1 +- 0.1. Biases: 0 +- 0.02.
///
/// Quantizing 8e9 values costs minutes (the K formats search for their scales), so only a pool of 2^20 values per
/// standard deviation and type is drawn and quantized; a matrix is made of pieces of 256 values, each copied from a
/// random place of the pool. Every block is therefore what the quantizer writes for normal weights, and pieces recur
/// (a pool has 4096 places for the K formats, 32761 and more for others). That changes no cost: kernels are
/// data-independent, and each recurrence has its own memory. It makes the file compressible, and its numbers no basis
/// for any statement on quality.
class RandomWeights {
 public:
  RandomWeights(std::uint64_t seed, int threads);

  /// Hands the bytes of tensor number `index` to `sink` in pieces of some MiB. Precondition: the type has an encoder
  /// and the rows fit its blocks. Errors: the sink's.
  Expected<void> stream(std::uint32_t index, std::string_view name, const Shape& shape, TensorType type,
                        const GgufWriter::Sink& sink);

 private:
  using PoolKey = std::pair<TensorType, float>;

  const std::vector<std::byte>& pool(const PoolKey& key);
  Expected<void> stream_vector(std::uint32_t index, std::string_view name, std::int64_t count, TensorType type,
                               const GgufWriter::Sink& sink);
  void fill(std::uint32_t index, const Codec& format, const std::vector<std::byte>& from, std::int64_t first_piece,
            std::span<std::byte> out);

  std::uint64_t seed_;
  ThreadPool threads_;
  std::map<PoolKey, std::vector<std::byte>> pools_;
  std::vector<std::byte> buffer_;
};

/// `out[i]` = value `first + i` of the stream (seed, purpose, index): an Irwin-Hall sum of eight uniform 16-bit
/// integers scaled to variance 1, so normal up to an excess kurtosis of -0.15 and within +-4.9. Integers only until the
/// last multiplication: the same bits on every machine, which log and cos of a Box-Muller transform do not promise.
void normal_values(std::uint64_t seed, std::uint32_t purpose, std::uint32_t index, std::int64_t first,
                   std::span<float> out);

}  // namespace dllm
