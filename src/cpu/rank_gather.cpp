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

namespace {

/// Codes [first, first + count) of a row of `k`, with their scales, as bytes between ranks.
class CodePart {
 public:
  CodePart(const QuantizedRows& rows, std::int64_t k, std::int64_t row, std::int64_t first, std::int64_t count)
      : rows_(rows),
        values_(rows.values + row * rows.stride + first),
        group_((row * k + first) / kScaleBlock),
        count_(count) {}

  static std::size_t bytes(std::int64_t count) { return to_size(count) + bytes_of<float>(count / kScaleBlock); }

  void put(std::byte* to) const {
    std::memcpy(to, values_, to_size(count_));
    std::memcpy(to + count_, rows_.scales + group_, bytes_of<float>(count_ / kScaleBlock));
  }
  /// Derives the parameters; whether the scales permit `regular`.
  bool take(const std::byte* from) const {
    std::memcpy(values_, from, to_size(count_));
    std::memcpy(rows_.scales + group_, from + count_, bytes_of<float>(count_ / kScaleBlock));
    for (std::int64_t i = 0; i < count_ / kSumBlock; ++i) {
      std::int32_t sum = 0;
      for (std::int64_t j = 0; j < kSumBlock; ++j) sum += values_[i * kSumBlock + j];
      rows_.sums[2 * group_ + i] = sum;
    }
    return derive_groups(rows_, group_, count_ / kScaleBlock);
  }

 private:
  const QuantizedRows& rows_;
  std::int8_t* values_;
  std::int64_t group_, count_;
};

}  // namespace

bool RankGather::codes(const QuantizedRows& q, std::int64_t count, std::span<const std::int64_t> parts) {
  const std::int64_t k = sum_of(parts);
  std::vector<std::size_t> sizes;
  for (const std::int64_t part : parts) sizes.push_back(to_size(count) * CodePart::bytes(part));
  bool regular = true;
  const auto each_row = [&](int r, const auto& use) {
    const std::int64_t part = parts[to_size(r)], first = before(parts, r);
    for (std::int64_t row = 0; row < count && part > 0; ++row)
      use(CodePart(q, k, row, first, part), to_size(row) * CodePart::bytes(part));
  };
  exchange(
      sizes,
      [&](std::byte* to) { each_row(rank(), [to](const CodePart& part, std::size_t at) { part.put(to + at); }); },
      [&](int r, const std::byte* from) {
        if (r == rank()) return;
        each_row(r, [&](const CodePart& part, std::size_t at) { regular = part.take(from + at) && regular; });
      });
  return regular;
}

/// Rows of `bytes` each, of which rank r has by_rank[r]: put(row, bytes of it), then take(row, its bytes) of others'.
template <class Put, class Take>
void RankGather::exchange_rows(std::span<const std::vector<std::int64_t>> by_rank, std::size_t bytes, const Put& put,
                               const Take& take) {
  std::vector<std::size_t> sizes;
  for (const std::vector<std::int64_t>& rows : by_rank) sizes.push_back(rows.size() * bytes);
  exchange(
      sizes,
      [&](std::byte* to) {
        for (const std::int64_t row : by_rank[to_size(rank())]) {
          put(row, to);
          to += bytes;
        }
      },
      [&](int r, const std::byte* from) {
        if (r == rank()) return;
        for (const std::int64_t row : by_rank[to_size(r)]) {
          take(row, from);
          from += bytes;
        }
      });
}

bool RankGather::code_rows(const QuantizedRows& q, std::int64_t k, std::span<const std::vector<std::int64_t>> by_rank) {
  bool regular = true;
  exchange_rows(
      by_rank, CodePart::bytes(k), [&](std::int64_t row, std::byte* to) { CodePart(q, k, row, 0, k).put(to); },
      [&](std::int64_t row, const std::byte* from) { regular = CodePart(q, k, row, 0, k).take(from) && regular; });
  return regular;
}

void RankGather::rows(std::span<const std::vector<std::int64_t>> by_rank, std::int64_t width, float* out) {
  const std::size_t bytes = bytes_of<float>(width);
  exchange_rows(
      by_rank, bytes, [&](std::int64_t row, std::byte* to) { std::memcpy(to, out + row * width, bytes); },
      [&](std::int64_t row, const std::byte* from) { std::memcpy(out + row * width, from, bytes); });
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
