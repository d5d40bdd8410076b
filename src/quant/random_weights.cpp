#include "quant/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "base/rng.h"
#include "base/to_size.h"
#include "base/try.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

constexpr std::int64_t kPoolElems = std::int64_t{1} << 20;
constexpr std::int64_t kPieceElems = 256;  // the largest block: a piece is whole blocks in every format
constexpr std::int64_t kChunkPieces = std::int64_t{1} << 14;  // 4 Mi elements: 2.3 MB of Q4_0, 16 MB of F32
constexpr std::int64_t kTaskPieces = 512;
constexpr float kGainDeviation = 0.1f, kBiasDeviation = 0.02f;

/// Last word of the counter, so that the streams differ.
enum Purpose : std::uint32_t { kPoolValues = 0, kPlaces = 1, kVectorValues = 2 };

std::array<std::uint32_t, 4> draw(std::uint64_t seed, std::uint32_t purpose, std::uint32_t index,
                                  std::uint64_t counter) {
  return philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), index, purpose},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

/// Factors near 1.
bool is_gain(std::string_view name) {
  return name.ends_with("norm.weight") || name.find("_norm_") != std::string_view::npos ||
         name.ends_with("_scale.weight") || name.ends_with(".scale") || name == "rope_freqs.weight";
}

}  // namespace

void normal_values(std::uint64_t seed, std::uint32_t purpose, std::uint32_t index, std::int64_t first,
                   std::span<float> out) {
  // A uniform 16-bit integer has variance (2^32 - 1) / 12, eight of them a mean of 4 * 65535.
  constexpr std::int32_t kMean = 4 * 65535;
  constexpr float kScale = 1.8688470e-5f;  // sqrt(12 / 8) / 65536
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int32_t sum = -kMean;
    for (const std::uint32_t word : draw(seed, purpose, index, static_cast<std::uint64_t>(first) + i))
      sum += static_cast<std::int32_t>(word & 0xffffu) + static_cast<std::int32_t>(word >> 16);
    out[i] = static_cast<float>(sum) * kScale;
  }
}

RandomWeights::RandomWeights(std::uint64_t seed, int threads) : seed_(seed), threads_(threads) {}

const std::vector<std::byte>& RandomWeights::pool(const PoolKey& key) {
  const auto [at, fresh] = pools_.try_emplace(key);
  if (!fresh) return at->second;
  const Codec& format = codec(key.first);
  at->second.resize(to_size(format.row_bytes(kPoolElems)));
  constexpr std::int64_t kTask = std::int64_t{1} << 14;
  // The same normal numbers for every type and deviation, so that files with the same seed resemble each other.
  threads_.parallel_for(kPoolElems / kTask, [&](std::int64_t task, int) {
    std::vector<float> values(to_size(kTask));
    normal_values(seed_, kPoolValues, 0, task * kTask, values);
    for (float& value : values) value *= key.second;
    format.quantize(values.data(), at->second.data() + format.row_bytes(task * kTask), kTask);
  });
  return at->second;
}

void RandomWeights::fill(std::uint32_t index, const Codec& format, const std::vector<std::byte>& from,
                         std::int64_t first_piece, std::span<std::byte> out) {
  const std::int64_t piece_bytes = format.row_bytes(kPieceElems);
  const auto size = static_cast<std::int64_t>(out.size());
  const std::int64_t pieces = ceil_div(size, piece_bytes);
  // A piece may begin at any block of the pool.
  const std::int64_t places = (kPoolElems - kPieceElems) / format.block_elems + 1;
  parallel_pieces(threads_, pieces, kTaskPieces, [&](std::int64_t begin, std::int64_t end, int) {
    std::array<std::uint32_t, 4> words{};
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t piece = first_piece + p;
      // first_piece and begin are multiples of four: the words are drawn before they are read.
      if (piece % 4 == 0) words = draw(seed_, kPlaces, index, static_cast<std::uint64_t>(piece / 4));
      const std::uint64_t word = words[to_size(piece % 4)];
      const auto place = static_cast<std::int64_t>(word * static_cast<std::uint64_t>(places) >> 32);
      const std::int64_t bytes = std::min(piece_bytes, size - p * piece_bytes);
      std::memcpy(out.data() + p * piece_bytes, from.data() + place * format.block_bytes, to_size(bytes));
    }
  });
}

Expected<void> RandomWeights::stream_vector(std::uint32_t index, std::string_view name, std::int64_t count,
                                            TensorType type, const GgufWriter::Sink& sink) {
  std::vector<float> values(to_size(count));
  normal_values(seed_, kVectorValues, index, 0, values);
  for (float& value : values) value = is_gain(name) ? 1.0f + kGainDeviation * value : kBiasDeviation * value;
  std::vector<std::byte> bytes(to_size(codec(type).row_bytes(count)));
  codec(type).quantize(values.data(), bytes.data(), count);
  return sink(bytes);
}

Expected<void> RandomWeights::stream(std::uint32_t index, std::string_view name, const Shape& shape, TensorType type,
                                     const GgufWriter::Sink& sink) {
  const std::int64_t count = element_count(shape);
  if (shape.size() == 1 || is_gain(name)) return stream_vector(index, name, count, type, sink);
  const float deviation = 1.0f / std::sqrt(static_cast<float>(shape.front()));
  const std::vector<std::byte>& from = pool({type, deviation});
  const Codec& format = codec(type);
  const std::int64_t total = format.row_bytes(count), chunk = format.row_bytes(kChunkPieces * kPieceElems);
  buffer_.resize(to_size(std::min(total, chunk)));
  for (std::int64_t done = 0; done < total; done += chunk) {
    const auto part = std::span(buffer_).first(to_size(std::min(chunk, total - done)));
    fill(index, format, from, done / format.row_bytes(kPieceElems), part);
    DLLM_CHECK_OK(sink(part));
  }
  return {};
}

}  // namespace dllm
