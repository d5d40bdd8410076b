#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/to_size.h"
#include "format/tensor_info.h"

namespace dllm {

using ValueId = std::int32_t;   ///< index into Graph::values
using WeightId = std::int32_t;  ///< index into Graph::weights
inline constexpr std::int32_t kNoId = -1;

/// Row counts of one denoising step, over all sequences of the batch.
struct StepShape {
  std::int64_t rows = 0;    ///< rows forwarded
  std::int64_t scored = 0;  ///< rows that reach the LM head, <= rows
};

/// An activation: `rows` x `width` float32, row-major, for all rows of the step or only the scored ones.
struct Value {
  std::string name;  ///< "blk.3.attn_q", for dumps and traces
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// A weight that the graph reads, by its canonical (GGUF) name.
struct WeightDecl {
  std::string name;
  Shape shape;           ///< according to the metadata; a file with another shape is an error
  bool required = true;  ///< if an optional one (bias, factors) is missing, the operator skips it
  bool adapter = false;  ///< of an adapter, not of the model: what is kept of the model between loads leaves it out
};

/// RoPE pairs: half-split (j, j + dims/2) as in Hugging Face checkpoints, or interleaved (2j, 2j+1) as in GGUFs whose
/// Q/K rows were permuted by llama.cpp's converter.
enum class RopeLayout { kHalfSplit, kInterleaved };

/// How a router's logits become scores: softmax over the experts, or a sigmoid of each (LLaDA-MoE, arXiv 2509.24389;
/// LLaDA2.0, arXiv 2512.15745).
enum class GateScore { kSoftmax, kSigmoid };

/// The activation of a gate: silu(x) = x / (1 + e^-x), or GELU's tanh form (Hendrycks and Gimpel 2016), x/2 (1 + tanh
/// u) = x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3). The others are those of networks from outside: GELU
/// itself, x/2 (1 + erf(x / sqrt 2)), tanh, and max(x, 0).
enum class Activation { kSilu, kGeluTanh, kGelu, kTanh, kRelu };

/// What ranks bring together (graph/split.h).
enum class GatherKind : std::uint8_t {
  kColumns,  ///< out[r] = the columns of every rank's x[r], in the order of ranks
  kRows,     ///< out[r] = x[r] of the rank that has computed row r
  kStored,   ///< the rows of K and V that each rank has stored in the caches of a layer
};

/// Which part of a plan's row an embedding reads (StepPlan::mixtures).
enum class EmbedPart {
  kRow,      ///< the token and its mixture
  kToken,    ///< only the token
  kMixture,  ///< only the mixture; zeros for rows without one
};

/// YaRN (Peng et al., arXiv 2309.00071): frequencies that turn more than `beta_fast` times within the context of the
/// original model stay, those that turn less than `beta_slow` times are divided by `factor`, with a ramp between them.
struct YarnScaling {
  float factor = 1.f;  ///< 1: none
  float original_context = 0.f;
  float beta_fast = 32.f, beta_slow = 1.f;
  float magnitude = 1.f;  ///< of cos and sin
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};

/// What makes queries larger at long distances (Llama 4, Ministral 3): 1 + beta * ln(1 + floor(position / length)).
struct PositionScaling {
  float beta = 0.f;  ///< 0: none
  float length = 0.f;
  friend bool operator==(const PositionScaling&, const PositionScaling&) = default;
};

namespace op {

/// out[r] = scale * (table[token of row r] + sum of weight * table[mixed token]), or one of the two terms.
struct Embed {
  WeightId table;
  ValueId out;
  float scale = 1.f;
  EmbedPart part = EmbedPart::kRow;
};

/// out[r][g] = x[r][g] * rsqrt(mean(x[r][g]^2) + eps) * gain, for `groups` equal slices g of the row that share the
/// gain: 1 for layer norms, the number of heads for per-head q/k norms.
struct RmsNorm {
  ValueId x;
  WeightId gain;  ///< kNoId: 1
  float eps;
  std::int32_t groups;
  ValueId out;
};

/// out[r] = (x[r] - mean(x[r])) * rsqrt(variance(x[r]) + eps) * gain + bias (Ba et al., arXiv 1607.06450).
struct LayerNorm {
  ValueId x;
  WeightId gain;
  WeightId bias;
  float eps;
  ValueId out;
};

/// out = x W^T + bias; W has shape {width(x), width(out)}.
struct Linear {
  ValueId x;
  WeightId weight;
  WeightId bias;  ///< kNoId, or an optional weight
  ValueId out;
};

/// Rotates the first `dims` of each of `heads` slices of `head_dim` by the row's position:
/// angle_j = position * scale * theta^(-2j/dims) / factors[j], or as `yarn` says. cos and sin are times yarn.magnitude
/// and `growth` at the position (graph/rope.h): turned lanes grow, so a growth needs dims = head_dim.
struct Rope {
  ValueId x;
  std::int32_t heads;
  std::int32_t head_dim;
  std::int32_t dims;
  RopeLayout layout;
  float theta;
  float scale;       ///< 1, or 1/factor of linear position interpolation
  WeightId factors;  ///< kNoId, or optional {dims/2} divisors (Llama 3.1's rope_freqs)
  ValueId out;
  YarnScaling yarn{};
  PositionScaling growth{};
  /// Rows are cells of a grid of StepPlan::columns, counted from its first row: even slices turn by the row's column,
  /// odd ones by its line, in place of the position.
  bool grid = false;

