#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "cpu/kernels/kernel_set.h"
#include "numerics/tensor_type.h"

// Inputs for the kernels' tests, without any library, because the self-test runs where there is no test framework.

namespace dllm::cpu::test {

/// The same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() { return splitmix64(state_); }
  /// In [-1, 1).
  float unit() { return static_cast<float>(static_cast<std::int64_t>(bits() >> 40) - (1 << 23)) * 0x1.0p-23f; }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }

 private:
  std::uint64_t state_;
};

inline std::vector<float> random_floats(Random& random, std::int64_t n, float amplitude = 1.f) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = random.unit() * amplitude;
  return values;
}

/// A quantized format: its block and the place of its float16 scales in the block (-1: none).
struct BlockLayout {
  TensorType type;
  std::int64_t elems;
  std::int64_t bytes;
  int half0;
  int half1;
};
inline constexpr BlockLayout kBlockLayouts[] = {
    {TensorType::kQ4_0, 32, 18, 0, -1},     {TensorType::kQ4_1, 32, 20, 0, 2},
    {TensorType::kQ5_0, 32, 22, 0, -1},     {TensorType::kQ5_1, 32, 24, 0, 2},
    {TensorType::kQ8_0, 32, 34, 0, -1},     {TensorType::kQ4_K, 256, 144, 0, 2},
    {TensorType::kQ5_K, 256, 176, 0, 2},    {TensorType::kQ6_K, 256, 210, 208, -1},
    {TensorType::kMXFP4, 32, 17, -1, -1},   {TensorType::kQ2_K, 256, 84, 80, 82},
    {TensorType::kQ3_K, 256, 110, 108, -1}, {TensorType::kIQ4_NL, 32, 18, 0, -1},
    {TensorType::kIQ4_XS, 256, 136, 0, -1}, {TensorType::kNVFP4, 64, 36, -1, -1},
    {TensorType::kIQ1_S, 256, 50, 0, -1},   {TensorType::kIQ1_M, 256, 56, -1, -1},
    {TensorType::kIQ2_XXS, 256, 66, 0, -1}, {TensorType::kIQ2_XS, 256, 74, 0, -1},
    {TensorType::kIQ2_S, 256, 82, 0, -1},   {TensorType::kIQ3_XXS, 256, 98, 0, -1},
    {TensorType::kIQ3_S, 256, 110, 0, -1},
};

/// Blocks of random bits, except that the scales are of moderate size: every code of the format occurs, including
/// Q8_0's -128.
inline std::vector<std::byte> random_blocks(Random& random, const BlockLayout& layout, std::int64_t elems) {
  std::vector<std::byte> data(static_cast<std::size_t>(elems / layout.elems * layout.bytes));
  for (std::byte& b : data) b = static_cast<std::byte>(random.bits() & 255);
  for (std::size_t block = 0; block < data.size(); block += static_cast<std::size_t>(layout.bytes)) {
    for (int offset : {layout.half0, layout.half1}) {
      if (offset < 0) continue;
      // Sign and mantissa free, exponent 2^-10 .. 2^-3.
      const auto half = static_cast<std::uint16_t>((random.bits() & 0x83ffu) | ((5u + (random.bits() & 7u)) << 10));
      std::memcpy(data.data() + block + static_cast<std::size_t>(offset), &half, 2);
    }
    if (layout.type == TensorType::kMXFP4) data[block] = static_cast<std::byte>(120 + random.below(10));
    if (layout.type == TensorType::kNVFP4)  // 2^-6 to 1.75; codes below 8 are subnormal
      for (std::size_t g = 0; g < 4; ++g) data[block + g] = static_cast<std::byte>(random.below(62));
    if (layout.type == TensorType::kIQ1_M) {  // its half is in the highest four bits of four words; exponent 2^-9
      data[block + 53] = (data[block + 53] & std::byte{0x3f}) | std::byte{0x80};
      data[block + 55] = (data[block + 55] & std::byte{0x8f}) | std::byte{0x10};
    }
  }
  return data;
}

/// Random float16 or bfloat16 values of moderate size.
inline std::vector<std::byte> random_words(Random& random, TensorType type, std::int64_t elems) {
  std::vector<std::byte> data(static_cast<std::size_t>(elems) * 2);
  for (std::size_t i = 0; i < data.size(); i += 2) {
    const std::uint64_t r = random.bits();
    const auto word = type == TensorType::kF16
                          ? static_cast<std::uint16_t>((r & 0x83ffu) | ((8u + ((r >> 20) & 7u)) << 10))
                          : static_cast<std::uint16_t>((r & 0x807fu) | ((120u + ((r >> 20) & 7u)) << 7));
    std::memcpy(data.data() + i, &word, 2);
  }
  return data;
}

/// The kernel sets that this machine supports.
inline std::vector<const KernelSet*> available_sets() {
  KernelSetEntry entries[kMaxKernelSets];
  const int count = list_kernel_sets(entries);
  std::vector<const KernelSet*> available;
  for (int i = 0; i < count; ++i)
    if (entries[i].available) available.push_back(entries[i].set);
  return available;
}

/// Memory of the test, aligned to a cache line.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::int64_t size) : bytes_(static_cast<std::size_t>(size) + 64) {}
  std::uint8_t* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// A packed matrix [n][k].
