#include "npu_compiler/answers/host_cpu.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "npu_compiler/analytic/products.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

/// Floating-point operations per element, with e^x as ten.
constexpr double kNormFlops = 4, kRopeFlops = 6, kSoftmaxFlops = 14, kGluFlops = 14, kReductionFlops = 12;

class HostOperator {
 public:
  HostOperator(const Graph& graph, const Device& device, std::int64_t sequences, std::int64_t keys)
      : graph_(graph), device_(device), sequences_(sequences), keys_(keys) {}

  HostAmounts amounts(const Op& any) {
    const Products products = products_of(graph_, any, {.sequences = sequences_, .keys = keys_});
    const double flops = 2 * static_cast<double>(products.macs);
    (products.weights > 0 ? int8_ : f16_) += flops;
    bytes_ += products.weights * device_.numerics.weight_bytes + products.cached * device_.numerics.kv_bytes;
    std::visit([this](const auto& o) { add(o); }, any);
    return {int8_, f16_, f32_, bytes_};
  }

 private:
  const Value& value(ValueId id) const { return graph_.value(id); }
  double elements(ValueId id) const { return static_cast<double>(value(id).rows * value(id).width); }

  void add(const op::Embed& o) {
    bytes_ += elements(o.out) * (device_.numerics.weight_bytes + device_.numerics.activation_bytes);
    f32_ += elements(o.out);
  }
  void add(const op::RmsNorm& o) { f32_ += kNormFlops * elements(o.x); }
  void add(const op::LayerNorm& o) { f32_ += 2 * kNormFlops * elements(o.x); }
  void add(const op::Linear&) {}
  void add(const op::Rope& o) { f32_ += kRopeFlops * elements(o.x); }
  void add(const op::Hadamard& o) { f32_ += std::log2(static_cast<double>(o.order)) * elements(o.x); }
  void add(const op::StoreKv& o) { bytes_ += (elements(o.k) + elements(o.v)) * device_.numerics.kv_bytes; }
  void add(const op::Attention& o) { f32_ += kSoftmaxFlops * static_cast<double>(value(o.q).rows * o.heads * keys_); }
  void add(const op::Glu& o) { f32_ += kGluFlops * elements(o.gate); }
  void add(const op::Add& o) { f32_ += elements(o.a); }
  void add(const op::Scale& o) { f32_ += elements(o.x); }
  void add(const op::Select& o) { f32_ += elements(o.out); }
  void add(const op::Route& o) { f32_ += kSoftmaxFlops * elements(o.logits); }
  void add(const op::Experts& o) {
    const ExpertProducts e = expert_products(graph_, o);
    f32_ += kGluFlops * static_cast<double>(e.rows * e.used * e.inner);
  }
  void add(const op::HiddenIn& o) { bytes_ += elements(o.out) * device_.numerics.activation_bytes; }
  void add(const op::HiddenOut& o) { bytes_ += elements(o.x) * device_.numerics.activation_bytes; }
  void add(const op::BlockConv& o) { f32_ += 3.0 * o.taps * elements(o.out); }
  void add(const op::Gather&) {}  // ranks have no NPU
  void add(const op::GatherScored& o) { bytes_ += elements(o.out) * device_.numerics.activation_bytes; }
  void add(const op::ScoreHead& o) {
    f32_ += kReductionFlops * static_cast<double>(value(o.x).rows * graph_.weight(o.weight).shape.back());
  }

  const Graph& graph_;
  const Device& device_;
  std::int64_t sequences_, keys_;
  double int8_ = 0, f16_ = 0, f32_ = 0, bytes_ = 0;
};

}  // namespace

std::int64_t operator_rows(const Graph& graph, const Op& op) {
  const auto rows = [&graph](ValueId id) { return graph.value(id).rows; };
  return std::visit(
      [&](const auto& o) -> std::int64_t {
        using O = std::decay_t<decltype(o)>;
        if constexpr (std::is_same_v<O, op::StoreKv>)
          return rows(o.k);
        else if constexpr (std::is_same_v<O, op::ScoreHead> || std::is_same_v<O, op::HiddenOut>)
          return rows(o.x);
        else
          return rows(o.out);
      },
      op);
}

HostAmounts host_amounts(const Graph& graph, const Device& device, const Op& op, std::int64_t sequences,
                         std::int64_t keys) {
  return HostOperator(graph, device, sequences, keys).amounts(op);
}

HostWork host_operator(const Graph& graph, const Device& device, const Op& op, std::int64_t sequences,
                       std::int64_t keys) {
  if (device.host.cores == 0 || operator_rows(graph, op) == 0) return {};
  const HostAmounts a = host_amounts(graph, device, op, sequences, keys);
  const HostKeys& h = device.host;
  const double arithmetic = (a.int8 / h.int8_gops + a.f16 / h.f16_gflops + a.f32 / h.f32_gflops) * 1e-9;
  return {std::max(arithmetic, a.bytes / (h.memory_gbps * 1e9)), a.bytes};
}

HostWork host_step(const Graph& graph, const Device& device, std::int64_t sequences, std::int64_t keys) {
  HostWork sum;
  for (const Op& op : graph.ops) sum += host_operator(graph, device, op, sequences, keys);
  return sum;
}

std::vector<Stretch> host_stretches(const Graph& graph, const Device& device, std::int64_t sequences,
                                    std::int64_t keys) {
  std::vector<Stretch> result;
  for (const Op& op : graph.ops) {
    const HostWork work = host_operator(graph, device, op, sequences, keys);
    result.push_back({work.seconds, work.bytes, Stretch::Kind::kHost});
  }
  return result;
}

HostWork host_reduction(const Device& device, std::int64_t rows, std::int64_t vocab) {
  if (device.host.cores == 0) return {};
  const auto logits = static_cast<double>(rows * vocab);
  const double bytes = logits * device.numerics.logit_bytes;
  return {std::max(kReductionFlops * logits / (device.host.f32_gflops * 1e9), bytes / (device.host.memory_gbps * 1e9)),
          bytes};
}

}  // namespace dllm::npu
