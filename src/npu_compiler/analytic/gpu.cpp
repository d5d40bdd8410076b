#include "npu_compiler/analytic/gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "format/toml_table.h"
#include "npu_compiler/analytic/products.h"
#include "npu_compiler/workload/profiles.h"
#include "npu_core/config/named_file.h"

namespace dllm::npu {
namespace {

constexpr std::string_view kGpuFolder = "gpus/";
constexpr double kBf16Bytes = 2;  ///< BF16

Expected<GpuProfile> parse_gpu(std::string_view text, const std::string& file) {
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  GpuProfile gpu;
  DLLM_TRY(gpu.name, root.text("name"));
  DLLM_TRY(gpu.summary, root.text("summary"));
  DLLM_TRY(gpu.source, root.text("source"));
  const std::pair<const char*, double*> needed[] = {
      {"tflops", &gpu.tflops}, {"gbps", &gpu.gbps}, {"watts", &gpu.watts}, {"memory_gb", &gpu.memory_gb}};
  for (const auto& [key, target] : needed) {
    DLLM_TRY(*target, root.number(key));
    if (!(*target > 0)) return root.error(key, fmt::format("'{}' is {}", key, *target), "a positive number");
  }
  const std::pair<const char*, double*> optional[] = {{"compute_efficiency", &gpu.compute_efficiency},
                                                      {"memory_efficiency", &gpu.memory_efficiency}};
  for (const auto& [key, target] : optional) {
    DLLM_TRY(const std::optional<double> value, root.optional_number(key));
    *target = value.value_or(1);
    if (!(*target > 0 && *target <= 1))
      return root.error(key, fmt::format("'{}' is {}", key, *target), "above 0, up to 1");
  }
  DLLM_CHECK_OK(root.finish());
  return gpu;
}

/// Operations and bytes of one operator.
struct Traffic {
  double macs = 0, bytes = 0;
};

Traffic traffic(const Graph& graph, const Op& any, const Workload& w) {
  const auto elements = [&graph](ValueId id) {
    return static_cast<double>(graph.value(id).rows * graph.value(id).width);
  };
  const Products products = products_of(graph, any, {.sequences = w.batch, .keys = w.context, .choices = w.choices});
  Traffic t{.macs = static_cast<double>(products.macs), .bytes = kBf16Bytes * (products.weights + products.cached)};
  for (const auto& ids : {inputs(any), outputs(any)})
    for (const ValueId id : ids) t.bytes += kBf16Bytes * elements(id);
  if (const auto* h = std::get_if<op::ScoreHead>(&any))
    t.bytes += 2 * kBf16Bytes * static_cast<double>(graph.value(h->x).rows * graph.weight(h->weight).shape.back());
  return t;
}

Expected<double> step_seconds(const GpuProfile& gpu, const Graph& graph, const Workload& w) {
  double seconds = 0;
  for (const Op& any : graph.ops) {
    if (const std::string_view feature = beyond_plain(any); !feature.empty())
      return Error{ErrorCode::kUnsupported, fmt::format("the roofline of GPUs knows no cost of {}", feature), "", ""};
    const Traffic t = traffic(graph, any, w);
    seconds += std::max(2 * t.macs / (gpu.tflops * 1e12 * gpu.compute_efficiency),
                        t.bytes / (gpu.gbps * 1e9 * gpu.memory_efficiency));
  }
  return seconds;
}

}  // namespace

Expected<GpuProfile> load_gpu(const std::string& name_or_path) {
  DLLM_TRY(const NamedText named, read_named(compiler_profiles(), kGpuFolder, "GPU", name_or_path, gpu_names()));
  return parse_gpu(named.text, named.file);
}

std::vector<std::string> gpu_names() { return shipped_names(compiler_profiles(), kGpuFolder); }

Expected<GpuCost> evaluate_gpu(const GpuProfile& gpu, const Graph& warm, const Graph& refine, const Workload& w) {
  DLLM_CHECK_OK(check(w));
  double bytes = 0;
  for (const WeightDecl& decl : refine.weights)
    if (decl.required) bytes += kBf16Bytes * static_cast<double>(element_count(decl.shape));
  for (const Op& any : refine.ops)
    bytes += kBf16Bytes * products_of(refine, any, {.sequences = w.batch, .keys = w.context}).cached;
  if (bytes > gpu.memory_gb * 1e9)
    return Error{ErrorCode::kUsage,
                 fmt::format("weights and caches take {:.1f} GB, {} has {:.1f}", bytes * 1e-9, gpu.name, gpu.memory_gb),
                 "gpu roofline", "a smaller batch or context, or another GPU"};
  GpuCost cost;
  DLLM_TRY(cost.warm_seconds, step_seconds(gpu, warm, w));
  DLLM_TRY(cost.refine_seconds, step_seconds(gpu, refine, w));
  cost.seconds = cost.warm_seconds + static_cast<double>(w.steps - 1) * cost.refine_seconds;
  cost.joules = cost.seconds * gpu.watts;
  const auto tokens = static_cast<double>(w.batch * w.block);
  cost.tokens_per_second = tokens / cost.seconds;
  cost.tokens_per_joule = tokens / cost.joules;
  return cost;
}

}  // namespace dllm::npu
