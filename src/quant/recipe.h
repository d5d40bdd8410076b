#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "model/source.h"
#include "numerics/tensor_type.h"

namespace dllm {

/// GGML's version of its block formats, which files name in `general.quantization_version`.
inline constexpr std::uint32_t kQuantizationVersion = 2;

/// Names the microscaling format of a file's matrices: "mxint4:32:ocp".
inline constexpr std::string_view kMxFormatKey = "dllm.mx_format";

/// How a recipe deviates from giving every matrix its base type. A fused attn_qkv is treated as attn_v.
enum class Mix {
  kNone,    ///< not at all
  kTable,   ///< the embedding is BF16, also if it is the head: NPUs look rows up in BF16, and multiply by the others
  kHead,    ///< the head gets Q6_K, unless the base is Q8_0
  kSmall,   ///< and the first layers' attn_v and ffn_down get Q5_K (llama.cpp's "_S" of Q4_K)
  kMedium,  ///< and attn_v and ffn_down of about half of the layers get Q6_K ("_M")
  kTwo,     ///< Q2_K: attn_v, attn_output and ffn_down get Q3_K, attn_v that four heads share Q4_K
  kThreeSmall,   ///< Q3_K_S: the head alone
  kThreeMedium,  ///< Q3_K_M: the three of kTwo get Q4_K, attn_v and ffn_down of the first layers Q5_K
  kThreeLarge,   ///< Q3_K_L: the three of kTwo get Q5_K
  kUneven,       ///< IQ4: ffn_down of the first layers (not with importance) and attn_v that four heads share get Q5_K
};

/// A named way to give every tensor of a model its type. Names, file type numbers and the type of each tensor are those
/// of llama-quantize, with three exceptions: "Q4_K" and "Q5_K" are the types themselves here, not short for the mixes;
/// "MXFP4" is for every matrix, while llama.cpp's file type of that number is for experts only; and its rules for
/// models of exactly eight experts (Mixtral), of which no diffusion model is one, are left out. Microscaling formats
/// have no number of llama.cpp's: theirs is the tensor type's.
struct Recipe {
  std::string_view name;
  std::uint32_t file_type;  ///< GGUF `general.file_type`
  TensorType base;
  Mix mix;
  std::string_view summary;  ///< for help texts
};

/// In the order of help texts. Of the microscaling formats only those with blocks of 32 and OCP's scales are listed.
const std::vector<Recipe>& recipes();

/// By name, case-insensitively; any microscaling format by its own name ("mxint4:16:plena"). Errors: kUsage, listing
/// the names; kUnsupported, a mix of llama.cpp's that is only read ("IQ3_M").
Expected<const Recipe*> find_recipe(std::string_view name);

/// What `general.file_type` stands for, also of mixes that are only read; empty: nothing known.
std::string_view file_type_name(std::uint32_t number);

/// kUnsupported: files of this type or mix run, but are not written.
Error not_written(std::string_view type, std::string where);

/// User overrides of the recipe.
struct RecipeOptions {
  bool pure = false;                                 ///< every matrix gets the recipe's base type
  bool importance = false;                           ///< the mix is that of llama-quantize with an importance matrix
  std::optional<TensorType> output_type{};           ///< of the head: output.weight, or a tied token_embd.weight
  std::optional<TensorType> token_embedding_type{};  ///< of token_embd.weight, tied or not
};

struct TypeChoice {
  TensorType type = TensorType::kF32;
  /// Set if the rows do not fit the blocks of the wanted type.
  std::optional<TensorType> instead_of{};
};

/// One choice per tensor of the source, in its order. Vectors, norms and expert gates are F32 in every recipe. Rows
/// that a type's blocks do not divide fall back as llama-quantize does: Q2_K and Q3_K to Q4_0, IQ4_XS to IQ4_NL, Q4_K
/// to Q5_0, Q5_K to Q5_1, Q6_K to Q8_0, and what does not fit then, to F16. Errors: a mix over a source without
/// `{arch}.block_count`.
Expected<std::vector<TypeChoice>> choose_types(const Recipe& recipe, const ModelSource& source,
                                               const RecipeOptions& options);

}  // namespace dllm
