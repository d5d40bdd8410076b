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

/// Random weights of any type, generated at memory speed without holding a whole tensor. Every byte is a function of
/// (seed, tensor number, type, shape), whatever the number of threads.
///
/// Matrices: normal with mean 0 and standard deviation 1/sqrt(row length). The product of a row and a normalized
/// activation then has variance 1, as does what each attention or feed-forward branch adds to the residual stream. The
/// stream grows like sqrt(2 x layers), 8 for 32 layers, so every activation stays finite in F16. GPT-2's further factor
/// 1/sqrt(2 x layers) on the branches' outputs would push the scales of K formats deep into the F16 subnormals, which
/// trained weights do not. Gains: 1 +- 0.1. Biases: 0 +- 0.02.
///
/// Quantizing 8e9 values takes minutes (the K formats search for their scales), so only a pool of 2^20 values per
/// standard deviation and type is drawn and quantized. A matrix consists of pieces of 256 values, each copied from a
/// random place of the pool. Every block is therefore what the quantizer writes for normal weights, and pieces repeat
/// (a pool has 4096 places for the K formats, 32761 or more for others). This does not affect speed: kernels are
/// data-independent, and every copy has its own memory. But the file can be compressed, and says nothing about
/// quality.
class RandomWeights {
 public:
  RandomWeights(std::uint64_t seed, int threads);

  /// Passes the bytes of tensor number `index` to `sink` in pieces of some MiB. Precondition: the type has an encoder
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
/// integers scaled to variance 1, so normal up to an excess kurtosis of -0.15 and within +-4.9. All arithmetic before
/// the last multiplication is on integers, so the bits are the same on every machine, which log and cos in a Box-Muller
/// transform would not guarantee.
void normal_values(std::uint64_t seed, std::uint32_t purpose, std::uint32_t index, std::int64_t first,
                   std::span<float> out);

}  // namespace dllm
