#include "npu_compiler/analytic/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/integers.h"
#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/analytic/products.h"
#include "npu_compiler/analytic/routing.h"
#include "npu_compiler/analytic/vector_kernels.h"
#include "npu_compiler/lowering/segments.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"
#include "npu_core/dram/streams.h"

namespace dllm::npu {
namespace {

/// Section of the device's keys that the analytical models do not read.
constexpr std::string_view kFrontEnd = "issue";

/// Vector work per slab of VLEN elements: instructions, passes when dependent ones are chained, cycles if serial.
struct SlabWork {
  int instructions, passes;
  double serial;
};

SlabWork rms_norm_work(const LatencyKeys& t) {  // x*x and sum; times 1/rms, times gain
  return {4, 2, static_cast<double>(3 * t.vector_mul + t.vector_sum)};
}
SlabWork rope_work(const LatencyKeys& t) { return {3, 1, static_cast<double>(2 * t.vector_mul + t.vector_add)}; }
SlabWork swiglu_work(const LatencyKeys& t) {  // negate, exp, add 1, reciprocal, times gate, times up
  return {6, 1, static_cast<double>(2 * t.vector_add + t.vector_exp + t.vector_reci + 2 * t.vector_mul)};
}
/// Scores and keys, one round per chosen expert (arg-max, mask of its lane, two minima), groups, weights; one row of
/// lanes.
SlabWork route_work(const LatencyKeys& t, const op::Route& o, std::int64_t experts) {
  const bool softmax = o.score == GateScore::kSoftmax;
  SlabWork work = softmax ? SlabWork{7, 2,
                                     static_cast<double>(3 * t.vector_max + 2 * t.vector_add + t.vector_exp +
                                                         2 * t.vector_mul + t.vector_sum)}
                          : SlabWork{5, 1, static_cast<double>(3 * t.vector_add + t.vector_exp + t.vector_reci)};
  work.instructions += 4 * o.used + 5;
  work.passes += o.used + 1;
  work.serial += static_cast<double>(o.used * (3 * t.vector_max + t.shift)) +
                 static_cast<double>(2 * t.vector_max + t.vector_add + t.vector_sum + t.vector_mul);
  if (o.groups > 1) {
    const auto steps = log2_ceil(experts / o.groups);
    work.instructions += 6 * steps + 5 * o.groups_used + 2;
    work.passes += steps + o.groups_used;
    work.serial += steps * static_cast<double>(4 * t.vector_max + 2 * t.shift) +
                   o.groups_used * static_cast<double>(3 * t.vector_max + 2 * t.shift);
  }
  return work;
}
/// Of a kernel in which each instruction takes its predecessor's result.
SlabWork chained(const RowKernel& k) { return {static_cast<int>(k.vector), 1, k.vector + k.fixed}; }
/// Sum; x - mean, squares and sum; factor, gain, bias. `half`: x is multiplied by 2^-6 before either sum.
SlabWork layer_norm_work(const LatencyKeys& t, bool half) {
  return {static_cast<int>(layer_norm_kernel(t, half).vector), 3,
          static_cast<double>((half ? 5 : 3) * t.vector_mul + 2 * t.vector_sum + 2 * t.vector_add)};
}
SlabWork softmax_work(const LatencyKeys& t) {  // max; subtract, exp, sum
  return {4, 2, static_cast<double>(t.vector_max + t.vector_add + t.vector_exp + t.vector_sum)};
}

/// Of the vector unit, on weights that are stored packed.
double unpacking_cycles(const Device& device, double weight_bytes) {
  const double rate = device.unpack_gbps();
  return rate > 0 ? weight_bytes / rate * device.clock.ghz : 0;
}

void add_vector(const Device& device, OperatorCost& cost, SlabWork work, double slabs, double serial_slabs) {
  const auto units = static_cast<double>(device.array.vector_units);
  cost.vector += work.instructions * slabs / units;
  cost.lower_bound = std::max(cost.lower_bound, work.passes * slabs / units);
  cost.serial += work.serial * serial_slabs;
  cost.lane_ops += work.instructions * slabs * static_cast<double>(device.array.vlen);
}

/// Operators that only networks from outside have; false: another one.
bool network_cost(const Device& device, const Graph& graph, const Op& any, OperatorCost& c) {
  const LatencyKeys& t = device.latency;
  const auto value = [&graph](ValueId id) -> const Value& { return graph.value(id); };
  const auto slabs = [&](ValueId id) {
    return static_cast<double>(value(id).rows * ceil_div(value(id).width, device.array.vlen));
  };
  const auto bytes = [&](ValueId id) { return 2.0 * static_cast<double>(value(id).rows * value(id).width); };
  if (const auto* o = std::get_if<op::LayerNorm>(&any)) {
    add_vector(device, c, layer_norm_work(t, half_lanes(device)), slabs(o->x), slabs(o->x));
    c.serial += 6.0 * static_cast<double>(value(o->x).rows);  // mean, 1/n, eps, root, reciprocal, address
    return true;
  }
  if (const auto* o = std::get_if<op::Glu>(&any);
      o != nullptr && (o->activation != Activation::kSilu || o->up == kNoId)) {
    add_vector(device, c, chained(activation_kernel(t, o->activation, o->up != kNoId)), slabs(o->gate), slabs(o->gate));
    return true;
  }
  if (const auto* o = std::get_if<op::HiddenIn>(&any)) c.read_bytes = bytes(o->out);
  if (const auto* o = std::get_if<op::HiddenOut>(&any)) c.write_bytes = bytes(o->x);
  return std::holds_alternative<op::HiddenIn>(any) || std::holds_alternative<op::HiddenOut>(any);
}

/// What an operator takes of each unit, added to `c`, whose products are counted already. False: an unknown operator.
class UnitCosts {
 public:
  UnitCosts(const Device& device, const Graph& graph, const CostAssumptions& load, const Products& products,
            OperatorCost& c)
      : device_(device), graph_(graph), load_(load), products_(products), c_(c) {}

