#include "cpu/rank_gather.h"

#include <cstring>
#include <utility>

#include "base/to_size.h"

namespace dllm::cpu {
namespace {

std::int64_t sum_of(std::span<const std::int64_t> parts) {
  std::int64_t sum = 0;
  for (const std::int64_t part : parts) sum += part;
  return sum;
}

std::int64_t before(std::span<const std::int64_t> parts, int rank) { return sum_of(parts.first(to_size(rank))); }

}  // namespace

void RankGather::gather(std::span<const std::byte> own, std::span<const std::size_t> sizes, std::span<std::byte> all) {
  if (auto gathered = ranks_->all_gather(own, sizes, all); !gathered) throw RanksFailed{std::move(gathered).error()};
}

void RankGather::columns(const float* x, std::int64_t rows, std::span<const std::int64_t> parts, float* out) {
  const std::int64_t width = sum_of(parts);
  std::vector<std::size_t> sizes;
  for (const std::int64_t part : parts) sizes.push_back(bytes_of<float>(rows * part));
  exchange(
      sizes,
      [&](std::byte* to) {
        if (const std::size_t bytes = sizes[to_size(rank())]; bytes > 0) std::memcpy(to, x, bytes);
      },
      [&](int r, const std::byte* from) {
        const std::size_t bytes = bytes_of<float>(parts[to_size(r)]);
        float* to = out + before(parts, r);
        for (std::int64_t row = 0; row < rows && bytes > 0; ++row, from += bytes, to += width)
          std::memcpy(to, from, bytes);
      });
}

void RankGather::columns_in_place(std::int64_t rows, std::span<const std::int64_t> parts, float* out) {
  const std::int64_t width = sum_of(parts);
  std::vector<std::size_t> sizes;
  for (const std::int64_t part : parts) sizes.push_back(bytes_of<float>(rows * part));
  const auto each_row = [&](int r, const auto& copy) {
    const std::size_t bytes = bytes_of<float>(parts[to_size(r)]);
    for (std::int64_t row = 0; row < rows && bytes > 0; ++row)
      copy(reinterpret_cast<std::byte*>(out + row * width + before(parts, r)), to_size(row) * bytes, bytes);
  };
  exchange(
      sizes,
      [&](std::byte* to) {
        each_row(rank(), [to](const std::byte* at, std::size_t offset, std::size_t bytes) {
          std::memcpy(to + offset, at, bytes);
        });
      },
      [&](int r, const std::byte* from) {
        if (r == rank()) return;
        each_row(
            r, [from](std::byte* at, std::size_t offset, std::size_t bytes) { std::memcpy(at, from + offset, bytes); });
      });
}

bool RankGather::codes(const QuantizedRows& q, std::int64_t count, std::span<const std::int64_t> parts) {
  const std::int64_t k = sum_of(parts);
  const auto row_bytes = [](std::int64_t part) { return to_size(part) + bytes_of<float>(part / kScaleBlock); };
  std::vector<std::size_t> sizes;
  for (const std::int64_t part : parts) sizes.push_back(to_size(count) * row_bytes(part));
  bool regular = true;
  exchange(
      sizes,
      [&](std::byte* to) {
        const std::int64_t part = parts[to_size(rank())], first = before(parts, rank());
        for (std::int64_t row = 0; row < count && part > 0; ++row, to += row_bytes(part)) {
          std::memcpy(to, q.values + row * q.stride + first, to_size(part));
          std::memcpy(to + part, q.scales + (row * k + first) / kScaleBlock, bytes_of<float>(part / kScaleBlock));
        }
      },
      [&](int r, const std::byte* from) {
        const std::int64_t part = parts[to_size(r)], first = before(parts, r);
        if (r == rank()) return;
        for (std::int64_t row = 0; row < count && part > 0; ++row, from += row_bytes(part)) {
          std::int8_t* const values = q.values + row * q.stride + first;
          const std::int64_t group = (row * k + first) / kScaleBlock;
          std::memcpy(values, from, to_size(part));
          std::memcpy(q.scales + group, from + part, bytes_of<float>(part / kScaleBlock));
          for (std::int64_t i = 0; i < part / kSumBlock; ++i) {
            std::int32_t sum = 0;
            for (std::int64_t j = 0; j < kSumBlock; ++j) sum += values[i * kSumBlock + j];
            q.sums[2 * group + i] = sum;
          }
          regular = derive_groups(q, group, part / kScaleBlock) && regular;
        }
      });
  return regular;
}

void RankGather::rows(std::span<const std::int64_t> ends, std::int64_t width, float* out) {
  std::vector<std::size_t> sizes;
  for (std::size_t r = 0; r < ends.size(); ++r)
    sizes.push_back(bytes_of<float>((ends[r] - (r == 0 ? 0 : ends[r - 1])) * width));
  const auto at = [&](int r) { return out + (r == 0 ? 0 : ends[to_size(r - 1)]) * width; };
  exchange(
      sizes,
      [&](std::byte* to) {
        if (sizes[to_size(rank())] > 0) std::memcpy(to, at(rank()), sizes[to_size(rank())]);
      },
      [&](int r, const std::byte* from) {
        if (r != rank() && sizes[to_size(r)] > 0) std::memcpy(at(r), from, sizes[to_size(r)]);
      });
}

std::vector<std::vector<std::byte>> RankGather::blobs(std::span<const std::byte> own) {
  const std::vector<std::size_t> eight(to_size(size()), sizeof(std::uint64_t));
  std::vector<std::size_t> sizes(eight);
  exchange(
      eight,
      [&](std::byte* to) {
        const auto bytes = static_cast<std::uint64_t>(own.size());
        std::memcpy(to, &bytes, sizeof bytes);
      },
      [&](int r, const std::byte* from) {
        std::uint64_t bytes = 0;
        std::memcpy(&bytes, from, sizeof bytes);
        (void)bytes_of<char>(static_cast<std::int64_t>(bytes));
        sizes[to_size(r)] = static_cast<std::size_t>(bytes);
      });
  std::vector<std::vector<std::byte>> all(to_size(size()));
  exchange(
      sizes,
      [&](std::byte* to) {
        if (!own.empty()) std::memcpy(to, own.data(), own.size());
      },
      [&](int r, const std::byte* from) { all[to_size(r)].assign(from, from + sizes[to_size(r)]); });
  return all;
}

}  // namespace dllm::cpu
