#include "npu/analytic/schedule_shapes.h"

#include <algorithm>
#include <bit>

namespace dllm::npu {

ScheduleShapes::ScheduleShapes(const Graph& graph, const Device::Array& array) : graph_(graph), array_(array) {
  std::map<std::int32_t, const op::Attention*> readers;  // by layer
  const std::int64_t array_heads = std::max<std::int64_t>(1, array_.mlen / array_.hlen);
  for (const Op& any : graph_.ops) {
    const auto* o = std::get_if<op::Attention>(&any);
    if (o == nullptr) continue;
    const std::int64_t group = o->heads / o->kv_heads,
                       rounded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(group)));
    const std::int64_t slots = wide(o->head_dim)        ? group
                               : rounded <= array_heads ? rounded
                                                        : round_up(group, array_heads);
    const std::int64_t slot = wide(o->head_dim) ? o->head_dim : array_.hlen;
    readers[o->layer] = o;
    heads_of(o->q, o->kv_heads * slots * slot);
    lanes_[o->out] = o->kv_heads * slots * slot;
  }
  for (const Op& any : graph_.ops)
    if (const auto* o = std::get_if<op::StoreKv>(&any)) {
      const op::Attention& reader = *readers[o->layer];
      const std::int64_t slot = wide(reader.head_dim) ? reader.head_dim : array_.hlen;
      for (const ValueId id : {o->k, o->v}) heads_of(id, reader.kv_heads * slot);
    }
}

/// A value and what it is made from by RoPE and norms.
void ScheduleShapes::heads_of(ValueId id, std::int64_t lanes) {
  lanes_[id] = lanes;
  for (const Op& any : graph_.ops) {
    if (const auto* o = std::get_if<op::Rope>(&any); o != nullptr && o->out == id) heads_of(o->x, lanes);
    if (const auto* o = std::get_if<op::RmsNorm>(&any); o != nullptr && o->out == id) heads_of(o->x, lanes);
  }
}

bool ScheduleShapes::gated(std::size_t i) const {
  const auto *gate = at<op::Linear>(i), *up = at<op::Linear>(i + 1);
  const auto* act = at<op::SwiGlu>(i + 2);
  return gate != nullptr && up != nullptr && act != nullptr && gate->x == up->x && act->gate == gate->out &&
         act->up == up->out;
}

std::size_t ScheduleShapes::group_at(std::size_t i) const {
  if (gated(i)) return 3;
  const auto* linear = at<op::Linear>(i);
  const auto* add = at<op::Add>(i + 1);
  if (linear == nullptr || add == nullptr || (add->a != linear->out && add->b != linear->out)) return 1;
  const auto* norm = at<op::RmsNorm>(i + 2);
  return norm != nullptr && norm->x == add->out && norm->groups == 1 ? 3 : 2;
}

std::string ScheduleShapes::name_of(const Op& any) const {
  if (const std::vector<ValueId> out = outputs(any); !out.empty()) return value(out.front()).name;
  return std::string(op_name(any));
}

}  // namespace dllm::npu
