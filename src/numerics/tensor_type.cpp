#include "numerics/tensor_type.h"

#include <algorithm>
#include <array>

#include "numerics/mx_tensor.h"
#include "numerics/packed.h"

namespace dllm {

// One line per format; each format is defined in its own file. Constant-initialised, so that the registry also works
// before main().
extern const Codec kF32Codec, kF16Codec, kBF16Codec;
extern const Codec kQ4_0Codec, kQ4_1Codec, kQ5_0Codec, kQ5_1Codec, kQ8_0Codec;
extern const Codec kQ2_KCodec, kQ3_KCodec, kQ4_KCodec, kQ5_KCodec, kQ6_KCodec;
extern const Codec kIQ1_SCodec, kIQ1_MCodec, kIQ2_XXSCodec, kIQ2_XSCodec, kIQ2_SCodec, kIQ3_XXSCodec, kIQ3_SCodec;
extern const Codec kIQ4_NLCodec, kIQ4_XSCodec;
extern const Codec kMXFP4Codec, kNVFP4Codec;

namespace {

constexpr std::array<const Codec*, 24> kCodecs = {
    &kF32Codec,     &kF16Codec,    &kQ4_0Codec,    &kQ4_1Codec,  &kQ5_0Codec,   &kQ5_1Codec,
    &kQ8_0Codec,    &kQ2_KCodec,   &kQ3_KCodec,    &kQ4_KCodec,  &kQ5_KCodec,   &kQ6_KCodec,
    &kIQ2_XXSCodec, &kIQ2_XSCodec, &kIQ3_XXSCodec, &kIQ1_SCodec, &kIQ4_NLCodec, &kIQ3_SCodec,
    &kIQ2_SCodec,   &kIQ4_XSCodec, &kIQ1_MCodec,   &kBF16Codec,  &kMXFP4Codec,  &kNVFP4Codec,
};

char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::span<const Codec* const> all_codecs() { return kCodecs; }

const Codec* find_codec(std::uint32_t ggml_type) {
  for (const Codec* candidate : kCodecs)
    if (static_cast<std::uint32_t>(candidate->type) == ggml_type) return candidate;
  for (const Codec* candidate : tile_codecs())
    if (static_cast<std::uint32_t>(candidate->type) == ggml_type) return candidate;
  if (ggml_type >= kMxTypeBase)
    for (const Codec* candidate : mx_codecs())
      if (static_cast<std::uint32_t>(candidate->type) == ggml_type) return candidate;
  return nullptr;
}

const Codec& codec(TensorType type) { return *find_codec(static_cast<std::uint32_t>(type)); }

std::optional<TensorType> tensor_type_from_name(std::string_view name) {
  for (const Codec* candidate : kCodecs)
    if (std::ranges::equal(candidate->name, name, {}, to_lower, to_lower)) return candidate->type;
  return mx_type_from_name(name);
}

}  // namespace dllm
