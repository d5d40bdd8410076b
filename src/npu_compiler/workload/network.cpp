#include "npu_compiler/workload/network.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_reader.h"
#include "base/quote_name.h"
#include "base/try.h"
#include "graph/builder.h"
#include "npu_compiler/workload/network_json.h"

namespace dllm::npu {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostWidth = 1 << 20;

/// An operator of the file, with its names resolved as the graph is built.
using Steps = std::vector<NetworkStep>;

/// Builds a graph from a file's operators. Unknown names and sizes that do not fit are errors before the builder sees
/// them.
class NetworkGraph {
 public:
  NetworkGraph(const Safetensors& file, const std::vector<NetworkInput>& inputs, StepShape shape)
      : file_(file), inputs_(inputs), builder_(shape) {}

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
    const SafeTensor* tensor = file_.find(name);
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
    for (; next_input_ < inputs_.size(); ++next_input_) {
      const NetworkInput& in = inputs_[next_input_];
      if (in.kind == NetworkInput::Kind::kTokens) continue;
      if (in.name != step.x) break;
      ++next_input_;
      return made(step, {builder_.hidden_in(in.width, step.out), in.width, false});
    }
    return wrong(fmt::format("an input {} that is not the next one", quote_name(step.x)));
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
    if (first.width != second.width || first.scored != second.scored)
      return wrong(
          fmt::format("{} and {} of {} and {} columns", quote_name(a), quote_name(b), first.width, second.width));
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
    return made(step, {builder_.gather_scored(x.id, step.out), x.width, true});
  }
  Expected<void> output(const NetworkStep& step) {
    DLLM_TRY(const Made x, value(step.x));
    if (++results_ > kMostNetworkArrays) return wrong(fmt::format("more than {} results", kMostNetworkArrays));
    builder_.hidden_out(x.id);
    return {};
  }

  const Safetensors& file_;
  const std::vector<NetworkInput>& inputs_;
  GraphBuilder builder_;
  std::map<std::string, Made> values_;
  std::map<std::string, WeightId> weights_;
  std::size_t next_input_ = 0, results_ = 0;
  std::int32_t layers_ = 0;
};

Expected<Graph> build_graph(const Safetensors& file, const std::vector<NetworkInput>& inputs, const Steps& steps,
                            StepShape shape) {
  NetworkGraph graph(file, inputs, shape);
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (const Expected<void> added = graph.add(steps[i]); !added)
      return Error{ErrorCode::kInvalidFile, fmt::format("operator {}: {}", i, added.error().what), "", ""};
  Graph made = graph.take();
  if (const std::string fault = validate(made); !fault.empty())
    return Error{ErrorCode::kInvalidFile, "the operators do not fit each other: " + fault, "", ""};
  if (hidden_width(made) == 0) return Error{ErrorCode::kInvalidFile, "no operator hands out a result", "", ""};
  return made;
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
  DLLM_TRY(const Steps steps, read_network_json(json, *network));
  DLLM_TRY(const Graph graph, build_graph(network->file, network->inputs, steps, network->step()));
  for (const WeightDecl& decl : graph.weights) {
    const SafeTensor* tensor = network->file.find(decl.name);
    network->weights.push_back({tensor->type, tensor->shape, tensor->data, false});
  }
  DLLM_CHECK_OK(check_network_arrays(*network, graph));
  network->architecture.name = "network";
  network->architecture.build = [file = network->file, inputs = network->inputs, steps](const ModelDesc&,
                                                                                        StepShape shape) {
    return *build_graph(file, inputs, steps, shape);  // as above, with other rows
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
    if (error.where.empty()) error.where = path;
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
