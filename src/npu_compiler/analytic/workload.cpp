#include "npu/analytic/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/try.h"
#include "model/shape.h"
#include "npu/config/named_file.h"
#include "npu/config/toml_table.h"

namespace dllm::npu {
namespace {

constexpr std::string_view kFolder = "models/";

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

const dllm::ModelShape* published_shape(const std::string& name) {
  const auto found = std::ranges::find(model_shapes(), name, &dllm::ModelShape::name);
  return found == model_shapes().end() ? nullptr : &*found;
}

}  // namespace

Expected<ModelShape> load_model_shape(const std::string& name_or_path) {
  std::vector<std::string> names = model_shape_names();
  if (std::ranges::find(names, name_or_path) == names.end())
    if (const dllm::ModelShape* const published = published_shape(name_or_path)) {
      ModelShape shape;
      DLLM_TRY(shape.desc, shape_desc(*published));
      shape.desc.name = name_or_path;
      DLLM_TRY(shape.architecture, find_architecture(shape.desc.architecture));
      return shape;
    }
  for (const dllm::ModelShape& one : model_shapes()) names.emplace_back(one.name);
  DLLM_TRY(const NamedText named, read_named(kFolder, "model shape", name_or_path, names));
  return parse_shape(named.text, named.file);
}

std::vector<std::string> model_shape_names() { return shipped_names(kFolder); }

bool is_model_shape(const std::string& name) {
  const std::vector<std::string> names = model_shape_names();
  return std::ranges::find(names, name) != names.end() || published_shape(name) != nullptr;
}

Expected<void> check(const Workload& w) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (w.batch < 1 || w.block < 1 || w.context < 1 || w.steps < 1 || w.batch > kMost || w.context > kMost ||
      w.steps > kMost || w.batch * w.context > kMost)
    return Error{ErrorCode::kUsage,
                 fmt::format("batch {}, block {}, context {}, steps {}", w.batch, w.block, w.context, w.steps),
                 "workload", "each at least 1; batch x context at most 16777216"};
  if (w.block > w.context)
    return Error{ErrorCode::kUsage, fmt::format("a block of {} in a context of {}", w.block, w.context), "workload",
                 "the context counts all positions, the block included"};
  if (w.suffix >= 0 && w.cache != CacheKind::kPrefix)
    return Error{ErrorCode::kUsage, fmt::format("a suffix of {} with cache {}", w.suffix, cache_name(w.cache)),
                 "workload", "only a prefix cache runs the positions after the block again"};
  if (refine_rows(w) > w.context)
    return Error{
        ErrorCode::kUsage,
        fmt::format("a block of {} and {} positions after it in a context of {}", w.block, w.suffix, w.context),
        "workload", ""};
  return {};
}

StepShape warm_shape(const Workload& w) { return {.rows = w.batch * w.context, .scored = w.batch * w.block}; }
StepShape refine_shape(const Workload& w) { return {.rows = w.batch * refine_rows(w), .scored = w.batch * w.block}; }

std::int64_t usual_suffix(std::int64_t block, std::int64_t context) {
  return std::max<std::int64_t>(0, (context / 2 - block) / 2);
}

std::int64_t refine_rows(const Workload& w) {
  switch (w.cache) {
    case CacheKind::kNone:
      return w.context;
    case CacheKind::kPrefix:
      return w.block + (w.suffix < 0 ? usual_suffix(w.block, w.context) : w.suffix);
    case CacheKind::kDual:
      break;
  }
  return w.block;
}

std::string_view cache_name(CacheKind kind) {
  constexpr std::string_view kNames[] = {"none", "prefix", "dual"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<CacheKind> cache_from_name(std::string_view name) {
  for (const CacheKind kind : {CacheKind::kNone, CacheKind::kPrefix, CacheKind::kDual})
    if (name == cache_name(kind)) return kind;
  return std::nullopt;
}

StepLoad step_load(const Workload& w) {
  return {.sequences = w.batch, .keys = w.context, .fused_head = w.fused_head, .choices = w.choices};
}

Work work(const Device& device, const OperatorCost& cost) {
  const double tiles = cost.matrix / device.array.tile_cycles;
  const double vectors = cost.lane_ops / static_cast<double>(device.array.vlen);
  const double instructions = 3 * tiles + 2 * vectors;
  return {.macs = static_cast<double>(cost.macs),
          .matrix_cycles = cost.matrix,
          .lane_ops = cost.lane_ops,
          .read_bytes = cost.read_bytes,
          .write_bytes = cost.write_bytes,
          .instructions = instructions,
          .matrix_bytes_written = cost.read_bytes};
}

Expected<BlockCost> evaluate_block(const CostModel& model, const Graph& warm, const Graph& refine,
                                   const Workload& workload, std::optional<double> scheduled, std::int64_t parts,
                                   std::span<const std::int32_t> alike) {
  DLLM_CHECK_OK(check(workload));
  BlockCost block;
  block.scheduled = scheduled;
  DLLM_TRY(block.warm, model.evaluate(warm, step_load(workload), alike));
  StepLoad refinement = step_load(workload);
  refinement.parts = parts;
  DLLM_TRY(block.refine, model.evaluate(refine, refinement, alike));
  const Device& device = model.device();
  block.warm_seconds = block.warm.seconds(device);
  block.refine_seconds = scheduled ? *scheduled / (device.clock.ghz * 1e9) : block.refine.seconds(device);
  block.warm_energy = step_energy(device, work(device, block.warm.total), block.warm_seconds);
  block.refine_energy = step_energy(device, work(device, block.refine.total), block.refine_seconds);
  const auto refinements = static_cast<double>(workload.steps - 1);
  block.seconds = block.warm_seconds + refinements * block.refine_seconds;
  block.joules = block.warm_energy.total() + refinements * block.refine_energy.total();
  block.serial_seconds = (block.warm.total.serial + refinements * block.refine.total.serial) / (device.clock.ghz * 1e9);
  const auto tokens = static_cast<double>(workload.batch * workload.block);
  block.tokens_per_second = tokens / block.seconds;
  block.tokens_per_joule = tokens / block.joules;
  return block;
}

}  // namespace dllm::npu
