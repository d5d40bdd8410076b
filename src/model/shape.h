#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "model/model_desc.h"
#include "model/source.h"

namespace dllm {

/// A token whose id a model's loop needs.
struct ShapeToken {
  std::string_view role;  ///< as in `tokenizer.ggml.{role}_token_id`: bos, eos, eot, padding, mask
  std::int64_t id = 0;
  std::string_view text;  ///< an id may have several roles, then with the same text
};

/// The dimensions of a published model, without its weights. One entry of kShapes (shape_table.cpp) each.
struct ModelShape {
  std::string_view name;     ///< "llada-8b"
  std::string_view summary;  ///< for listings
  /// The architecture's own config.json, reduced to what its importer reads (Architecture::metadata_from_hf), so that
  /// it can be compared with the published one line by line, and a new architecture needs no new field here.
  std::string_view config;
  std::string_view pre;  ///< preset of the pre-tokenizer, `tokenizer.ggml.pre`
  std::vector<ShapeToken> tokens;
  std::string_view alias = {};  ///< another name of it
};

/// Every shape, in listing order. Each architecture of the registry has at least one.
const std::vector<ModelShape>& model_shapes();

/// By name or alias. Error: kUsage, listing the names.
Expected<const ModelShape*> find_shape(std::string_view name);

/// Changes to the published shape, for measurements that need only a part of it.
struct ShapeOverrides {
  std::optional<std::int64_t> layers;
  std::optional<std::int64_t> vocab;    ///< special tokens outside it move to its end
  std::optional<std::int64_t> context;  ///< `{arch}.context_length`
};

/// The shape as a description. Errors: kInvalidFile, as shape_source().
Expected<ModelDesc> shape_desc(const ModelShape& shape);

/// The shape as a model: complete metadata with a tokenizer (bytes, special tokens, and made-up words for the rest),
/// and every tensor that the architecture's graph requires, in order, WITHOUT data. Errors: kUsage (an override that
/// the model cannot have), kInvalidFile (an entry of the table that its architecture refuses).
Expected<ModelSource> shape_source(const ModelShape& shape, const ShapeOverrides& overrides = {});

}  // namespace dllm