  /// Turns every position as `o` does.
  bool turns_like(const Rope& o) const {
    return dims == o.dims && theta == o.theta && scale == o.scale && yarn == o.yarn && growth == o.growth &&
           grid == o.grid;
  }
};

/// Multiplies each of the equal slices of `order` columns of a row by the orthonormal Hadamard matrix of that order, in
/// the order of operations of Hadamard::apply(): QuaRot's online transforms (arXiv 2404.00456). The weights that read
/// the result contain the inverse, or queries and keys are both transformed.
struct Hadamard {
  ValueId x;
  std::int32_t order;
  ValueId out;
};

/// Writes K (after RoPE) and V of every row into the cache of its sequence, at the row's position.
struct StoreKv {
  ValueId k;
  ValueId v;
  std::int32_t layer;
};

/// What a row of Attention sees.
enum class RowView : std::uint8_t { kPlan, kApart, kCausal };

/// out = softmax(q k^T * scale) v per head over the positions that the plan makes visible; kv head = head /
/// (heads/kv_heads). With a window of W, a row sees the W - 1 positions before its attention block and everything after
/// them: j > first - W. Here `first` begins the row's block of StepPlan::causal_block positions (if 1, the row itself);
/// without such blocks, it is the first row of the plan. With RowView::kApart the window is that of the row itself, and
/// with RowView::kCausal the row sees nothing behind it besides, whatever the plan says (layers of drafters).
struct Attention {
  ValueId q;
  std::int32_t layer;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  float scale;
  ValueId out;
  std::int32_t window = 0;  ///< W; 0: none
  RowView view = RowView::kPlan;
};

/// Gated linear unit: out = activation(gate) * up. With SiLU it is SwiGLU, with GELU GEGLU (Shazeer 2020). Without `up`
/// it is the activation alone.
struct Glu {
  ValueId gate;
  ValueId up;  ///< or kNoId
  ValueId out;
  Activation activation = Activation::kSilu;
};

/// out = a + b
struct Add {
  ValueId a;
  ValueId b;
  ValueId out;
};

/// out[r] = factor * s * x[r], where s is the one element of `canvas` in rows of a canvas, of `context` in other rows
/// (StepPlan::region).
struct Scale {
  ValueId x;
  float factor;
  WeightId context;  ///< {1}, or kNoId: 1
  WeightId canvas;
  ValueId out;
};

/// out[r] = canvas[r] in rows of a canvas, context[r] in other rows (StepPlan::region).
struct Select {
  ValueId canvas;
  ValueId context;
  ValueId out;
};

/// Chooses `used` experts for every row and weights them.
///
///   s = score(logits);  t = s + bias;  the `used` largest t of those allowed;  w = scale * s [ / (sum of chosen s) ]
///
/// Allowed are: with a group limit, the experts of the `groups_used` groups (of `groups` equal ones, in order) whose
/// two largest t have the largest sum; with block routing, those among the `capacity` largest of max t over the rows of
/// the step that belong to one sequence and one block of `block` positions; else all. Ties: the lower index wins,
/// everywhere. Sources: LLaDA2.0 report 2.1 and its gate (group limit), LLaDA2.2 report (block routing).
struct Route {
  ValueId logits;     ///< {rows, experts}
  WeightId bias;      ///< kNoId, or optional {experts}: affects the choice, not the weights
  std::int32_t used;  ///< experts per row
  GateScore score;
  std::int32_t groups;  ///< 0 or 1: no group limit
  std::int32_t groups_used;
  std::int32_t capacity;  ///< 0: no block routing
  std::int32_t block;
  bool normalize;  ///< divide by the sum of the chosen scores (+ 1e-20)
  float scale;
  ValueId out;                    ///< {rows, 2 used}: the experts by ascending index, as floats, then their weights
  WeightId expert_scale = kNoId;  ///< or {experts}: multiplies each expert's weight, after normalization
};

/// out = sum over the row's experts e, by ascending e, of w_e down_e(activation(gate_e x) * up_e x). The weights are
/// stacks of one matrix per expert: gate and up {width(x), F, experts}, down {F, width(out), experts}. down_e's input
/// is transformed as by op::Hadamard if `hadamard` is an order.
struct Experts {
  ValueId x;
  ValueId route;  ///< output of a Route
  WeightId gate;
  WeightId up;
  WeightId down;
  ValueId out;
  Activation activation = Activation::kSilu;
  std::int32_t hadamard = 0;  ///< 0: none
  /// Outputs of gate and up on each rank, whose results are gathered before `down`; empty: all are here.
  std::vector<std::int64_t> parts{};
};

/// out[r] = the columns [first, first + width(out)) of what the plan gives for row r (StepPlan::hidden): hidden states
/// of another model, or an input of a network.
struct HiddenIn {
  ValueId out;
  std::int64_t first = 0;
};

/// Hands row r of x to the caller, as the columns [first, first + width(x)) of Scores::hidden, if the sequence asks for
/// them. A graph hands out rows of the step or scored rows, never both.
struct HiddenOut {
  ValueId x;
  std::int64_t first;
};

/// A causal convolution over the rows of a sequence's plan, with a kernel that each row adds to (DFlash2):
/// out[r][c] = sum over o < taps of (base[side][o][c] + dynamic[r][side][o][c / group]) * x[r - o][c], where rows in
/// front of the plan's first are 0. The sum is in the order of o.
struct BlockConv {
  ValueId x;
  ValueId dynamic;  ///< {rows, 2 * taps * (width(x) / group)}
  WeightId base;    ///< {width(x), taps, 2}
  std::int32_t taps;
  std::int32_t group;
  std::int32_t side;  ///< 0 or 1: which of two kernels
  ValueId out;
};

/// The scored rows of x, in the order of the plan.
struct GatherScored {
  ValueId x;
  ValueId out;
};

/// LM head and reduction in one operator: logits z = x W^T + bias, or softcap * tanh(z / softcap), reduced to
/// Scores as each sequence requests. It has no output value: rows x vocabulary logits exist only if a request wants
/// them.
struct ScoreHead {
  ValueId x;
  WeightId weight;
  WeightId bias;
  float softcap = 0.f;  ///< 0: none
  // Of a rank that has only tokens [first, first + outputs of the weight) of `vocab`; `weight` is kNoId if it has none.
  std::int64_t first = 0;
  std::int64_t vocab = 0;  ///< 0: the weight has all tokens
};

/// Brings together what several ranks have computed of the same step. Only graph/split.h inserts it.
struct Gather {
  GatherKind kind = GatherKind::kColumns;
  ValueId x = kNoId;                  ///< kNoId: this rank has no columns, or kStored
  ValueId out = kNoId;                ///< kNoId: kStored
  std::vector<std::int64_t> parts{};  ///< of kColumns: columns of each rank
  std::int32_t layer = 0;             ///< of kStored
  bool scored = false;                ///< the values have the scored rows
  /// Only products or the LM head read `out`, with outputs on every rank: they may get activations instead of floats.
  bool codes = false;
};

}  // namespace op

using Op = std::variant<op::Embed, op::RmsNorm, op::LayerNorm, op::Linear, op::Rope, op::Hadamard, op::StoreKv,
                        op::Attention, op::Glu, op::Add, op::Scale, op::Select, op::Route, op::Experts, op::HiddenIn,
                        op::HiddenOut, op::BlockConv, op::GatherScored, op::ScoreHead, op::Gather>;

/// One step of a model: operators in execution order over single-assignment values.
struct Graph {
  StepShape shape;
  std::vector<Op> ops;
  std::vector<Value> values;
  std::vector<WeightDecl> weights;
  /// Each rank computes its part of the rows of every value, except of those that op::Gather of kRows makes whole. All
  /// values have room for all rows.
  bool own_rows = false;

