#include "npu_compiler/workload/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_reader.h"
#include "base/quote_name.h"
#include "base/to_size.h"
#include "base/try.h"
#include "graph/builder.h"
#include "npu_compiler/workload/network_json.h"

namespace dllm::npu {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostWidth = 1 << 20;

/// What graphs of any number of rows are built of. Inputs are those that op::HiddenIn reads, without their numbers.
struct NetworkParts {
  struct Columns {
    std::string name;
    std::int64_t width = 0;
  };
  Safetensors file;
  std::vector<Columns> inputs;
  bool scores = false;  ///< the network names the rows that are gathered
  std::vector<NetworkStep> steps;
};

/// Builds a graph from a file's operators. Unknown names and sizes that do not fit are errors before the builder sees
/// them.
class NetworkGraph {
 public:
  NetworkGraph(const NetworkParts& parts, StepShape shape) : parts_(parts), builder_(shape) {}

  Expected<void> add(const NetworkStep& step) {
    if (step.op == "embed") return embed(step);
    if (step.op == "input") return input(step);
    if (step.op == "linear") return linear(step);
    if (step.op == "layer_norm" || step.op == "rms_norm") return norm(step);
    if (step.op == "add") return sum(step);
    if (step.op == "attention") return attention(step);
    if (step.op == "gather") return gather(step);
    if (step.op == "output") return output(step);
    if (const auto activation = activation_of(step.op)) return activate(step, *activation);
    return wrong(fmt::format("an operator {} that this version does not know", quote_name(step.op)));
  }
  Graph take() { return builder_.take(); }

 private:
  struct Made {
    ValueId id = kNoId;
    std::int64_t width = 0;
    bool scored = false;
  };

  static Error wrong(std::string what) { return {ErrorCode::kInvalidFile, std::move(what), "", ""}; }
  static std::optional<Activation> activation_of(std::string_view name) {
    if (name == "gelu") return Activation::kGelu;
    if (name == "gelu_tanh") return Activation::kGeluTanh;
    if (name == "tanh") return Activation::kTanh;
    if (name == "relu") return Activation::kRelu;
    if (name == "silu") return Activation::kSilu;
    return std::nullopt;
  }

  Expected<Made> value(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return wrong(fmt::format("a value {} that nothing has made", quote_name(name)));
    return found->second;
  }
  Expected<void> made(const NetworkStep& step, Made value) {
    if (step.out.empty() || !values_.try_emplace(step.out, value).second)
      return wrong(fmt::format("a result {} without a name of its own", quote_name(step.out)));
    return {};
  }
  /// Declares a tensor of the file as a weight, once.
  Expected<std::pair<WeightId, Shape>> weight(const std::string& name, std::size_t dims) {
    const SafeTensor* tensor = parts_.file.find(name);
    if (tensor == nullptr) return wrong(fmt::format("a tensor {} that is not in the file", quote_name(name)));
    if (tensor->shape.size() != dims)
      return wrong(fmt::format("tensor {} of {} dimensions, not {}", quote_name(name), tensor->shape.size(), dims));
    const auto [at, fresh] = weights_.try_emplace(name, kNoId);
    if (fresh) at->second = builder_.weight(name, tensor->shape);
    return std::pair(at->second, tensor->shape);
  }
  Expected<WeightId> row(const std::string& name, std::int64_t width) {
    DLLM_TRY(const auto found, weight(name, 1));
    if (found.second[0] != width)
      return wrong(fmt::format("tensor {} of {} numbers for rows of {}", quote_name(name), found.second[0], width));
    return found.first;
  }

