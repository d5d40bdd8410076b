#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/to_size.h"
#include "numerics/hadamard.h"

namespace dllm {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace

std::string_view op_name(const Op& op) {
  return std::visit(Overloaded{[](const op::Embed&) { return "embed"; },
                               [](const op::RmsNorm&) { return "rms_norm"; },
                               [](const op::LayerNorm&) { return "layer_norm"; },
                               [](const op::Linear&) { return "linear"; },
                               [](const op::Rope&) { return "rope"; },
                               [](const op::Hadamard&) { return "hadamard"; },
                               [](const op::StoreKv&) { return "store_kv"; },
                               [](const op::Attention&) { return "attention"; },
                               [](const op::Glu& o) {
                                 const bool plain = o.up == kNoId;
                                 switch (o.activation) {
                                   case Activation::kSilu:
                                     return plain ? "silu" : "swiglu";
                                   case Activation::kTanh:
                                     return plain ? "tanh" : "tanh_glu";
                                   case Activation::kRelu:
                                     return plain ? "relu" : "reglu";
                                   default:
                                     return plain ? "gelu" : "geglu";
                                 }
                               },
                               [](const op::Add&) { return "add"; },
                               [](const op::Scale&) { return "scale"; },
                               [](const op::Select&) { return "select"; },
                               [](const op::Route&) { return "route"; },
                               [](const op::Experts&) { return "experts"; },
                               [](const op::HiddenIn&) { return "hidden_in"; },
                               [](const op::HiddenOut&) { return "hidden_out"; },
                               [](const op::BlockConv&) { return "block_conv"; },
                               [](const op::GatherScored&) { return "gather_scored"; },
                               [](const op::ScoreHead&) { return "score_head"; },
                               [](const op::Gather&) { return "gather"; }},
                    op);
}

std::string_view beyond_plain(const Op& op) {
  return std::visit(
      Overloaded{[](const op::Embed& o) {
                   return o.scale != 1.f || o.part != EmbedPart::kRow ? "an embedding that is scaled or split" : "";
                 },
                 [](const op::RmsNorm& o) { return o.gain == kNoId ? "a norm without gain" : ""; },
                 [](const op::LayerNorm&) { return "a layer norm"; },
                 [](const op::Attention& o) {
                   if (o.view != op::RowView::kPlan) return "a mask of a layer's own";
                   return o.window > 0 ? "a window of attention" : "";
                 },
                 [](const op::Glu& o) {
                   const bool gelu = o.activation == Activation::kGelu || o.activation == Activation::kGeluTanh;
                   if (o.activation != Activation::kSilu)
                     return gelu ? "GELU" : "an activation other than SiLU and GELU";
                   return o.up == kNoId ? "an activation without a gated product" : "";
                 },
                 [](const op::Scale&) { return "scaling"; }, [](const op::Select&) { return "two regions"; },
                 [](const op::Route& o) { return o.expert_scale != kNoId ? "a scale per expert" : ""; },
                 [](const op::Experts& o) { return o.activation != Activation::kSilu ? "GELU" : ""; },
                 [](const op::HiddenIn&) { return "hidden states of another model"; },
                 [](const op::HiddenOut&) { return "hidden states as a result"; },
                 [](const op::BlockConv&) { return "a convolution over a block"; },
                 [](const op::ScoreHead& o) { return o.softcap != 0.f ? "soft-capped logits" : ""; },
                 [](const op::Gather&) { return "several ranks"; }, [](const auto&) { return ""; }},
      op);
}

std::vector<ValueId> inputs(const Op& op) {
  using Ids = std::vector<ValueId>;
  return std::visit(Overloaded{[](const op::Embed&) { return Ids{}; },
                               [](const op::RmsNorm& o) { return Ids{o.x}; },
                               [](const op::LayerNorm& o) { return Ids{o.x}; },
                               [](const op::Linear& o) { return Ids{o.x}; },
                               [](const op::Rope& o) { return Ids{o.x}; },
                               [](const op::Hadamard& o) { return Ids{o.x}; },
                               [](const op::StoreKv& o) { return Ids{o.k, o.v}; },
                               [](const op::Attention& o) { return Ids{o.q}; },
                               [](const op::Glu& o) { return o.up == kNoId ? Ids{o.gate} : Ids{o.gate, o.up}; },
                               [](const op::Add& o) { return Ids{o.a, o.b}; },
                               [](const op::Scale& o) { return Ids{o.x}; },
                               [](const op::Select& o) { return Ids{o.canvas, o.context}; },
                               [](const op::Route& o) { return Ids{o.logits}; },
                               [](const op::Experts& o) { return Ids{o.x, o.route}; },
                               [](const op::HiddenIn&) { return Ids{}; },
                               [](const op::HiddenOut& o) { return Ids{o.x}; },
                               [](const op::BlockConv& o) { return Ids{o.x, o.dynamic}; },
                               [](const op::GatherScored& o) { return Ids{o.x}; },
                               [](const op::ScoreHead& o) { return Ids{o.x}; },
                               [](const op::Gather& o) { return o.x == kNoId ? Ids{} : Ids{o.x}; }},
                    op);
}

std::vector<ValueId> outputs(const Op& op) {
  return std::visit(Overloaded{[](const op::StoreKv&) { return std::vector<ValueId>{}; },
                               [](const op::HiddenOut&) { return std::vector<ValueId>{}; },
                               [](const op::ScoreHead&) { return std::vector<ValueId>{}; },
                               [](const op::Gather& o) {
                                 return o.out == kNoId ? std::vector<ValueId>{} : std::vector<ValueId>{o.out};
                               },
                               [](const auto& o) { return std::vector<ValueId>{o.out}; }},
                    op);
}

ValueId untransformed(const Graph& graph, ValueId id) {
  for (const Op& op : graph.ops)
    if (const auto* o = std::get_if<op::Hadamard>(&op); o != nullptr && o->out == id) return o->x;
  return id;
}

std::int64_t hidden_width(const Graph& graph) {
  std::int64_t sum = 0;
  for (const Op& op : graph.ops)
    if (const auto* o = std::get_if<op::HiddenOut>(&op)) sum += graph.value(o->x).width;
  return sum;
}

bool hands_out_scored(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (const auto* o = std::get_if<op::HiddenOut>(&op)) return graph.value(o->x).rows != graph.shape.rows;
  return false;
}

std::int64_t hidden_in_width(const Graph& graph) {
  std::int64_t sum = 0;
  for (const Op& op : graph.ops)
    if (const auto* o = std::get_if<op::HiddenIn>(&op)) sum += graph.value(o->out).width;
  return sum;
}

std::vector<Lifetime> lifetimes(const Graph& graph) {
  std::vector<Lifetime> lives(graph.values.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    for (ValueId id : outputs(graph.ops[i])) lives[to_size(id)] = {index, index};
    for (ValueId id : inputs(graph.ops[i])) lives[to_size(id)].last = index;
  }
  return lives;
}

std::vector<bool> scored_values(const Graph& graph) {
  std::vector<bool> scored(graph.values.size(), false);
  for (const Op& op : graph.ops)
    for (const ValueId out : outputs(op)) {
      const std::vector<ValueId> from = inputs(op);
      const auto* const gather = std::get_if<op::Gather>(&op);
      scored[to_size(out)] = std::holds_alternative<op::GatherScored>(op) || (gather != nullptr && gather->scored) ||
                             (!from.empty() && scored[to_size(from.front())]);
    }
  return scored;
}

std::vector<bool> own_row_values(const Graph& graph) {
  std::vector<bool> own(graph.values.size(), false);
  if (!graph.own_rows) return own;
  for (const Op& op : graph.ops) {
    const std::vector<ValueId> from = inputs(op);
    const bool makes_whole = std::holds_alternative<op::Gather>(op);
    const bool reads_own = std::ranges::any_of(from, [&](ValueId id) { return own[to_size(id)]; });
    for (const ValueId out : outputs(op)) own[to_size(out)] = !makes_whole && (from.empty() || reads_own);
  }
  return own;
}

std::int64_t head_vocab(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (const auto* head = std::get_if<op::ScoreHead>(&op))
      return head->vocab > 0 ? head->vocab : graph.weight(head->weight).shape[1];
  return 0;
}

namespace {

class Validator {
 public:
  explicit Validator(const Graph& graph) : graph_(graph), written_(graph.values.size(), false) {}

