#include "npu_compiler/compiler/device_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "npu_compiler/compiler/mapper.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu {
namespace {

Expected<CompileOptions> head_options(const Device& device, const StepRequest& request) {
  CompileOptions options;
  options.choices = request.choices;
  if (!request.reduced) return options;
  options.head = HeadMode::kReduced;
  options.temperature = request.temperature;
  if (options.draws() && device.array.noise_lanes <= 0)
    return Error{ErrorCode::kUsage, fmt::format("{} has no noise generators", device.name), "--temperature",
                 "--set array.noise_lanes=N with the draws per cycle, for example 256"};
  return options;
}

Expected<MxFormat> logit_format(const Device& device) {
  const auto format = mx_format_from_name(device.numerics.logits);
  if (!format || format->packed())
    return Error{ErrorCode::kUnsupported,
                 fmt::format("numerics.logits = {} is not a format of the functional machine", device.numerics.logits),
                 "device " + device.name, "MX formats, bf16 and fp16 are; override it with --set"};
  return *format;
}

}  // namespace

Expected<CompiledGraph> compile_graph(const std::function<Graph(StepShape)>& graph, const Device& device,
                                      const StepSize& size, CompileOptions options, const NetworkRows& network,
                                      const Mapping* mapping, std::span<const RowPart> parts) {
  if (options.head == HeadMode::kLogits && !options.logits) {
    DLLM_TRY(options.logits, logit_format(device));
  }
  DLLM_TRY(const MachineConfig machine, machine_config(device));
  const Graph any = graph({1, 1});
  std::vector<bool> present;
  for (const WeightDecl& decl : any.weights) present.push_back(decl.required);
  DLLM_TRY(ModelLayout layout, make_layout(any, present, machine, size.keys, mapping));
  DLLM_TRY(const StepSpec spec, make_step(any, layout, size, network));
  DLLM_TRY(SplitStep step, compile_parts(graph, layout, spec, parts, options));
  return CompiledGraph{machine, std::move(layout), std::move(step)};
}

Expected<CompiledStep> compile_step(ModelShape shape, Device device, const StepRequest& request) {
  StepSize size = request.size;
  Workload block{.batch = size.sequences, .block = size.rows, .context = size.keys, .steps = 1};
  block.cache = request.cache;
  block.suffix = request.suffix;
  DLLM_CHECK_OK(check(block));
  size.scored = size.scored_rows();
  size.rows = refine_rows(block);
  if (request.layers > 0) shape.desc.layers = std::min(shape.desc.layers, request.layers);
  DLLM_TRY(const CompileOptions options, head_options(device, request));
  const auto start = std::chrono::steady_clock::now();
  const auto build = [&](StepShape rows) { return shape.architecture->build(shape.desc, rows); };
  std::optional<FoundMapping> found;
  if (request.search) {
    if (request.reduced)
      return Error{ErrorCode::kUnsupported, "a head that is reduced on chip has no priced schedule", "--mapping search",
                   "leave out --reduced-head, or --mapping rule"};
    DLLM_TRY(found, cached_mapping(device, shape, {.steps = {{size}}, .choices = request.choices}, request.mappings));
  }
  DLLM_TRY(CompiledGraph compiled,
           compile_graph(build, device, size, options, request.network, found ? &found->mapping : nullptr,
                         found ? std::span<const RowPart>(found->parts.front()) : std::span<const RowPart>()));
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  return CompiledStep{std::move(shape),
                      std::move(device),
                      compiled.machine,
                      std::move(compiled.layout),
                      std::move(compiled.step),
                      size,
                      time.count(),
                      found ? std::optional(found->cycles) : std::nullopt};
}

}  // namespace dllm::npu
