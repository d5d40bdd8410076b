#include "engine/canvas_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <variant>

#include "engine/option_table.h"

namespace dllm {
namespace {

/// Options that mean something to a canvas.
constexpr std::array<std::string_view, 10> kKnown = {"length", "block_length", "exact_length", "algorithm",
                                                     "cache",  "window",       "block_origin", "steps",
                                                     "seed",   "entropy_bound"};

Error bad(std::string what, std::string_view flag, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), std::string(flag), std::move(hint)};
}

bool is_default(const OptionSpec& spec, const GenerateOptions& options) {
  const GenerateOptions defaults;
  return std::visit([&](const auto member) { return options.*member == defaults.*member; }, spec.target);
}

}  // namespace

Expected<GenerateOptions> resolve_canvas_options(const GenerateOptions& options, const ModelDesc& desc) {
  for (const OptionSpec& spec : generate_option_table())
    if (std::ranges::find(kKnown, spec.key) == kKnown.end() && !is_default(spec, options))
      return bad("the model refines whole canvases by a method of its own, in which the option means nothing",
                 spec.flags.front(), "leave the option out");
  const auto only = [&](const std::string& value, std::string_view one, std::string_view flag) -> Expected<void> {
    if (value.empty() || value == one) return {};
    return bad(fmt::format("'{}' fills masks, and the model refines whole canvases of random tokens", value), flag,
               fmt::format("leave the option out, or give {}", one));
  };
  if (auto fits = only(options.algorithm, "entropy-bound", "--algorithm"); !fits) return fits.error();
  if (auto fits = only(options.cache, "prefix", "--cache"); !fits) return fits.error();
  if (auto fits = only(options.window, "block", "--window"); !fits) return fits.error();
  if (auto fits = only(options.block_origin, "prompt-end", "--block-origin"); !fits) return fits.error();
  if (options.block_length != 0 && options.block_length != desc.canvas.length)
    return bad(
        fmt::format("canvases of {}: the model was trained on {} positions", options.block_length, desc.canvas.length),
        "--block-length", "leave the option out");
  GenerateOptions resolved = options;
  resolved.algorithm = "entropy-bound";
  resolved.cache = "prefix";
  resolved.block_origin = "prompt-end";
  resolved.block_length = desc.canvas.length;
  if (resolved.steps == 0) resolved.steps = desc.canvas.max_steps;
  if (resolved.entropy_bound == GenerateOptions().entropy_bound) resolved.entropy_bound = desc.canvas.entropy_bound;
  return resolved;
}

RefineOptions refine_options(const GenerateOptions& resolved, const ModelDesc& desc) {
  RefineOptions options;
  options.canvas = desc.canvas;
  options.canvas.max_steps = resolved.steps;
  options.canvas.entropy_bound = resolved.entropy_bound;
  options.exact_length = resolved.exact_length;
  options.stop_ids = desc.stop_ids;
  options.rng = {resolved.seed, 0};
  return options;
}

}  // namespace dllm
