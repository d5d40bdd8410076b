#include "npu_compiler/analytic/schedule_shapes.h"

#include <algorithm>
#include <bit>

#include "npu_compiler/analytic/segments.h"

namespace dllm::npu {

ScheduleShapes::ScheduleShapes(const Graph& graph, const ArrayKeys& array)
    : graph_(graph), array_(array), patterns_(graph), lanes_(graph.values.size()) {
  std::vector<const op::Attention*> readers;  // by layer
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
    readers.resize(std::max(readers.size(), static_cast<std::size_t>(o->layer) + 1));
    readers[static_cast<std::size_t>(o->layer)] = o;
    heads_of(o->q, o->kv_heads * slots * slot);
    lanes_[static_cast<std::size_t>(o->out)] = o->kv_heads * slots * slot;
  }
  for (const Op& any : graph_.ops)
    if (const auto* o = std::get_if<op::StoreKv>(&any)) {
      const op::Attention& reader = *readers[static_cast<std::size_t>(o->layer)];
      const std::int64_t slot = wide(reader.head_dim) ? reader.head_dim : array_.hlen;
      for (const ValueId id : {o->k, o->v}) heads_of(id, reader.kv_heads * slot);
    }
}

/// The value that a value is computed from by RoPE and norms.
void ScheduleShapes::heads_of(ValueId id, std::int64_t lanes) {
  lanes_[static_cast<std::size_t>(id)] = lanes;
  for (const Op& any : graph_.ops) {
    if (const auto* o = std::get_if<op::Rope>(&any); o != nullptr && o->out == id) heads_of(o->x, lanes);
    if (const auto* o = std::get_if<op::Hadamard>(&any); o != nullptr && o->out == id) heads_of(o->x, lanes);
    if (const auto* o = std::get_if<op::RmsNorm>(&any); o != nullptr && o->out == id) heads_of(o->x, lanes);
  }
}

bool ScheduleShapes::gated(std::size_t i) const {
  const auto found = patterns_.gated_at(i);
  return found && found->unit->activation == Activation::kSilu && !biased(*found->gate) && !biased(*found->up);
}

std::size_t ScheduleShapes::group_at(std::size_t i, bool overlap) const {
  if (gated(i)) return GatedProducts::kOps;
  if (!overlap) return 1;
  const auto residual = patterns_.residual_at(i);
  return residual && !biased(*residual->product) ? residual->ops() : 1;
}

std::string ScheduleShapes::name_of(const Op& any) const {
  if (const std::vector<ValueId> out = outputs(any); !out.empty()) return value(out.front()).name;
  return std::string(op_name(any));
}

std::vector<std::optional<StreamedMatrix>> ScheduleShapes::matrices(std::size_t first, std::size_t end) const {
  std::vector<std::optional<StreamedMatrix>> found;
  for (std::size_t i = first; i < end; ++i) {
    if (const auto* o = at<op::Linear>(i)) {
      const bool two = gated(i);
      found.emplace_back(StreamedMatrix{lanes(o->out), lanes(o->x), two ? 2 : 1});
      if (two) ++i;
    } else if (const auto* head = at<op::ScoreHead>(i); head != nullptr && value(head->x).rows > 0) {
      found.emplace_back(StreamedMatrix{graph_.weight(head->weight).shape[1], lanes(head->x)});
    } else if (at<op::Experts>(i) != nullptr) {
      found.emplace_back();
    }
  }
  return found;
}

const op::Experts* ScheduleShapes::reader_of(const op::Route& route) const {
  for (const Op& any : graph_.ops)
    if (const auto* o = std::get_if<op::Experts>(&any); o != nullptr && o->route == route.out) return o;
  return nullptr;
}

std::size_t ScheduleShapes::rope_into(ValueId id) const {
  std::size_t i = 0;
  for (; i < graph_.ops.size(); ++i)
    if (const auto* rope = at<op::Rope>(i); rope != nullptr && rope->out == id) break;
  return i;
}

std::int64_t ScheduleShapes::rope_tables(const op::Rope& o) const {
  const std::int64_t segment = wide(o.head_dim) ? array_.vlen : array_.hlen;
  return o.dims == segment || o.dims > array_.vlen ? 2 : 3;
}

double ScheduleShapes::turned_slabs(const op::Rope& o) const {
  return wide(o.head_dim) ? slabs(o.x) * static_cast<double>(array_.vlen) / static_cast<double>(o.head_dim)
                          : slabs(o.x);
}

ExpertShape ScheduleShapes::experts(const op::Route& route, const op::Experts& o) const {
  return {.rows = value(route.logits).rows,
          .used = route.used,
          .experts = value(route.logits).width,
          .width = lanes(o.x),
          .inner = graph_.weight(o.gate).shape[1],
          .out_width = lanes(o.out)};
}

double ScheduleShapes::waiting_bytes(std::size_t at) const {
  double rows = 0;
  for (const ValueId id : waiting_values(graph_, at))
    rows += slabs(id) * static_cast<double>(round_up(value(id).rows, array_.blen));
  return 2 * rows * static_cast<double>(array_.vlen);
}

double ScheduleShapes::constant_bytes(std::size_t first, std::size_t end) const {
  double rows = 0;
  bool roped = false;
  for (std::size_t i = first; i < end; ++i) {
    if (const auto* o = at<op::RmsNorm>(i)) rows += slabs(o->x);
    if (const auto* o = at<op::LayerNorm>(i)) rows += 2 * slabs(o->x);
    if (const auto* o = at<op::Rope>(i); o != nullptr && !roped) {
      rows += static_cast<double>(rope_tables(*o)) * static_cast<double>(graph_.shape.rows);
      roped = true;
    }
  }
  return 2 * rows * static_cast<double>(array_.vlen);
}

}  // namespace dllm::npu
