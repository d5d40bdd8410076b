// Which operators the backend has, and within which limits.
#include <fmt/format.h>

#include <variant>

#include "vulkan/operators.h"

namespace dllm::vulkan {
namespace {

struct NotRun {
  const Graph& graph;

  std::string operator()(const op::Embed&) const { return ""; }
  std::string operator()(const op::RmsNorm&) const { return ""; }
  std::string operator()(const op::Linear&) const { return ""; }
  std::string operator()(const op::Rope&) const { return ""; }
  std::string operator()(const op::StoreKv&) const { return ""; }
  std::string operator()(const op::LayerNorm& o) const { return std::string(beyond_plain(o)); }
  std::string operator()(const op::Glu& o) const {
    const bool known = o.activation == Activation::kSilu || o.activation == Activation::kGeluTanh;
    return known ? "" : std::string(beyond_plain(o));
  }
  std::string operator()(const op::Add&) const { return ""; }
  std::string operator()(const op::Hadamard&) const { return ""; }
  std::string operator()(const op::Scale&) const { return ""; }
  std::string operator()(const op::Select&) const { return ""; }
  std::string operator()(const op::HiddenIn&) const { return ""; }
  std::string operator()(const op::HiddenOut& o) const {
    return hands_out_scored(graph) ? std::string(beyond_plain(o)) : "";
  }
  std::string operator()(const op::BlockConv& o) const { return std::string(beyond_plain(o)); }
  std::string operator()(const op::Gather& o) const { return std::string(beyond_plain(o)); }
  std::string operator()(const op::GatherScored&) const { return ""; }
  std::string operator()(const op::ScoreHead&) const { return ""; }
  std::string operator()(const op::Attention& o) const {
    if (o.head_dim > kMostHeadDim) return fmt::format("a head_dim of {}; {} is the most", o.head_dim, kMostHeadDim);
    return o.head_dim % 2 != 0 ? fmt::format("a head_dim of {}, which is odd", o.head_dim) : "";
  }
  std::string operator()(const op::Route& o) const {
    const std::int64_t experts = graph.value(o.logits).width;
    if (experts > kMostExperts) return fmt::format("{} experts; {} is the most", experts, kMostExperts);
    return "";
  }
  std::string operator()(const op::Experts&) const { return ""; }
};

}  // namespace

std::string not_run(const Op& op, const Graph& graph) { return std::visit(NotRun{graph}, op); }

Expected<void> check_operators(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (const std::string reason = not_run(op, graph); !reason.empty())
      return Error{ErrorCode::kUnsupported,
                   fmt::format("the Vulkan backend does not run {} (operator {})", reason, op_name(op)),
                   "--backend vulkan", "leave the option out"};
  return {};
}

}  // namespace dllm::vulkan