  Expected<void> embed(const NetworkStep& step) {
    DLLM_TRY(const auto table, weight(step.weight, 2));
    return made(step, {builder_.embed(table.first, step.out), table.second[0], false});
  }
  Expected<void> input(const NetworkStep& step) {
    if (next_input_ == parts_.inputs.size() || parts_.inputs[next_input_].name != step.x)
      return wrong(fmt::format("an input {} that is not the next one", quote_name(step.x)));
    const std::int64_t width = parts_.inputs[next_input_++].width;
    return made(step, {builder_.hidden_in(width, step.out), width, false});
  }
  Expected<void> linear(const NetworkStep& step) {
    DLLM_TRY(const Made x, value(step.x));
    DLLM_TRY(const auto matrix, weight(step.weight, 2));
    if (matrix.second[0] != x.width)
      return wrong(fmt::format("tensor {} for rows of {}, {} has {}", quote_name(step.weight), matrix.second[0],
                               quote_name(step.x), x.width));
    WeightId bias = kNoId;
    if (!step.bias.empty()) {
      DLLM_TRY(bias, row(step.bias, matrix.second[1]));
    }
    return made(step, {builder_.linear(x.id, matrix.first, step.out, bias), matrix.second[1], x.scored});
  }
  Expected<void> norm(const NetworkStep& step) {
    DLLM_TRY(const Made x, value(step.x));
    DLLM_TRY(const WeightId gain, row(step.weight, x.width));
    if (!(step.number >= 0 && step.number <= 1)) return wrong(fmt::format("an epsilon of {}", step.number));
    const auto eps = static_cast<float>(step.number);
    if (step.op == "rms_norm") return made(step, {builder_.rms_norm(x.id, gain, eps, step.out), x.width, x.scored});
    DLLM_TRY(const WeightId bias, row(step.bias, x.width));
    return made(step, {builder_.layer_norm(x.id, gain, bias, eps, step.out), x.width, x.scored});
  }
  Expected<std::pair<Made, Made>> alike(const std::string& a, const std::string& b) const {
    DLLM_TRY(const Made first, value(a));
    DLLM_TRY(const Made second, value(b));
    if (first.width != second.width)
      return wrong(
          fmt::format("{} and {} of {} and {} columns", quote_name(a), quote_name(b), first.width, second.width));
    if (first.scored != second.scored)
      return wrong(fmt::format("{} and {}, of which only one has gathered rows", quote_name(a), quote_name(b)));
    return std::pair(first, second);
  }
  Expected<void> sum(const NetworkStep& step) {
    DLLM_TRY(const auto both, alike(step.x, step.y));
    return made(step, {builder_.add(both.first.id, both.second.id, step.out), both.first.width, both.first.scored});
  }
  Expected<void> activate(const NetworkStep& step, Activation activation) {
    DLLM_TRY(const Made x, value(step.x));
    ValueId up = kNoId;
    if (!step.y.empty()) {
      DLLM_TRY(const auto both, alike(step.x, step.y));
      up = both.second.id;
    }
    return made(step, {builder_.glu(x.id, up, step.out, activation), x.width, x.scored});
  }
  Expected<void> attention(const NetworkStep& step) {
    DLLM_TRY(const Made q, value(step.x));
    DLLM_TRY(const auto kv, alike(step.y, step.z));
    const std::int64_t heads = step.heads, kv_heads = step.kv_heads, dim = step.head_dim;
    if (heads < 1 || kv_heads < 1 || dim < 1 || heads > kMostWidth || dim > kMostWidth || heads % kv_heads != 0 ||
        heads * dim != q.width || kv_heads * dim != kv.first.width || q.scored || kv.first.scored)
      return wrong(fmt::format("{} heads of {} columns, {} of keys and values, over rows of {} and {}", heads, dim,
                               kv_heads, q.width, kv.first.width));
    if (!std::isfinite(step.number)) return wrong(fmt::format("a scale of {}", step.number));
    builder_.store_kv(kv.first.id, kv.second.id, layers_);
    op::Attention spec{};
    spec.layer = layers_++;
    spec.heads = static_cast<std::int32_t>(heads), spec.kv_heads = static_cast<std::int32_t>(kv_heads);
    spec.head_dim = static_cast<std::int32_t>(dim), spec.scale = static_cast<float>(step.number);
    return made(step, {builder_.attention(q.id, spec, step.out), q.width, false});
  }
  Expected<void> gather(const NetworkStep& step) {
    DLLM_TRY(const Made x, value(step.x));
    if (x.scored) return wrong(fmt::format("{} has gathered rows already", quote_name(step.x)));
    if (!parts_.scores) return wrong("rows are gathered, but 'scored' names none");
    return made(step, {builder_.gather_scored(x.id, step.out), x.width, true});
  }
  Expected<void> output(const NetworkStep& step) {
    DLLM_TRY(const Made x, value(step.x));
    // Where all rows are scored, only this tells the two apart; with other rows they do not fit each other.
    if (hands_scored_.value_or(x.scored) != x.scored)
      return wrong(fmt::format("{} has {} rows, unlike the results before it", quote_name(step.x),
                               x.scored ? "gathered" : "all"));
    hands_scored_ = x.scored;
    if (++results_ > kMostNetworkArrays) return wrong(fmt::format("more than {} results", kMostNetworkArrays));
    builder_.hidden_out(x.id);
    return {};
  }

