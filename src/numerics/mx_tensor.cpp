#include "numerics/mx_tensor.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace dllm {
namespace {

constexpr int kMaxBlock = 32, kBlocks[] = {8, 16, 32};
constexpr MxElement kIntegers[] = {MxElement::kInt4, MxElement::kInt8};
constexpr MxElement kFloats[] = {MxElement::kE2M1, MxElement::kE2M3, MxElement::kE3M2, MxElement::kE4M3,
                                 MxElement::kE5M2};
constexpr std::size_t kTypes = std::size(kBlocks) * (std::size(kIntegers) * kMxRuleCount + std::size(kFloats));

constexpr std::uint32_t number_of(const MxFormat& format) {
  const std::uint32_t log2_block = format.block == 8 ? 3 : format.block == 16 ? 4 : 5;
  return kMxTypeBase | static_cast<std::uint32_t>(format.rule) << 8 | log2_block << 4 |
         static_cast<std::uint32_t>(format.element);
}

constexpr std::array<MxFormat, kTypes> kFormats = [] {
  std::array<MxFormat, kTypes> all;
  std::size_t at = 0;
  for (const int block : kBlocks) {
    for (const MxElement element : kIntegers)
      for (int rule = 0; rule < kMxRuleCount; ++rule) all[at++] = {element, static_cast<MxRule>(rule), block};
    for (const MxElement element : kFloats) all[at++] = {element, MxRule::kOcp, block};
  }
  std::ranges::sort(all, {}, number_of);
  return all;
}();

std::size_t block_bytes(const MxFormat& format) {
  return 1 + format.element_bytes(static_cast<std::size_t>(format.block));
}

// Codecs are plain functions, so that each format needs its own; they only pass the format on.
template <std::size_t kAt>
void decode_rows(const std::byte* src, float* dst, std::int64_t count) {
  constexpr MxFormat kFormat = kFormats[kAt];
  std::uint16_t codes[kMaxBlock];
  std::uint8_t scale = 0;
  for (std::int64_t i = 0; i < count; i += kFormat.block, src += block_bytes(kFormat)) {
    mx_read_block(kFormat, src, codes, scale);
    mx_dequantize(kFormat, codes, &scale, static_cast<std::size_t>(kFormat.block), dst + i);
  }
}

template <std::size_t kAt>
void encode_rows(const float* src, std::byte* dst, std::int64_t count) {
  constexpr MxFormat kFormat = kFormats[kAt];
  std::uint16_t codes[kMaxBlock];
  std::uint8_t scale = 0;
  for (std::int64_t i = 0; i < count; i += kFormat.block, dst += block_bytes(kFormat)) {
    mx_quantize(kFormat, src + i, static_cast<std::size_t>(kFormat.block), codes, &scale);
    mx_write_block(kFormat, codes, scale, dst);
  }
}

struct Registry {
  std::array<std::string, kTypes> names;
  std::array<Codec, kTypes> codecs{};
  std::array<const Codec*, kTypes> pointers{};

  Registry() { fill(std::make_index_sequence<kTypes>()); }

  template <std::size_t... kAt>
  void fill(std::index_sequence<kAt...>) {
    (add<kAt>(), ...);
  }
  template <std::size_t kAt>
  void add() {
    const MxFormat& format = kFormats[kAt];
    names[kAt] = mx_format_name(format);
    codecs[kAt] = {static_cast<TensorType>(number_of(format)),     names[kAt],       format.block,
                   static_cast<std::int64_t>(block_bytes(format)), decode_rows<kAt>, encode_rows<kAt>};
    pointers[kAt] = &codecs[kAt];
  }
};

}  // namespace

TensorType mx_tensor_type(const MxFormat& format) {
  MxFormat canonical = format;
  if (mx_element(format.element).exponent_bits != 0) canonical.rule = MxRule::kOcp;
  return static_cast<TensorType>(number_of(canonical));
}

std::optional<MxFormat> mx_format_of(TensorType type) {
  const auto number = static_cast<std::uint32_t>(type);
  const auto found = std::ranges::lower_bound(kFormats, number, {}, number_of);
  if (found == kFormats.end() || number_of(*found) != number) return std::nullopt;
  return *found;
}

std::span<const Codec* const> mx_codecs() {
  static const Registry registry;
  return registry.pointers;
}

std::optional<TensorType> mx_type_from_name(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  constexpr std::string_view kShort = "mxfp8";
  if (lower == kShort || lower.starts_with("mxfp8:")) lower.insert(kShort.size(), "_e4m3");
  const auto format = mx_format_from_name(lower);
  if (!format || !format->scaled() || format->packed()) return std::nullopt;
  return mx_tensor_type(*format);
}

void mx_read_block(const MxFormat& format, const std::byte* block, std::uint16_t* codes, std::uint8_t& scale) {
  scale = static_cast<std::uint8_t>(*block);
  mx_unpack(format.bits(), block + 1, static_cast<std::size_t>(format.block), codes);
}

void mx_write_block(const MxFormat& format, const std::uint16_t* codes, std::uint8_t scale, std::byte* block) {
  *block = static_cast<std::byte>(scale);
  mx_pack(format.bits(), codes, static_cast<std::size_t>(format.block), block + 1);
}

}  // namespace dllm
