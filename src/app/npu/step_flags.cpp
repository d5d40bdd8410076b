#include "app/npu/step_flags.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/try.h"
#include "npu/machine/device_machine.h"

namespace dllm::app {

void StepFlags::add(Flags& flags) {
  constexpr std::int64_t kMost = 1 << 20;
  flags.group("Model");
  model.add(flags);
  flags.add({.names = {"--layers"},
             .value = "N",
             .help = "only the first layers of the shape",
             .default_text = "all",
             .apply = into(layers, 1, kMost)});
  flags.group("Device");
  device.add(flags);
  flags.group("Step");
  add_number(flags, "--batch", "sequences", work.batch, kMost);
  add_number(flags, "--rows", "positions of each sequence that run, the last of its context", work.rows, kMost);
  add_number(flags, "--context", "positions of each sequence, all visible", work.context, kMost);
  flags.add({.names = {"--scored"},
             .value = "N",
             .help = "of those rows, the last N reach the LM head",
             .default_text = "all",
             .apply = into(work.scored, 0, kMost)});
  add_cache_flags(flags, cache, suffix);
  flags.add({.names = {"--reduced-head"},
             .help = "arg-max and confidence on chip: no logits in memory",
             .apply = into(reduced)});
  routing.add(flags);
}

Expected<CompiledStep> StepFlags::compile() {
  npu::CompileOptions options;
  options.choices = routing.choices;
  DLLM_TRY(npu::ModelShape shape, model.load());
  npu::Workload block{.batch = work.batch, .block = work.rows, .context = work.context, .steps = 1};
  block.cache = cache;
  block.suffix = suffix;
  DLLM_CHECK_OK(npu::check(block));
  if (work.scored < 0) work.scored = work.rows;
  work.rows = npu::refine_rows(block);
  if (layers > 0) shape.desc.layers = std::min(shape.desc.layers, layers);
  DLLM_TRY(npu::Device loaded, device.load());
  DLLM_TRY(npu::MachineConfig machine, npu::machine_config(loaded));
  if (reduced) {
    options.head = npu::HeadMode::kReduced;
  } else {
    const auto format = mx_format_from_name(loaded.numerics.logits);
    if (!format)
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("numerics.logits = {} is not a format of the functional machine", loaded.numerics.logits),
          "device " + loaded.name, "MX formats and bf16 are; override it with --set"};
    options.logits = *format;
  }
  const Graph any = shape.architecture->build(shape.desc, {1, 1});
  std::vector<bool> present;
  for (const WeightDecl& decl : any.weights) present.push_back(decl.required);
  const auto start = std::chrono::steady_clock::now();
  DLLM_TRY(npu::ModelLayout layout, npu::make_layout(any, present, machine, work.context));
  DLLM_TRY(npu::StepSpec spec, npu::make_step(any, layout, work));
  const auto build = [&](StepShape rows) { return shape.architecture->build(shape.desc, rows); };
  DLLM_TRY(npu::SplitStep step, npu::compile_split(build, layout, spec, options));
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  return CompiledStep{std::move(shape), std::move(loaded), machine, std::move(layout), std::move(step), time.count()};
}

void StepFlags::describe(const CompiledStep& compiled, nlohmann::ordered_json& json) const {
  json["model"] = compiled.shape.desc.name;
  json["layers"] = compiled.shape.desc.layers;
  json["batch"] = work.batch;
  json["rows"] = work.rows;
  json["context"] = work.context;
  json["scored"] = work.scored < 0 ? work.rows : work.scored;
  json["cache"] = npu::cache_name(cache);
  json["logits"] = reduced ? "reduced on chip" : compiled.device.numerics.logits;
  json["parts"] = compiled.step.parts.size();
  if (auto assumed = routing.describe(compiled.shape.desc); !assumed.is_null()) json["routing"] = std::move(assumed);
}

std::string StepFlags::text(const CompiledStep& compiled) const {
  std::string text;
  if (const std::size_t parts = compiled.step.parts.size(); parts > 1)
    text = fmt::format("in {} parts, as its rows do not fit at once: weights are read {} times\n", parts, parts);
  return text + routing.text(compiled.shape.desc);
}

}  // namespace dllm::app