  const NetworkParts& parts_;
  GraphBuilder builder_;
  std::map<std::string, Made> values_;
  std::map<std::string, WeightId> weights_;
  std::size_t next_input_ = 0, results_ = 0;
  std::optional<bool> hands_scored_;  ///< whether results have gathered rows; nullopt: there is none yet
  std::int32_t layers_ = 0;
};

Expected<Graph> build_graph(const NetworkParts& parts, StepShape shape) {
  NetworkGraph graph(parts, shape);
  for (std::size_t i = 0; i < parts.steps.size(); ++i)
    if (const Expected<void> added = graph.add(parts.steps[i]); !added)
      return Error{ErrorCode::kInvalidFile, fmt::format("operator {}: {}", i, added.error().what), "", ""};
  Graph made = graph.take();
  if (const std::string fault = validate(made); !fault.empty())
    return Error{ErrorCode::kInvalidFile, "the operators do not fit each other: " + fault, "", ""};
  if (hidden_width(made) == 0) return Error{ErrorCode::kInvalidFile, "no operator hands out a result", "", ""};
  return made;
}

/// The number of rows of the smallest table that token ids choose from.
std::int64_t most_ids(const Graph& graph) {
  std::int64_t most = std::numeric_limits<TokenId>::max();
  for (const Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Embed>(&any)) most = std::min(most, graph.weight(o->table).shape[1]);
  return most;
}

}  // namespace

Expected<std::shared_ptr<const Network>> read_network(Safetensors file) {
  const auto text = file.metadata().find(kNetworkKey);
  if (text == file.metadata().end())
    return Error{ErrorCode::kInvalidFile, fmt::format("the file's header has no '{}'", kNetworkKey), "",
                 "a network is written by python3 -m dllm.networks FILE.onnx"};
  DLLM_TRY(const Json json, read_json<Json>(text->second, {.name = kNetworkKey}));
  auto network = std::make_shared<Network>();
  network->file = std::move(file);
  auto parts = std::make_shared<NetworkParts>();
  DLLM_TRY(parts->steps, read_network_json(json, *network));
  parts->file = network->file;
  parts->scores = !network->scored.empty();
  for (const NetworkInput& in : network->inputs)
    if (in.kind != NetworkInput::Kind::kTokens) parts->inputs.push_back({in.name, in.width});
  DLLM_TRY(const Graph graph, build_graph(*parts, network->step()));
  // Batches and parts of a step have other rows; here gathered ones differ from the others in number.
  DLLM_CHECK_OK(build_graph(*parts, {2, 1}));
  for (const WeightDecl& decl : graph.weights) {
    const SafeTensor* tensor = network->file.find(decl.name);
    network->weights.push_back({tensor->type, tensor->shape, tensor->data, false});
  }
  network->ids = most_ids(graph);
  network->handed = (hands_out_scored(graph) ? graph.shape.scored : graph.shape.rows) * hidden_width(graph);
  DLLM_CHECK_OK(check_network_arrays(*network, graph));
  network->architecture.name = "network";
  network->architecture.build = [parts = std::shared_ptr<const NetworkParts>(std::move(parts))](const ModelDesc&,
                                                                                                StepShape shape) {
    return *build_graph(*parts, shape);  // as above, with other rows
  };
  network->desc.name = network->name;
  network->desc.layers = 1;
  network->desc.context_length = network->rows;
  network->desc.vocab = 0;
  return std::shared_ptr<const Network>(std::move(network));
}

const NetworkInput* Network::input(std::string_view input_name) const {
  for (const NetworkInput& in : inputs)
    if (in.name == input_name) return &in;
  return nullptr;
}

Expected<std::shared_ptr<const Network>> load_network(const std::string& path) {
  if (path.ends_with(".onnx"))
    return Error{ErrorCode::kUnsupported, "ONNX files are translated first, by the package onnx of PyPI or Debian",
                 path, fmt::format("python3 -m dllm.networks {} -o network.safetensors", path)};
  const auto located = [&path](Error error) {
    if (!error.where.starts_with(path)) error.where = path + (error.where.empty() ? "" : ", " + error.where);
    if (error.hint.empty()) error.hint = "the file is damaged: translate the network again";
    return error;
  };
  Expected<Safetensors> file = Safetensors::open(path);
  if (!file) return located(file.error());
  Expected<std::shared_ptr<const Network>> network = read_network(std::move(*file));
  if (!network) return located(network.error());
  return network;
}

}  // namespace dllm::npu
