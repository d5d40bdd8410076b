#include "npu_compiler/workload/model_shape.h"

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "format/toml_table.h"
#include "model/shape.h"
#include "npu_core/config/named_file.h"

namespace dllm::npu {
namespace {

/// What the architecture leaves open: sizes, and switches that differ between checkpoints.
Expected<void> parse_experts(TomlTable& table, ExpertsDesc& experts) {
  struct Size {
    std::string_view key;
    std::int64_t ExpertsDesc::* member;
    bool required;
  };
  static constexpr std::array<Size, 8> kSizes = {{{"count", &ExpertsDesc::count, true},
                                                  {"used", &ExpertsDesc::used, true},
                                                  {"width", &ExpertsDesc::width, true},
                                                  {"shared_width", &ExpertsDesc::shared_width, false},
                                                  {"leading_dense", &ExpertsDesc::leading_dense, false},
                                                  {"groups", &ExpertsDesc::groups, false},
                                                  {"groups_used", &ExpertsDesc::groups_used, false},
                                                  {"capacity", &ExpertsDesc::capacity, false}}};
  for (const Size& size : kSizes) {
    std::optional<std::int64_t> value;
    if (size.required) {
      DLLM_TRY(value, table.integer(size.key));
    } else {
      DLLM_TRY(value, table.optional_integer(size.key));
    }
    if (!value) continue;
    if (*value < (size.required ? 1 : 0) || *value > (1 << 20))
      return table.error(size.key, fmt::format("'{}' is {}", size.key, *value), "between 1 and 1048576");
    experts.*size.member = *value;
  }
  DLLM_TRY(const std::optional<bool> normalize, table.optional_boolean("normalize"));
  DLLM_TRY(const std::optional<double> scale, table.optional_number("scale"));
  experts.normalize = normalize.value_or(experts.normalize);
  if (scale) experts.scale = static_cast<float>(*scale);
  DLLM_CHECK_OK(table.finish());
  const bool groups_fit = experts.groups <= 1 || (experts.count % experts.groups == 0 && experts.groups_used > 0 &&
                                                  experts.groups_used <= experts.groups &&
                                                  experts.count / experts.groups * experts.groups_used >= experts.used);
  const bool pool_fits = experts.capacity == 0 || (experts.capacity >= experts.used && experts.groups <= 1);
  if (experts.used > experts.count || !groups_fit || !pool_fits)
    return table.error("used", fmt::format("{} of {} experts, {} of {} groups, a pool of {}", experts.used,
                                           experts.count, experts.groups_used, experts.groups, experts.capacity));
  return {};
}

Expected<ModelShape> parse_shape(std::string_view text, const std::string& file) {
  struct Dim {
    std::string_view key;
    std::int64_t ModelDesc::* member;
  };
  static constexpr std::array<Dim, 7> kDims = {{{"vocab", &ModelDesc::vocab},
                                                {"width", &ModelDesc::width},
                                                {"layers", &ModelDesc::layers},
                                                {"heads", &ModelDesc::heads},
                                                {"kv_heads", &ModelDesc::kv_heads},
                                                {"head_dim", &ModelDesc::head_dim},
                                                {"ffn_width", &ModelDesc::ffn_width}}};
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  ModelShape shape;
  DLLM_TRY(const std::string architecture, root.text("architecture"));
  const auto found = find_architecture(architecture);
  if (!found) return root.error("architecture", found.error().what, found.error().hint);
  shape.architecture = *found;
  shape.architecture->set_defaults(shape.desc);
  if (shape.architecture->experts) {
    DLLM_TRY(TomlTable table, root.table("experts"));
    DLLM_CHECK_OK(parse_experts(table, shape.desc.experts));
  }
  shape.desc.architecture = architecture;
  DLLM_TRY(shape.desc.name, root.text("name"));
  for (const Dim& dim : kDims) {
    DLLM_TRY(shape.desc.*dim.member, root.integer(dim.key));
    if (shape.desc.*dim.member < 1 || shape.desc.*dim.member > (1 << 24))
      return root.error(dim.key, fmt::format("'{}' is {}", dim.key, shape.desc.*dim.member), "between 1 and 16777216");
  }
  DLLM_TRY(const std::optional<bool> bias, root.optional_boolean("qkv_bias"));
  DLLM_TRY(const std::optional<bool> tied, root.optional_boolean("tied_embeddings"));
  shape.desc.qkv_bias = bias.value_or(shape.desc.qkv_bias);
  shape.desc.tied_embeddings = tied.value_or(false);
  DLLM_TRY(const std::optional<std::int64_t> rope_dims, root.optional_integer("rope_dims"));
  shape.desc.rope_dims = rope_dims.value_or(shape.desc.head_dim);
  if (shape.desc.rope_dims < 2 || shape.desc.rope_dims > shape.desc.head_dim || shape.desc.rope_dims % 2 != 0)
    return root.error("rope_dims",
                      fmt::format("{} of {} columns of a head are rotated", shape.desc.rope_dims, shape.desc.head_dim));
  DLLM_CHECK_OK(root.finish());
  if (shape.desc.heads % shape.desc.kv_heads != 0)
    return root.error("kv_heads",
                      fmt::format("{} heads cannot share {} KV heads", shape.desc.heads, shape.desc.kv_heads));
  if (shape.desc.layers > 1000) return root.error("layers", "more than 1000 layers");
  return shape;
}

}  // namespace

Expected<ModelShape> load_model_shape(const std::string& name_or_path) {
  if (const auto published = find_shape(name_or_path)) {
    ModelShape shape;
    DLLM_TRY(shape.desc, shape_desc(**published));
    shape.desc.name = name_or_path;
    DLLM_TRY(shape.architecture, find_architecture(shape.desc.architecture));
    return shape;
  }
  DLLM_TRY(const NamedText named, read_named({}, "", "model shape", name_or_path, model_shape_names()));
  return parse_shape(named.text, named.file);
}

std::vector<std::string> model_shape_names() {
  std::vector<std::string> names;
  for (const dllm::ModelShape& shape : model_shapes()) names.emplace_back(shape.name);
  return names;
}

bool is_model_shape(const std::string& name) { return find_shape(name).has_value(); }

}  // namespace dllm::npu
