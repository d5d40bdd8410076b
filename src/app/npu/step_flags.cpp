#include "app/npu/step_flags.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/try.h"
#include "npu_compiler/compiler/listing.h"
#include "npu_core/device/device.h"

namespace dllm::app {

void StepFlags::add(Flags& flags) {
  constexpr std::int64_t kMost = 1 << 20;
  flags.group("Model");
  model.add(flags);
  flags.add({.names = {"--layers"},
             .value = "N",
             .help = "only the first layers of the shape",
             .default_text = "all",
             .apply = into(request.layers, 1, kMost)});
  flags.group("Device");
  device.add(flags);
  flags.group("Step");
  add_number(flags, "--batch", "sequences", request.size.sequences, kMost);
  add_number(flags, "--rows", "positions of each sequence that run, the last of its context", request.size.rows, kMost);
  add_number(flags, "--context", "positions of each sequence, all visible", request.size.keys, kMost);
  flags.add({.names = {"--scored"},
             .value = "N",
             .help = "of those rows, the last N reach the LM head",
             .default_text = "all",
             .apply = into(request.size.scored, 0, kMost)});
  add_cache_flags(flags, request.cache, request.suffix);
  flags.add({.names = {"--reduced-head"},
             .help = "arg-max and confidence on chip: no logits in memory",
             .apply = into(request.reduced)});
  flags.add({.names = {"--temperature"},
             .value = "T",
             .help = "draw from softmax(logits / T) on chip; needs noise generators: --set array.noise_lanes=N",
             .default_text = "0: the arg-max",
             .apply = into(request.temperature, 0, 100),
             .needs = {"--reduced-head"}});
  add_mapping_flag(flags, request.search);
  routing.add(flags);
}

Expected<CompiledStep> StepFlags::compile(npu::VerbUse use) const {
  if (request.temperature > 0 && use.front() == "npu step") use.add("npu step --temperature");
  if (request.search && use.front() == "npu compile") use.add("npu compile --mapping search");
  DLLM_TRY(npu::ModelShape shape, model.load());
  DLLM_TRY(npu::Device loaded, device.load(use));
  npu::StepRequest asked = request;
  asked.choices = routing.choices;
  asked.mappings = npu_cache_folder();
  return npu::compile_step(std::move(shape), std::move(loaded), asked);
}

void StepFlags::describe(const CompiledStep& compiled, nlohmann::ordered_json& json) const {
  json["model"] = compiled.shape.desc.name;
  json["layers"] = compiled.shape.desc.layers;
  json["batch"] = compiled.size.sequences;
  json["rows"] = compiled.size.rows;
  json["context"] = compiled.size.keys;
  json["scored"] = compiled.size.scored;
  json["cache"] = npu::cache_name(request.cache);
  json["logits"] = request.reduced ? "reduced on chip" : compiled.device.numerics.logits;
  json["parts"] = compiled.step.row_parts.size();
  json["mapping"] = npu::mapping_json(compiled.layout);
  if (compiled.priced) json["mapping"]["priced_cycles"] = *compiled.priced;
  if (auto assumed = routing.describe(compiled.shape.desc); !assumed.is_null()) json["routing"] = std::move(assumed);
}

std::string StepFlags::text(const CompiledStep& compiled) const {
  std::string text;
  if (const std::size_t parts = compiled.step.row_parts.size(); parts > 1)
    text = fmt::format("in {} parts, as its rows do not fit at once: weights are read {} times\n", parts, parts);
  if (compiled.priced) text += fmt::format("searched mapping: {:.0f} cycles as priced\n", *compiled.priced);
  return text + routing.text(compiled.shape.desc);
}

}  // namespace dllm::app