class TestMatrix {
 public:
  TestMatrix(TensorType type, const std::vector<std::byte>& weight, std::int64_t n, std::int64_t k)
      : format_(*packed_format(type)),
        layout_(packed_layout(format_, k)),
        panels_((n + kPanel - 1) / kPanel * layout_.bytes) {
    const std::int64_t row_bytes = k / format_.block_elems * format_.block_bytes;
    for (std::int64_t first = 0; first < n; first += kPanel) {
      const std::int64_t count = n - first < kPanel ? n - first : kPanel;
      const bool regular =
          pack_panel(format_, reinterpret_cast<const std::uint8_t*>(weight.data()) + first * row_bytes, row_bytes,
                     static_cast<int>(count), k, panels_.data() + first / kPanel * layout_.bytes);
      regular_ = regular_ && regular;
    }
  }
  const PackedFormat& format() const { return format_; }
  bool regular() const { return regular_; }
  void add_to(LinearArgs& args) {
    args.operands = packs_floats(format_) ? LinearOperands::kPackedFloats : LinearOperands::kPackedCodes;
    args.panels = {&format_, &layout_, panels_.data(), regular_};
  }

 private:
  const PackedFormat& format_;
  PackedLayout layout_;
  AlignedBytes panels_;
  bool regular_ = true;
};

/// A matrix [n][k] packed for the arithmetic `super`.
class TestSuperMatrix {
 public:
  TestSuperMatrix(TensorType type, const std::vector<std::byte>& weight, std::int64_t n, std::int64_t k)
      : layout_(super_layout(type, k)), panels_((n + kPanel - 1) / kPanel * layout_.bytes) {
    const auto row_bytes = static_cast<std::int64_t>(weight.size()) / n;
    for (std::int64_t first = 0; first < n; first += kPanel)
      pack_super_panel(type, reinterpret_cast<const std::uint8_t*>(weight.data()) + first * row_bytes, row_bytes,
                       static_cast<int>(n - first < kPanel ? n - first : kPanel), k,
                       panels_.data() + first / kPanel * layout_.bytes);
  }
  void add_to(LinearArgs& args) {
    args.operands = LinearOperands::kSuper;
    args.panels.data = panels_.data();
    args.panels.super = &layout_;
  }

 private:
  SuperLayout layout_;
  AlignedBytes panels_;
};

/// Rows quantized for it.
class TestSuperRows {
 public:
  TestSuperRows(const KernelSet& set, const std::vector<float>& x, std::int64_t rows)
      : k_(static_cast<std::int64_t>(x.size()) / rows),
        groups_((rows + kSuperRows - 1) / kSuperRows),
        values_(groups_ * SuperRows::group_bytes(k_)),
        scales_(static_cast<std::size_t>(groups_ * super_blocks(k_) * kSuperRows)),
        sums_(scales_.size() * kSuperPlanes) {
    for (std::int64_t g = 0; g < groups_; ++g)
      for (std::int64_t s = 0; s < super_blocks(k_); ++s) {
        const std::int64_t first = g * kSuperRows, count = rows - first < kSuperRows ? rows - first : kSuperRows;
        set.quantize_super(x.data() + first * k_, k_, count, g, s, view());
      }
  }
  SuperRows view() {
    return {reinterpret_cast<std::int8_t*>(values_.data()), scales_.data(), sums_.data(), groups_, 0};
  }
  std::vector<std::int8_t> values() { return {view().values, view().values + groups_ * SuperRows::group_bytes(k_)}; }
  const std::vector<float>& scales() const { return scales_; }
  const std::vector<std::int32_t>& sums() const { return sums_; }

 private:
  std::int64_t k_, groups_;
  AlignedBytes values_;
  std::vector<float> scales_;
  std::vector<std::int32_t> sums_;
};

/// Rows in groups, as for packed floats.
class TestGroups {
 public:
  TestGroups(const KernelSet& set, RowForm form, const std::vector<float>& x, std::int64_t rows)
      : values_((rows + rows_of_group(form) - 1) / rows_of_group(form) *
                group_stride(form, static_cast<std::int64_t>(x.size()) / rows) * 4) {
    const std::int64_t k = static_cast<std::int64_t>(x.size()) / rows, size = rows_of_group(form);
    for (std::int64_t row = 0; row < rows; row += size)
      regular = set.interleave(form, x.data() + row * k, k, rows - row < size ? rows - row : size,
                               floats() + row / size * group_stride(form, k)) &&
                regular;
  }
  float* floats() { return reinterpret_cast<float*>(values_.data()); }

  bool regular = true;

 private:
  AlignedBytes values_;
};

/// Quantized rows with all derived data.
struct TestRows {
  TestRows(const KernelSet& set, const std::vector<float>& x, std::int64_t rows, bool exact)
      : values(x.size()),
        scales(x.size() / 32),
        offsets(scales.size()),
        sums(x.size() / 16),
        exponents(scales.size()),
        multiples(scales.size()),
        corrections(sums.size()),
        count(rows),
        k(static_cast<std::int64_t>(x.size()) / rows) {
    set.quantize_row(x.data(), rows * k, exact, values.data(), scales.data(), sums.data());
  }
  /// For products with `format`.
  QuantizedRows view(const PackedFormat& format) {
    QuantizedRows q{values.data(),    scales.data(),  sums.data(),        k,   exponents.data(),
                    multiples.data(), offsets.data(), corrections.data(), true};
    q.regular = derive_groups(q, 0, count * k / kScaleBlock) && q.regular && !format.exact_rows;
    fill_corrections(q, count, k, format);
    return q;
  }

  std::vector<std::int8_t> values;
  std::vector<float> scales, offsets;
  std::vector<std::int32_t> sums, exponents, multiples, corrections;
  std::int64_t count, k;
};

/// Bytes of a row of `n` values of the KV cache.
inline std::int64_t cache_row_bytes(TensorType type, std::int64_t n) {
  if (type == TensorType::kQ8_0) return n / 32 * 34;
  if (type == TensorType::kQ4_0) return n / 32 * 18;
  return n * (type == TensorType::kF32 ? 4 : 2);
}

}  // namespace dllm::cpu::test