  template <class O>
  bool add(const O&) const {
    return std::is_same_v<O, op::GatherScored>;  // which moves no rows
  }
  bool add(const op::Embed& o) const {
    if (o.part == EmbedPart::kMixture) {
      c_.read_bytes = 2.0 * static_cast<double>(value(o.out).rows * value(o.out).width);
      return true;
    }
    if (o.scale != 1.f) elementwise({1, 1, static_cast<double>(t_.vector_mul)}, o.out);
    c_.read_bytes = static_cast<double>(value(o.out).rows * value(o.out).width) * device_.numerics.weight_bytes;
    return true;
  }
  bool add(const op::RmsNorm& o) const {
    elementwise(rms_norm_work(t_), o.x);
    c_.serial += 5.0 * static_cast<double>(value(o.x).rows * o.groups);  // 1/h, eps, root, reciprocal, address
    return true;
  }
  bool add(const op::Linear& o) const { return gemm(value(o.x).rows, value(o.out).width, value(o.x).width); }
  bool add(const op::Rope& o) const { return elementwise(rope_work(t_), o.x); }
  bool add(const op::Hadamard& o) const {
    return elementwise({1, 1, std::log2(static_cast<double>(o.order)) + 1}, o.x);
  }
  bool add(const op::StoreKv& o) const {
    c_.write_bytes =
        static_cast<double>(value(o.k).rows * (value(o.k).width + value(o.v).width)) * device_.numerics.kv_bytes;
    return true;
  }
  bool add(const op::Attention& o) const {
    const std::int64_t rows = value(o.q).rows, per_sequence = ceil_div(rows, load_.sequences);
    const std::int64_t keys = seen_keys(o, per_sequence, load_.keys);
    const ArrayKeys& a = device_.array;
    c_.matrix = attention_cycles(device_, load_.sequences, per_sequence, keys, o.heads, o.kv_heads, o.head_dim);
    c_.read_bytes = products_.cached * device_.numerics.kv_bytes;
    const auto packed = static_cast<double>(ceil_div(rows * o.heads * keys, vlen_));
    const auto tiles = static_cast<double>(rows * o.heads * ceil_div(keys, std::min(vlen_, a.mlen)));
    add_vector(device_, c_, softmax_work(t_), packed, tiles);
    // The running rescale of the output: one multiplication and one addition per further tile of keys.
    const double more = static_cast<double>(ceil_div(keys, a.mlen));
    const auto out = static_cast<double>(ceil_div(rows * o.heads * o.head_dim, vlen_));
    c_.vector += 2 * more * out / static_cast<double>(a.vector_units);
    c_.serial +=
        tiles * static_cast<double>(ceil_div(o.head_dim, vlen_) * (t_.vector_mul + t_.vector_add) + 8) + c_.matrix;
    c_.lower_bound = std::max(
        c_.lower_bound, static_cast<double>(c_.macs) / static_cast<double>(a.blen * a.mlen * a.blen) * a.tile_cycles);
    return true;
  }
  bool add(const op::Glu& o) const { return elementwise(swiglu_work(t_), o.gate); }
  bool add(const op::Add& o) const { return elementwise({1, 1, static_cast<double>(t_.vector_add)}, o.a); }
  bool add(const op::Scale& o) const {
    const int products = scale_products(o);
    return elementwise({products, 1, products * static_cast<double>(t_.vector_mul)}, o.x);
  }
  bool add(const op::Select&) const { return true; }  // a step's rows are of one region: no row moves
  bool add(const op::Route& o) const { return elementwise(route_work(t_, o, value(o.logits).width), o.logits); }
  bool add(const op::Experts& o) const {
    const ExpertProducts e = expert_products(graph_, o);
    const std::int64_t k = e.width, f = e.inner, n = e.out, parts = std::max<std::int64_t>(1, load_.parts);
    const ExpertLoad part = expert_load(ceil_div(e.rows, parts), e.count, e.used, device_.array.blen, load_.choices);
    c_.matrix =
        part.blocks * static_cast<double>(parts) * (2 * gemm_cycles(device_, 1, f, k) + gemm_cycles(device_, 1, n, f));
    c_.serial = c_.lower_bound = c_.matrix;
    c_.read_bytes = c_.weight_bytes;
    const auto pairs = static_cast<double>(e.rows * e.used);
    const auto slab_pairs = [&](std::int64_t width) { return pairs * static_cast<double>(ceil_div(width, vlen_)); };
    // Gathers rows for their expert with the weight of the pair, SwiGLU, adds back with the weight. Only the sums are
    // new work: a schedule might read rows in place.
    const double bound =
        std::max(c_.lower_bound, (slab_pairs(f) + slab_pairs(n)) / static_cast<double>(device_.array.vector_units));
    add_vector(device_, c_, {1, 0, static_cast<double>(t_.shift)}, slab_pairs(k), slab_pairs(k));
    add_vector(device_, c_, {2, 0, static_cast<double>(t_.vector_mul + t_.vector_sum)}, pairs, pairs);
    add_vector(device_, c_,
               o.activation == Activation::kSilu ? swiglu_work(t_) : chained(activation_kernel(t_, o.activation, true)),
               slab_pairs(f), slab_pairs(f));
    add_vector(device_, c_, {2, 0, static_cast<double>(t_.vector_mul + t_.vector_add)}, slab_pairs(n), slab_pairs(n));
    c_.lower_bound = std::max(c_.matrix, bound);
    c_.vector += unpacking_cycles(device_, c_.weight_bytes);
    return true;
  }
  bool add(const op::ScoreHead& o) const {
    const std::int64_t rows = value(o.x).rows, vocab = graph_.weight(o.weight).shape.back();
    gemm(rows, vocab, value(o.x).width);
    const auto n = static_cast<double>(rows * ceil_div(vocab, vlen_));
    add_vector(device_, c_, softmax_work(t_), n, n);
    if (o.softcap != 0.f) add_vector(device_, c_, chained(softcap_kernel(t_)), n, n);
    c_.serial += 3 * n + 7.0 * static_cast<double>(rows);
    if (!load_.fused_head) {
      const double bytes = static_cast<double>(rows * vocab) * device_.numerics.logit_bytes;
      c_.write_bytes += bytes;
      c_.read_bytes += bytes;
    }
    return true;
  }

