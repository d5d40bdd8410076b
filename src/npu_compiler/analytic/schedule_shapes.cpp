#include "npu_compiler/analytic/schedule_shapes.h"

#include "npu_core/device/device.h"

namespace dllm::npu {

PhaseRules schedule_rules(const Device& device, const Segment& segment, bool overlap) {
  const NumericsKeys& n = device.numerics;
  return {.segment = segment,
          .hlen = device.array.hlen,
          .overlap = overlap,
          .smooth = n.smooth_keys != "none" || n.smooth_values != "none"};
}

const op::Experts* ScheduleShapes::reader_of(const op::Route& route) const {
  for (const Op& any : graph_.ops)
    if (const auto* o = std::get_if<op::Experts>(&any); o != nullptr && o->route == route.out) return o;
  return nullptr;
}

ExpertShape ScheduleShapes::experts(const op::Route& route, const op::Experts& o) const {
  return {.rows = value(route.logits).rows,
          .used = route.used,
          .experts = value(route.logits).width,
          .width = lanes(o.x),
          .inner = graph_.weight(o.gate).shape[1],
          .out_width = lanes(o.out),
          .gelu = o.activation != Activation::kSilu};
}

double ScheduleShapes::waiting_bytes(std::size_t at) const {
  return static_cast<double>(npu::waiting_bytes(graph_, lanes_, array_.blen, array_.vlen, waiting_values(lives_, at)));
}

double ScheduleShapes::constant_bytes(std::size_t first, std::size_t end) const {
  double rows = 0;
  bool roped = false;
  for (std::size_t i = first; i < end; ++i) {
    if (const auto* o = at<op::RmsNorm>(i)) rows += slabs(o->x);
    if (const auto* o = at<op::LayerNorm>(i)) rows += 2 * slabs(o->x);
    if (const auto* o = at<op::Rope>(i); o != nullptr && !roped) {
      rows += static_cast<double>(rope(*o).tables) * static_cast<double>(graph_.shape.rows);
      roped = true;
    }
  }
  return 2 * rows * static_cast<double>(array_.vlen);
}

}  // namespace dllm::npu