  std::string run() {
    for (const Op& op : graph_.ops) {
      for (ValueId id : inputs(op))
        if (!known(id) || !written_[to_size(id)])
          return fmt::format("{} reads value {} before it is written", op_name(op), id);
      for (ValueId id : outputs(op)) {
        if (!known(id)) return fmt::format("{} writes unknown value {}", op_name(op), id);
        if (written_[to_size(id)]) return fmt::format("{} writes '{}' a second time", op_name(op), value(id).name);
        written_[to_size(id)] = true;
      }
      if (!std::visit([this](const auto& o) { return fits(o); }, op))
        return fmt::format("{} has operands whose widths do not fit", op_name(op));
    }
    return {};
  }

 private:
  bool known(ValueId id) const { return id >= 0 && to_size(id) < graph_.values.size(); }
  const Value& value(ValueId id) const { return graph_.value(id); }
  const Shape& shape(WeightId id) const { return graph_.weight(id).shape; }
  bool same(ValueId a, ValueId b) const { return value(a).width == value(b).width && value(a).rows == value(b).rows; }
  bool bias_fits(WeightId bias, std::int64_t width) const { return bias == kNoId || shape(bias) == Shape{width}; }

  bool fits(const op::Embed& o) const { return shape(o.table)[0] == value(o.out).width; }
  bool fits(const op::RmsNorm& o) const {
    const std::int64_t width = value(o.x).width;
    return same(o.x, o.out) && (o.gain == kNoId ? width % o.groups == 0 : shape(o.gain)[0] * o.groups == width);
  }
  bool fits(const op::LayerNorm& o) const {
    return same(o.x, o.out) && shape(o.gain) == Shape{value(o.x).width} && shape(o.bias) == shape(o.gain);
  }
  bool fits(const op::Linear& o) const {
    return shape(o.weight) == Shape{value(o.x).width, value(o.out).width} && bias_fits(o.bias, value(o.out).width);
  }
  bool fits(const op::Rope& o) const {
    return same(o.x, o.out) && o.heads * o.head_dim == value(o.x).width && o.dims <= o.head_dim && o.dims % 2 == 0;
  }
  bool fits(const op::Hadamard& o) const {
    return same(o.x, o.out) && o.order > 1 && value(o.x).width % o.order == 0 && Hadamard::online(o.order);
  }
  bool fits(const op::StoreKv& o) const { return same(o.k, o.v); }
  bool fits(const op::Attention& o) const {
    return same(o.q, o.out) && o.heads * o.head_dim == value(o.q).width && o.heads % o.kv_heads == 0 && o.window >= 0;
  }
  bool fits(const op::Glu& o) const { return (o.up == kNoId || same(o.gate, o.up)) && same(o.gate, o.out); }
  bool fits(const op::Add& o) const { return same(o.a, o.b) && same(o.a, o.out); }
  bool fits(const op::Scale& o) const { return same(o.x, o.out) && bias_fits(o.context, 1) && bias_fits(o.canvas, 1); }
  bool fits(const op::Select& o) const { return same(o.canvas, o.context) && same(o.canvas, o.out); }
  bool fits(const op::Route& o) const {
    const std::int64_t experts = value(o.logits).width;
    const bool groups_fit =
        o.groups <= 1 || (experts % o.groups == 0 && o.groups_used > 0 && o.groups_used <= o.groups &&
                          experts / o.groups * o.groups_used >= o.used);
    const bool pool_fits = o.capacity == 0 || (o.capacity >= o.used && o.capacity <= experts && o.block > 0);
    return o.used > 0 && o.used <= experts && groups_fit && pool_fits && (o.groups <= 1 || o.capacity == 0) &&
           bias_fits(o.bias, experts) && bias_fits(o.expert_scale, experts) && value(o.out).width == 2 * o.used &&
           value(o.out).rows == value(o.logits).rows;
  }
  bool fits(const op::Experts& o) const {
    const Shape &gate = shape(o.gate), &down = shape(o.down);
    const std::int64_t inner =
        o.parts.empty() ? gate[1] : std::accumulate(o.parts.begin(), o.parts.end(), std::int64_t{0});
    return gate.size() == 3 && down.size() == 3 && gate == shape(o.up) && gate[0] == value(o.x).width &&
           down == Shape{inner, value(o.out).width, gate[2]} && value(o.route).rows == value(o.x).rows &&
           (o.hadamard == 0 || (o.hadamard > 1 && inner % o.hadamard == 0 && Hadamard::online(o.hadamard))) &&
           value(o.out).rows == value(o.x).rows && value(o.route).width % 2 == 0;
  }
  bool fits(const op::HiddenIn& o) {
    const bool next = o.first == hidden_in_width_ && value(o.out).rows == graph_.shape.rows;
    hidden_in_width_ += value(o.out).width;
    return next;
  }
  /// One after the other: columns without a gap, all of the same rows.
  bool fits(const op::HiddenOut& o) {
    const bool next = o.first == hidden_width_ && (o.first == 0 || value(o.x).rows == hidden_rows_);
    hidden_rows_ = value(o.x).rows;
    hidden_width_ += value(o.x).width;
    return next;
  }
  bool fits(const op::BlockConv& o) const {
    const std::int64_t width = value(o.x).width;
    return same(o.x, o.out) && o.taps > 0 && o.group > 0 && width % o.group == 0 && (o.side == 0 || o.side == 1) &&
           shape(o.base) == Shape{width, o.taps, 2} && value(o.dynamic).rows == value(o.x).rows &&
           value(o.dynamic).width == 2 * o.taps * (width / o.group);
  }
  bool fits(const op::GatherScored& o) const {
    return value(o.x).width == value(o.out).width && value(o.out).rows == graph_.shape.scored;
  }
  bool fits(const op::ScoreHead& o) const {
    if (o.weight == kNoId) return o.vocab > 0;
    return shape(o.weight)[0] == value(o.x).width && bias_fits(o.bias, shape(o.weight)[1]) && o.softcap >= 0;
  }

  bool fits(const op::Gather& o) const {
    if (o.kind == GatherKind::kStored) return o.x == kNoId && o.out == kNoId && o.layer >= 0;
    if (o.kind == GatherKind::kRows) return known(o.x) && known(o.out) && same(o.x, o.out);
    const std::int64_t all = std::accumulate(o.parts.begin(), o.parts.end(), std::int64_t{0});
    const bool has = o.x == kNoId || std::ranges::find(o.parts, value(o.x).width) != o.parts.end();
    return known(o.out) && value(o.out).width == all && has;
  }

  const Graph& graph_;
  std::vector<bool> written_;
  std::int64_t hidden_rows_ = 0, hidden_width_ = 0;  ///< of what was handed out
  std::int64_t hidden_in_width_ = 0;
};

}  // namespace

std::string validate(const Graph& graph) { return Validator(graph).run(); }

}  // namespace dllm