  const Value& value(ValueId id) const { return values[to_size(id)]; }
  Value& value(ValueId id) { return values[to_size(id)]; }
  const WeightDecl& weight(WeightId id) const { return weights[to_size(id)]; }
  WeightDecl& weight(WeightId id) { return weights[to_size(id)]; }
};

std::string_view op_name(const Op& op);
/// What an operator needs beyond a plain transformer with one region, SiLU and whole attention: "a window of
/// attention", ...; empty: nothing. For readers of graphs that do not support it and must report that.
std::string_view beyond_plain(const Op& op);
/// Values that an operator reads / writes.
std::vector<ValueId> inputs(const Op& op);
std::vector<ValueId> outputs(const Op& op);

/// The value that an op::Hadamard made `id` of; without one, `id`.
ValueId untransformed(const Graph& graph, ValueId id);

/// Live range of a value in operator indices: written by `first`, last read by `last`.
struct Lifetime {
  std::int32_t first = 0;
  std::int32_t last = 0;
};
std::vector<Lifetime> lifetimes(const Graph& graph);

/// By value: whether it has the scored rows only.
std::vector<bool> scored_values(const Graph& graph);
/// By value: whether a rank computes its own rows of it only (Graph::own_rows).
std::vector<bool> own_row_values(const Graph& graph);
/// Tokens of the LM head, on all ranks; 0: there is none.
std::int64_t head_vocab(const Graph& graph);

/// Numbers per row that op::HiddenOut hands out; 0: none.
std::int64_t hidden_width(const Graph& graph);
/// Whether op::HiddenOut hands out scored rows; of a graph with another number of rows.
bool hands_out_scored(const Graph& graph);
/// Numbers per row that op::HiddenIn takes in; 0: none.
std::int64_t hidden_in_width(const Graph& graph);

/// Checks that every value is written once before it is read and that widths fit the operators; empty if valid, else
/// the problem. For tests and for new architectures.
std::string validate(const Graph& graph);

}  // namespace dllm
