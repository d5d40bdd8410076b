#include "engine/method.h"

#include "base/try.h"
#include "decode/loop/canvas_methods.h"
#include "decode/registry.h"
#include "engine/logit_bias.h"
#include "engine/resolve.h"

namespace dllm {

std::string latency_name(const ResolvedOptions& resolved) {
  for (const auto& [method, key] : {std::pair(&resolved.window, "latency"), std::pair(&resolved.mode, "draft_latency")})
    if (const auto found = method->options.find(key); found != method->options.end())
      return std::get<std::string>(found->second);
  return "";
}

Expected<Method> make_method(const ResolvedOptions& resolved, const ModelDesc& desc, const LatencyTable* latency) {
  const MethodContext context = method_context(resolved, desc, latency);
  Method method;
  DLLM_TRY(method.window, make_window(resolved.window, context));
  DLLM_TRY(method.cache, make_cache_policy(resolved.cache, context));
  DLLM_TRY(method.decoder, make_decoder(resolved.decoder, context));
  return method;
}

std::optional<SecondPathOptions> second_path_of(const ResolvedOptions& resolved, const ModelDesc& desc) {
  if (desc.canvas.length > 0) return std::nullopt;
  return traits_of(decoders(), resolved.decoder).second_path;
}

Expected<DenoiseOptions> denoise_options(const ResolvedOptions& resolved, const ModelDesc& desc,
                                         const LatencyTable* latency) {
  const MethodContext context = method_context(resolved, desc, latency);
  DLLM_TRY(const auto suffix, make_registered(suffixes(), resolved.suffix, context));
  DLLM_TRY(const auto smooth, make_registered(smoothings(), resolved.smoothing, context));
  DenoiseOptions options;
  options.exact_length = resolved.exact_length;
  options.stop_ids = desc.stop_ids;
  options.sampling = resolved;
  options.penalties = {
      resolved.repetition_penalty, resolved.presence_penalty, resolved.frequency_penalty, {}, desc.stop_ids};
  DLLM_TRY(options.penalties.biased, parse_logit_bias(resolved.logit_bias, desc.vocab));
  options.cfg_scale = static_cast<float>(resolved.cfg_scale);
  options.rng = {resolved.seed, 0};
  options.suppress_eos = resolved.suppress_eos;
  options.defer_eos = resolved.defer_eos;
  options.compat = resolved.compat;
  options.latency = latency;
  options.suffix = *suffix;
  options.smooth = *smooth;
  return options;
}

Expected<ModeLoopOptions> mode_options(const ResolvedOptions& resolved, const ModelDesc& desc,
                                       const LatencyTable* latency) {
  DLLM_TRY(const auto mode, make_registered(modes(), resolved.mode, method_context(resolved, desc, latency)));
  ModeLoopOptions options;
  options.mode = *mode;
  options.block_length = resolved.block_length;
  options.exact_length = resolved.exact_length;
  options.stop_ids = desc.stop_ids;
  options.sampling = resolved;
  DLLM_TRY(options.biased, parse_logit_bias(resolved.logit_bias, desc.vocab));
  options.rng = {resolved.seed, 0};
  options.suppress_eos = resolved.suppress_eos;
  options.latency = latency;
  return options;
}

CanvasDesc canvas_of(const ResolvedOptions& resolved, const ModelDesc& desc) {
  CanvasDesc canvas = desc.canvas;
  const bool grows = resolved.window.name == canvas_windows().back().info.name;
  (grows ? canvas.first : canvas.length) = resolved.block_length;
  return canvas;
}

Expected<RefineOptions> refine_options(const ResolvedOptions& resolved, const ModelDesc& desc) {
  DLLM_TRY(const auto own, make_registered(canvas_decoders(), resolved.decoder, method_context(resolved, desc)));
  RefineOptions options;
  options.canvas = canvas_of(resolved, desc);
  options.canvas.max_steps = own->steps.value_or(desc.canvas.max_steps);
  options.canvas.entropy_bound = own->entropy_bound.value_or(desc.canvas.entropy_bound);
  options.canvas.threshold = own->threshold;
  options.exact_length = resolved.exact_length;
  options.stop_ids = desc.stop_ids;
  options.rng = {resolved.seed, 0};
  return options;
}

}  // namespace dllm
