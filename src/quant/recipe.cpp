#include "quant/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "base/try.h"
#include "numerics/mx_tensor.h"

namespace dllm {
namespace {

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

/// N of "blk.N.…"; -1 for tensors outside the layers.
std::int64_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  std::int64_t layer = -1;
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

/// Q, K and V in one matrix count as V, the part that matters most.
bool is_value_projection(std::string_view name) {
  return name.ends_with(".attn_v.weight") || name.ends_with(".attn_qkv.weight");
}

bool is_output_projection(std::string_view name) { return name.ends_with(".attn_output.weight"); }

bool is_down_projection(std::string_view name) {
  return layer_of(name) >= 0 && name.find(".ffn_down") != std::string_view::npos;
}

/// Only matrices have a choice of types. Norms can be matrices (one row per head), and the gate that selects experts is
/// so small and so important that it always stays F32.
bool is_quantizable(const SourceTensor& tensor) {
  return tensor.shape.size() > 1 && tensor.name.ends_with("weight") && !tensor.name.ends_with("_norm.weight") &&
         !tensor.name.ends_with("ffn_gate_inp.weight");
}

/// llama.cpp's rule for which layers get the better type: the first and last eighth, and every third in between.
bool deserves_more_bits(std::int64_t layer, std::int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// What a mix needs to know about the model.
struct ModelFacts {
  std::int64_t layers = 0;
  std::int64_t value_projections = 0;
  bool tied = true;
  std::int64_t heads_per_value = 1;
  /// Llama 70B: eight heads share one small attn_v, so a better type for it costs almost nothing.
  bool small_values = false;
};

Expected<std::int64_t> model_integer(const Metadata& metadata, std::string_view arch, std::string_view tail,
                                     std::optional<std::int64_t> fallback = std::nullopt) {
  const std::string key = fmt::format("{}.{}", arch, tail);
  DLLM_TRY(const auto value, metadata.integer(key));
  if (value) return *value;
  if (fallback) return *fallback;
  return Error{ErrorCode::kInvalidFile, "the key is missing, and a mix of types depends on it", key,
               "a type such as Q8_0 or Q4_0 does without"};
}

Expected<ModelFacts> read_facts(const ModelSource& source) {
  ModelFacts facts;
  DLLM_TRY(const auto arch, source.metadata.string("general.architecture"));
  if (!arch) return Error{ErrorCode::kInvalidFile, "the key is missing", "general.architecture", ""};
  DLLM_TRY(facts.layers, model_integer(source.metadata, *arch, "block_count"));
  DLLM_TRY(const std::int64_t heads, model_integer(source.metadata, *arch, "attention.head_count", 0));
  // If there is one value per layer, the model is not Llama 70B.
  const MetaValue* const listed = source.metadata.find(fmt::format("{}.attention.head_count_kv", *arch));
  std::int64_t kv_heads = heads;
  if (listed == nullptr || listed->type != MetaType::kArray) {
    DLLM_TRY(kv_heads, model_integer(source.metadata, *arch, "attention.head_count_kv", heads));
  }
  facts.heads_per_value = kv_heads > 0 ? heads / kv_heads : 1;
  facts.small_values = facts.layers == 80 && heads != kv_heads;
  facts.value_projections =
      std::ranges::count_if(source.tensors, [](const SourceTensor& t) { return is_value_projection(t.name); });
  return facts;
}

TensorType head_type(const Recipe& recipe) {
  return recipe.base == TensorType::kQ8_0 ? TensorType::kQ8_0 : TensorType::kQ6_K;
}

TensorType mixed_value_type(const Recipe& recipe, std::int64_t layer, const ModelFacts& facts) {
  using enum TensorType;
  const bool shared = facts.heads_per_value >= 4;
  switch (recipe.mix) {
    case Mix::kMedium:
      return deserves_more_bits(layer, facts.value_projections) ? kQ6_K : recipe.base;
    case Mix::kSmall:
      return layer < 4 ? kQ5_K : recipe.base;
    case Mix::kTwo:
      return shared ? kQ4_K : kQ3_K;
    case Mix::kThreeMedium:
      return layer < 2 ? kQ5_K : kQ4_K;
    case Mix::kThreeLarge:
      return kQ5_K;
    case Mix::kUneven:
      return shared ? kQ5_K : recipe.base;
    default:
      return recipe.base;
  }
}

TensorType value_type(const Recipe& recipe, std::int64_t layer, const ModelFacts& facts) {
  const TensorType type = mixed_value_type(recipe, layer, facts);
  const bool raised = facts.small_values && (type == TensorType::kQ3_K || type == TensorType::kQ4_K);
  return raised ? TensorType::kQ5_K : type;
}

/// With importance Q4_0 and Q5_0 get minima in the first layers, as in llama-quantize.
bool raises_down(const Recipe& recipe, const RecipeOptions& options) {
  return options.importance && (recipe.base == TensorType::kQ4_0 || recipe.base == TensorType::kQ5_0);
}

TensorType down_type(const Recipe& recipe, const RecipeOptions& options, std::int64_t layer, const ModelFacts& facts) {
  using enum TensorType;
  if (raises_down(recipe, options) && layer < facts.layers / 8) return recipe.base == kQ4_0 ? kQ4_1 : kQ5_1;
  switch (recipe.mix) {
    case Mix::kMedium:
      return deserves_more_bits(layer, facts.layers) ? kQ6_K : recipe.base;
    case Mix::kSmall:
    case Mix::kUneven:
      return layer < facts.layers / 8 && !(recipe.mix == Mix::kUneven && options.importance) ? kQ5_K : recipe.base;
    case Mix::kTwo:
      return kQ3_K;
    case Mix::kThreeMedium:
      return layer < facts.layers / 16 ? kQ5_K : kQ4_K;
    case Mix::kThreeLarge:
      return kQ5_K;
    default:
      return recipe.base;
  }
}

TensorType output_projection_type(const Recipe& recipe) {
  switch (recipe.mix) {
    case Mix::kTwo:
      return TensorType::kQ3_K;
    case Mix::kThreeMedium:
      return TensorType::kQ4_K;
    case Mix::kThreeLarge:
      return TensorType::kQ5_K;
    default:
      return recipe.base;
  }
}

/// Whether a mix depends on the number of layers and heads.
bool depends_on_model(const Recipe& recipe, const RecipeOptions& options) {
  const bool fixed = recipe.mix == Mix::kNone || recipe.mix == Mix::kTable || recipe.mix == Mix::kHead;
  return !options.pure && (!fixed || raises_down(recipe, options));
}

TensorType wanted_type(const Recipe& recipe, const RecipeOptions& options, const ModelFacts& facts,
                       const std::string& name) {
  const bool embedding = name == "token_embd.weight";
  const bool head = name == "output.weight" || (embedding && facts.tied);
  if (embedding && options.token_embedding_type) return *options.token_embedding_type;
  if (head && options.output_type) return *options.output_type;
  if (options.pure || recipe.mix == Mix::kNone) return recipe.base;
  if (recipe.mix == Mix::kTable) return embedding ? TensorType::kBF16 : recipe.base;
  if (head) return head_type(recipe);
  if (is_value_projection(name)) return value_type(recipe, layer_of(name), facts);
  if (is_output_projection(name)) return output_projection_type(recipe);
  if (is_down_projection(name)) return down_type(recipe, options, layer_of(name), facts);
  return recipe.base;
}

TypeChoice fit(TensorType wanted, std::int64_t row) {
  const auto fits = [row](TensorType type) { return row % codec(type).block_elems == 0; };
  if (fits(wanted)) return {wanted, std::nullopt};
  TensorType smaller = wanted;
  if (wanted == TensorType::kQ2_K || wanted == TensorType::kQ3_K) smaller = TensorType::kQ4_0;
  if (wanted == TensorType::kIQ4_XS) smaller = TensorType::kIQ4_NL;
  if (wanted == TensorType::kQ4_K) smaller = TensorType::kQ5_0;
  if (wanted == TensorType::kQ5_K) smaller = TensorType::kQ5_1;
  if (wanted == TensorType::kQ6_K) smaller = TensorType::kQ8_0;
  return {fits(smaller) ? smaller : TensorType::kF16, wanted};
}

Recipe mx_recipe(std::string_view name, const MxFormat& format, std::string_view summary) {
  const TensorType type = mx_tensor_type(format);
  return {name, static_cast<std::uint32_t>(type), type, Mix::kTable, summary};
}

/// A recipe for every microscaling type, under its own name.
const std::vector<Recipe>& every_mx_recipe() {
  static const std::vector<Recipe> all = [] {
    std::vector<Recipe> result;
    for (const Codec* codec : mx_codecs())
      result.push_back(mx_recipe(codec->name, *mx_format_of(codec->type), "microscaling"));
    return result;
  }();
  return all;
}

/// llama.cpp's mixes around types without an encoder here, and kUnbuiltMix, whose types have encoders.
struct ReadMix {
  std::string_view name;
  std::uint32_t file_type;
};
constexpr ReadMix kReadMixes[] = {{"IQ2_XXS", 19}, {"IQ2_XS", 20}, {"Q2_K_S", 21}, {"IQ3_XS", 22},
                                  {"IQ3_XXS", 23}, {"IQ1_S", 24},  {"IQ3_S", 26},  {"IQ3_M", 27},
                                  {"IQ2_S", 28},   {"IQ2_M", 29},  {"IQ1_M", 31}};
constexpr std::string_view kUnbuiltMix = "Q2_K_S";

}  // namespace

const std::vector<Recipe>& recipes() {
  using enum TensorType;
  const auto mx = [](MxElement element) { return MxFormat{element, MxRule::kOcp, 32}; };
  static const std::vector<Recipe> all = {
      {"F32", 0, kF32, Mix::kNone, "32-bit floats"},
      {"F16", 1, kF16, Mix::kNone, "16-bit floats, 11 bits of precision, range 65504"},
      {"BF16", 32, kBF16, Mix::kNone, "16-bit floats, 8 bits of precision, the range of F32"},
      {"Q8_0", 7, kQ8_0, Mix::kHead, "8.5 bits per weight, practically lossless"},
      {"Q6_K", 18, kQ6_K, Mix::kHead, "6.6 bits per weight"},
      {"Q5_K_M", 17, kQ5_K, Mix::kMedium, "Q5_K, Q6_K for half of attn_v and ffn_down"},
      {"Q5_K_S", 16, kQ5_K, Mix::kHead, "Q5_K, Q6_K for the head"},
      {"Q5_K", 16, kQ5_K, Mix::kNone, "5.5 bits per weight, every matrix"},
      {"Q5_1", 9, kQ5_1, Mix::kHead, "6 bits per weight, blocks of 32"},
      {"Q5_0", 8, kQ5_0, Mix::kHead, "5.5 bits per weight, blocks of 32"},
      {"Q4_K_M", 15, kQ4_K, Mix::kMedium, "Q4_K, Q6_K for half of attn_v and ffn_down: the usual choice"},
      {"Q4_K_S", 14, kQ4_K, Mix::kSmall, "Q4_K, Q5_K for attn_v and ffn_down of the first layers"},
      {"Q4_K", 14, kQ4_K, Mix::kNone, "4.5 bits per weight, every matrix"},
      {"Q4_1", 3, kQ4_1, Mix::kHead, "5 bits per weight, blocks of 32"},
      {"Q4_0", 2, kQ4_0, Mix::kHead, "4.5 bits per weight, blocks of 32"},
      {"IQ4_NL", 25, kIQ4_NL, Mix::kUneven, "4.5 bits per weight, uneven values, blocks of 32"},
      {"IQ4_XS", 30, kIQ4_XS, Mix::kUneven, "4.25 bits per weight, uneven values"},
      {"MXFP4", 38, kMXFP4, Mix::kHead, "4.25 bits per weight, E2M1 in blocks of 32 (OCP Microscaling)"},
      {"Q3_K_L", 13, kQ3_K, Mix::kThreeLarge, "Q3_K, Q5_K for attn_v, attn_output and ffn_down"},
      {"Q3_K_M", 12, kQ3_K, Mix::kThreeMedium, "Q3_K, Q4_K for attn_v, attn_output and ffn_down"},
      {"Q3_K_S", 11, kQ3_K, Mix::kThreeSmall, "Q3_K, Q6_K for the head"},
      {"Q3_K", 11, kQ3_K, Mix::kNone, "3.4 bits per weight, every matrix"},
      {"Q2_K", 10, kQ2_K, Mix::kTwo, "2.6 bits per weight, Q3_K for attn_v, attn_output and ffn_down"},
      mx_recipe("MXINT4", mx(MxElement::kInt4), "4.25 bits per weight, microscaling for NPUs, slow on CPUs"),
      mx_recipe("MXINT8", mx(MxElement::kInt8), "8.25 bits per weight, microscaling for NPUs, slow on CPUs"),
      mx_recipe("MXFP8", mx(MxElement::kE4M3), "8.25 bits per weight, E4M3, microscaling for NPUs"),
      mx_recipe("MXFP4_E2M1", mx(MxElement::kE2M1), "4.25 bits per weight, E2M1, ties to even, microscaling for NPUs"),
  };
  return all;
}

Expected<const Recipe*> find_recipe(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : recipes()) {
    if (same_name(recipe.name, name)) return &recipe;
    names.push_back(recipe.name);
  }
  if (same_name(kUnbuiltMix, name))
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} is read, not written: this build does not have this mix of Q2_K and Q4_K", kUnbuiltMix), "",
        "take Q2_K, the nearest mix, or the file that llama-quantize writes"};
  for (const ReadMix& mix : kReadMixes)
    if (same_name(mix.name, name)) return not_written(mix.name, "");
  if (const auto type = mx_type_from_name(name)) return &*std::ranges::find(every_mx_recipe(), *type, &Recipe::base);
  return Error{ErrorCode::kUsage, fmt::format("unknown type '{}'", name), "",
               fmt::format("known: {}, and ELEMENT:BLOCK:RULE as mxint4:16:plena", fmt::join(names, ", "))};
}

std::string_view file_type_name(std::uint32_t number) {
  for (const Recipe& recipe : recipes())
    if (recipe.file_type == number) return recipe.name;
  for (const ReadMix& mix : kReadMixes)
    if (mix.file_type == number) return mix.name;
  return {};
}

Error not_written(std::string_view type, std::string where) {
  return {
      ErrorCode::kUnsupported,
      fmt::format("{} is read, not written: this build has no encoder that searches the type's lists of groups", type),
      std::move(where), "take Q2_K, Q3_K_M or IQ4_XS, or the file that llama-quantize writes"};
}

Expected<std::vector<TypeChoice>> choose_types(const Recipe& recipe, const ModelSource& source,
                                               const RecipeOptions& options) {
  ModelFacts facts;
  if (depends_on_model(recipe, options)) {
    DLLM_TRY(facts, read_facts(source));
  }
  facts.tied = source.find("output.weight") == nullptr;
  std::vector<TypeChoice> choices;
  for (const SourceTensor& tensor : source.tensors)
    choices.push_back(is_quantizable(tensor)
                          ? fit(wanted_type(recipe, options, facts, tensor.name), tensor.shape.front())
                          : TypeChoice{});
  return choices;
}

}  // namespace dllm