 private:
  const Value& value(ValueId id) const { return graph_.value(id); }
  bool elementwise(SlabWork work, ValueId id) const {
    const auto slabs = static_cast<double>(value(id).rows * ceil_div(value(id).width, vlen_));
    add_vector(device_, c_, work, slabs, slabs);
    return true;
  }
  /// Weights stream once per part of the step; if the parts are unknown, once per half vector SRAM of activations.
  bool gemm(std::int64_t m, std::int64_t n, std::int64_t k) const {
    c_.matrix += gemm_cycles(device_, m, n, k);
    c_.serial += c_.matrix;
    c_.lower_bound = std::max(c_.lower_bound, c_.matrix);
    const double rooms = 4.0 * static_cast<double>(m * k) / static_cast<double>(device_.vector_sram_bytes());
    c_.read_bytes +=
        c_.weight_bytes * (load_.parts > 0 ? static_cast<double>(load_.parts) : std::max(1.0, std::ceil(rooms)));
    c_.vector += unpacking_cycles(device_, c_.weight_bytes);
    return true;
  }

  const Device& device_;
  const Graph& graph_;
  const CostAssumptions& load_;
  const Products& products_;
  OperatorCost& c_;
  const LatencyKeys& t_ = device_.latency;
  const std::int64_t vlen_ = device_.array.vlen;
};

}  // namespace

std::string_view bound_name(Bound bound) {
  constexpr std::string_view kNames[] = {"matrix", "vector", "memory", "host"};
  return kNames[static_cast<int>(bound)];
}

double StepCost::seconds(const Device& device) const { return overlapped / (device.clock.ghz * 1e9); }

double gemm_cycles(const Device& device, std::int64_t m, std::int64_t n, std::int64_t k) {
  const ArrayKeys& a = device.array;
  return static_cast<double>(ceil_div(m, a.blen) * ceil_div(n, a.blen) * ceil_div(k, a.mlen)) * a.tile_cycles;
}

double attention_cycles(const Device& device, std::int64_t sequences, std::int64_t rows, std::int64_t keys,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  const ArrayKeys& a = device.array;
  const std::int64_t m = ceil_div(rows * (heads / kv_heads), a.blen);
  // Groups of heads whose contractions of length k share the MLEN lanes.
  const auto groups = [&](std::int64_t k) {
    return k <= a.mlen ? ceil_div(kv_heads, a.mlen / k) : kv_heads * ceil_div(k, a.mlen);
  };
  const std::int64_t qk = ceil_div(keys, a.blen) * groups(head_dim);
  const std::int64_t pv = ceil_div(head_dim, a.blen) * groups(keys);
  return static_cast<double>(sequences * m * (qk + pv)) * a.tile_cycles;
}

bool is_modelled(std::string_view key) {
  // The two keys change the silicon and the simulator's time, but not the time of these models.
  return key.substr(0, key.find('.')) != kFrontEnd && key != "latency.scalar_int" && key != "prefetch.outstanding";
}

Expected<void> check_modelled(const Device& device) {
  Device given = device, usual;  // the accessors return references
  for (const DeviceKey& field : device_keys()) {
    if (field.section != kFrontEnd) continue;
    assert(field.kind == DeviceKey::kInteger);
    if (field.integer(given) != field.integer(usual))
      return Error{ErrorCode::kUnsupported,
                   fmt::format("the analytical model of time knows no {}.{} = {}, only {}", field.section, field.key,
                               field.integer(given), field.integer(usual)),
                   "device " + device.name, "`dllm npu step` and `dllm npu sampling` simulate it"};
  }
  return {};
}

Expected<CostModel> CostModel::create(const Device& device, double achieved_gbps) {
  if (!(achieved_gbps > 0))
    return Error{ErrorCode::kUsage, fmt::format("a bandwidth of {} GB/s", achieved_gbps), "", ""};
  CostModel model(device);
  model.achieved_gbps_ = achieved_gbps;
  const NumericsKeys& n = device.numerics;
  for (const auto& [format, bytes] :
       {std::pair{&n.weight, n.weight_bytes}, std::pair{&n.kv, n.kv_bytes}, std::pair{&n.logits, n.logit_bytes},
        std::pair{&n.activation, n.activation_bytes}})
    if (!(bytes > 0)) {
      if (auto known = format_bits(*format); !known) return known.error();
    }
  return model;
}

/// Fills the units' cycles, bytes and `lower_bound` without memory; false for an unknown operator.
bool CostModel::cost(const Graph& graph, const CostAssumptions& load, const Op& any, OperatorCost& c) const {
  const Products products = products_of(
      graph, any, {.sequences = load.sequences, .keys = load.keys, .choices = load.choices, .parts = load.parts});
  c.macs = products.macs;
  c.weight_bytes = products.weights * device_.numerics.weight_bytes;
  if (!beyond_programs(any).empty()) return false;
  if (network_cost(device_, graph, any, c)) return true;
  const UnitCosts units(device_, graph, load, products, c);
  return std::visit([&units](const auto& o) { return units.add(o); }, any);
}

bool CostModel::whole_cost(const Graph& graph, const CostAssumptions& load, const Op& any, OperatorCost& c) const {
  if (!cost(graph, load, any, c)) return false;
  const double ghz = device_.clock.ghz;
  const double bytes = c.read_bytes + c.write_bytes;
  c.own_bound = c.lower_bound;
  c.memory = bytes / achieved_gbps_ * ghz;
  c.host = (device_.host.dispatch_us + device_.host.batch_us / static_cast<double>(device_.host.batch_ops)) * ghz * 1e3;
  // Every weight must be read once; reading it again is the schedule's choice.
  c.least_memory = (std::holds_alternative<op::Linear>(any) ? c.weight_bytes : bytes) / device_.memory_gbps() * ghz;
  c.lower_bound = std::max(c.lower_bound, c.least_memory);
  c.serial += c.memory + c.host;
  const double most = std::max({c.matrix, c.vector, c.memory});
  c.cycles = most + c.host;
  c.bound = c.host > most      ? Bound::kHost
            : most == c.memory ? Bound::kMemory
            : most == c.matrix ? Bound::kMatrix
                               : Bound::kVector;
  return true;
}

Expected<StepCost> CostModel::evaluate(const Graph& graph, const CostAssumptions& load,
                                       std::span<const std::int32_t> alike) const {
  if (load.sequences < 1 || load.keys < 1 || graph.shape.rows < load.sequences)
    return Error{ErrorCode::kUsage,
                 fmt::format("{} rows of {} sequences that see {} keys", graph.shape.rows, load.sequences, load.keys),
                 "", "each sequence has at least one row and one key"};
  StepCost step;
  step.operators.reserve(alike.empty() ? graph.ops.size() : 1 + to_size(std::ranges::max(alike)));
  OperatorCost& sum = step.total;
  double lower_matrix = 0, lower_vector = 0, lower_memory = 0;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const std::size_t place = alike.empty() ? i : to_size(alike[i]);
    if (place == step.operators.size()) {
      OperatorCost& fresh = step.operators.emplace_back();
      fresh.op = static_cast<std::int32_t>(i);
      if (!whole_cost(graph, load, graph.ops[i], fresh))
        return Error{ErrorCode::kUnsupported,
                     fmt::format("the analytical model knows no cost of '{}'", op_name(graph.ops[i])), "", ""};
    }
    const OperatorCost& c = step.operators[place];
    (c.macs > 0 ? lower_matrix : lower_vector) += c.own_bound;
    lower_memory += c.least_memory;
    sum.macs += c.macs;
    sum.lane_ops += c.lane_ops;
    sum.read_bytes += c.read_bytes;
    sum.write_bytes += c.write_bytes;
    sum.weight_bytes += c.weight_bytes;
    sum.matrix += c.matrix;
    sum.vector += c.vector;
    sum.memory += c.memory;
    sum.host += c.host;
    sum.cycles += c.cycles;
    sum.serial += c.serial;
    sum.lower_bound += c.lower_bound;
  }
  // With one port, matrix SRAM can be written only while the array does not read it.
  double array = sum.matrix;
  if (device_.sram.matrix_ports == 1) {
    array += sum.read_bytes / (static_cast<double>(device_.array.mlen) * device_.numerics.weight_bytes);
    sum.cycles = std::max(sum.cycles, array);
  }
  const double most = std::max({array, sum.vector, sum.memory});
  sum.bound = most == sum.memory ? Bound::kMemory : most == array ? Bound::kMatrix : Bound::kVector;
  step.overlapped = most + sum.host;
  step.lower_bound = std::max({lower_matrix, lower_vector, lower_memory});
  return step;
}

Expected<double> stream_bandwidth(const dram::MemoryConfig& config) {
  DLLM_TRY(dram::MemorySystem memory, dram::MemorySystem::create(config, config.standard.tck_fs));
  dram::StreamSpec spec;
  spec.request_bytes = 4096;
  // Four refresh intervals at peak, so that the share of refresh is accurate to a few percent.
  const double intervals = 4 * config.standard.ticks_to_ns(static_cast<double>(config.standard.timing.refi));
  spec.requests = static_cast<std::uint64_t>(std::max(64.0, intervals * config.peak_gbps() / 4096));
  spec.outstanding = spec.requests;
  DLLM_TRY(const dram::StreamResult result, dram::run_stream(memory, spec));
  return result.gbps;
}

Expected<double> achieved_bandwidth(const Device& device) {
  DLLM_TRY(const double stream, stream_bandwidth(device.memory_config));
  return std::min(stream, device.memory_gbps());
}

}  // namespace dllm::npu
