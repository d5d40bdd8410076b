#include "decode/window/window.h"

#include <algorithm>

#include "decode/method_entry.h"

namespace dllm {

Position block_origin(const MethodContext& context, const Canvas& canvas) {
  return context.origin == BlockOrigin::kAbsolute ? 0 : canvas.prompt_end();
}

PositionRange block_at(const MethodContext& context, const Canvas& canvas, Position position) {
  const Position origin = block_origin(context, canvas);
  const Position begin = origin + (position - origin) / context.block_length * context.block_length;
  return {begin, std::min(begin + context.block_length, canvas.size())};
}

Position widest_window(const CostOptions& options, const MethodContext& context) {
  return std::max(context.block_length, options.max_window.value_or(4 * context.block_length));
}

OptionRows<CostOptions> cost_rows() {
  using O = CostOptions;
  return {
      option("latency", &O::latency,
             "cost of a step. nominal: the same on every machine; a file of dllm bench latency: as measured; auto: "
             "measured on this machine and stored, so answers may differ between machines"),
      option("objective", &O::objective, {{"allowance", WindowObjective::kAllowance}, {"rate", WindowObjective::kRate}},
             "widen while a step stays within --allowance, or to the most commits per millisecond"),
      option("allowance", &O::allowance, 0, 1e3, "", "relative increase of a step's cost that a wider window may cause")
          .only("with --objective allowance", [](const O& o) { return o.objective == WindowObjective::kAllowance; }),
      option("max_window", &O::max_window, 1, kMostPositions, "positions", "widest window, drafts included")
          .otherwise("four blocks",
                     [](const O&, const ModelDesc&, const MethodContext& context) {
                       return OptionValue(std::int64_t{4} * context.block_length);
                     }),
  };
}

}  // namespace dllm
