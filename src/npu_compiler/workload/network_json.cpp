#include "npu_compiler/workload/network_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "base/json_object.h"
#include "base/quote_name.h"
#include "base/to_size.h"
#include "base/try.h"
#include "model/weights.h"
#include "numerics/tensor_type.h"

namespace dllm::npu {
namespace {

using Json = nlohmann::json;

constexpr int kNetworkVersion = 1;
constexpr std::int64_t kMostNetworkRows = 1 << 16, kMostArray = std::int64_t{1} << 24;
constexpr std::size_t kMostSteps = 1 << 16;
/// Of all inputs, and of all outputs: each may name the same tensor, and becomes an array of its own.
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 26;

Error bad(std::string what) { return {ErrorCode::kInvalidFile, std::move(what), "", ""}; }

/// Reads a key that may be absent into `target`, which stays as it is then.
template <class T>
Expected<void> keep(Expected<std::optional<T>> found, T& target) {
  if (!found) return std::move(found).error();
  if (*found) target = **std::move(found);
  return {};
}

/// An absent list is empty.
Expected<std::vector<std::int64_t>> read_counts(JsonObject& members, const char* key) {
  if (!members.contains(key)) return std::vector<std::int64_t>();
  return members.integers(key, 0, kMostArray);
}

std::vector<float> decoded(const SafeTensor& tensor) {
  std::vector<float> values(to_size(element_count(tensor.shape)));
  codec(tensor.type).dequantize(tensor.data.data(), values.data(), static_cast<std::int64_t>(values.size()));
  return values;
}

/// The tensor's `count` numbers. Any other count is refused before anything is decoded.
Expected<std::vector<float>> numbers(const Safetensors& file, const std::string& name, std::int64_t count) {
  const SafeTensor* tensor = file.find(name);
  if (tensor == nullptr) return bad(fmt::format("a tensor {} that is not in the file", quote_name(name)));
  if (element_count(tensor->shape) != count)
    return bad(fmt::format("tensor {} has {} numbers, not {}", quote_name(name), element_count(tensor->shape), count));
  return decoded(*tensor);
}

/// Indices are stored as numbers; -1 is allowed if `zeros`.
Expected<std::vector<std::int64_t>> indices(const Safetensors& file, const std::string& name, std::int64_t count,
                                            bool zeros) {
  DLLM_TRY(const std::vector<float> values, numbers(file, name, count));
  std::vector<std::int64_t> result;
  for (const float value : values) {
    if (!(value >= (zeros ? -1.0f : 0.0f) && value < static_cast<float>(kMostArray) && value == std::floor(value)))
      return bad(fmt::format("tensor {} has {}, which is no index", quote_name(name), value));
    result.push_back(static_cast<std::int64_t>(value));
  }
  return result;
}

Expected<std::int64_t> elements(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 1) return bad(fmt::format("an array with a dimension of {}", dim));
    if ((n *= dim) > kMostArray) return bad(fmt::format("an array of more than {} numbers", kMostArray));
  }
  return n;
}

Expected<NetworkStep> read_step(const Json& json, std::size_t index) {
  DLLM_TRY(JsonObject members, JsonObject::of(json, fmt::format("operator {}", index)));
  NetworkStep step;
  DLLM_TRY(step.op, members.text("op"));
  for (const auto& [key, target] : {std::pair{"x", &step.x},
                                    {"y", &step.y},
                                    {"z", &step.z},
                                    {"weight", &step.weight},
                                    {"bias", &step.bias},
                                    {"out", &step.out}})
    DLLM_CHECK_OK(keep(members.optional_text(key), *target));
  DLLM_CHECK_OK(keep(members.optional_number("number"), step.number));
  for (const auto& [key, target] :
       {std::pair{"heads", &step.heads}, {"kv_heads", &step.kv_heads}, {"head_dim", &step.head_dim}})
    DLLM_CHECK_OK(keep(members.optional_integer(key, 0, kMostArray), *target));
  DLLM_CHECK_OK(members.finish());
  return step;
}

/// What is left of the numbers that all arrays of one kind may have, and the names that are taken.
class Arrays {
 public:
  explicit Arrays(const char* what) : what_(what) {}

  Expected<void> add(const std::string& name, std::int64_t numbers) {
    if (!names_.insert(name).second) return bad(fmt::format("two {}s {}", what_, quote_name(name)));
    if (names_.size() > kMostNetworkArrays) return bad(fmt::format("more than {} {}s", kMostNetworkArrays, what_));
    if (numbers > left_) return bad(fmt::format("{}s of more than {} numbers", what_, kMostNumbers));
    left_ -= numbers;
    return {};
  }

 private:
  const char* what_;
  std::set<std::string> names_;
  std::int64_t left_ = kMostNumbers;
};

Expected<NetworkInput> read_input(const Json& json, std::size_t index, const Network& network, Arrays& arrays) {
  DLLM_TRY(JsonObject members, JsonObject::of(json, fmt::format("input {}", index)));
  NetworkInput in;
  std::string kind, tensor;
  DLLM_TRY(in.name, members.text("name"));
  DLLM_TRY(kind, members.text("kind"));
  DLLM_TRY(in.shape, read_counts(members, "shape"));
  DLLM_CHECK_OK(keep(members.optional_integer("width", 0, kMostArray), in.width));
  DLLM_CHECK_OK(keep(members.optional_text("tensor"), tensor));
  if (tensor.empty() && kind != "tokens") return members.error("tensor", "numbers without a tensor");
  DLLM_CHECK_OK(members.finish());
  const std::int64_t count = network.rows * in.width;  // below 2^40
  DLLM_CHECK_OK(arrays.add(in.name, kind == "tokens" ? 0 : count));
  if (kind == "tokens") {
    in.kind = NetworkInput::Kind::kTokens;
  } else if (kind == "rows") {
    DLLM_TRY(in.from, indices(network.file, tensor, count, true));
  } else if (kind == "constant") {
    in.kind = NetworkInput::Kind::kConstant;
    DLLM_TRY(in.values, numbers(network.file, tensor, count));
  } else {
    return bad(fmt::format("input {} of an unknown kind {}", quote_name(in.name), quote_name(kind)));
  }
  return in;
}

Expected<NetworkOutput> read_output(const Json& json, std::size_t index, const Network& network, Arrays& arrays) {
  DLLM_TRY(JsonObject members, JsonObject::of(json, fmt::format("output {}", index)));
  NetworkOutput out;
  std::string tensor;
  DLLM_TRY(out.name, members.text("name"));
  DLLM_TRY(out.shape, read_counts(members, "shape"));
  DLLM_TRY(tensor, members.text("tensor"));
  DLLM_CHECK_OK(members.finish());
  DLLM_TRY(const std::int64_t count, elements(out.shape));
  DLLM_CHECK_OK(arrays.add(out.name, count));
  DLLM_TRY(out.from, indices(network.file, tensor, count, false));
  return out;
}

void read_samples(const Network& network, std::string_view prefix, std::vector<NetworkSample>& samples) {
  for (const SafeTensor& tensor : network.file.tensors())
    if (tensor.name.starts_with(prefix)) samples.push_back({tensor.name.substr(prefix.size()), decoded(tensor)});
}

}  // namespace

Expected<std::vector<NetworkStep>> read_network_json(const Json& json, Network& network) {
  DLLM_TRY(JsonObject members, JsonObject::of(json, "the network"));
  std::int64_t version = 0;
  DLLM_TRY(version, members.integer("version", 0, kMostArray));
  if (version != kNetworkVersion)
    return Error{ErrorCode::kUnsupported, fmt::format("version {}; this program reads {}", version, kNetworkVersion),
                 "", "translate the network again with this program's dllm.networks"};
  DLLM_TRY(network.name, members.text("name"));
  DLLM_TRY(network.source, members.text("source"));
  DLLM_TRY(network.rows, members.integer("rows", 0, kMostNetworkRows));
  DLLM_TRY(network.visible, members.integer("visible", 0, kMostNetworkRows));
  DLLM_CHECK_OK(keep(members.optional_boolean("causal"), network.causal));
  DLLM_TRY(const std::vector<std::int64_t> scored, read_counts(members, "scored"));
  if (network.rows < 1 || network.visible < 1 || network.visible > network.rows)
    return bad(fmt::format("{} rows, of which attention sees {}", network.rows, network.visible));
  for (const std::int64_t row : scored) {
    if (row >= network.rows || (!network.scored.empty() && row <= network.scored.back()))
      return bad("'scored' is no ascending list of rows");
    network.scored.push_back(static_cast<std::int32_t>(row));
  }
  DLLM_TRY(network.left_out, members.texts("fixed"));
  DLLM_TRY(const Json* inputs, members.list("inputs"));
  Arrays taken_inputs("input"), taken_outputs("output");
  for (const Json& one : *inputs) {
    DLLM_TRY(NetworkInput in, read_input(one, network.inputs.size(), network, taken_inputs));
    network.inputs.push_back(std::move(in));
  }
  DLLM_TRY(const Json* outputs, members.list("outputs"));
  for (const Json& one : *outputs) {
    DLLM_TRY(NetworkOutput out, read_output(one, network.outputs.size(), network, taken_outputs));
    network.outputs.push_back(std::move(out));
  }
  DLLM_TRY(const Json* ops, members.list("ops"));
  DLLM_CHECK_OK(members.finish());
  if (ops->size() > kMostSteps) return bad(fmt::format("{} operators; {} are the most", ops->size(), kMostSteps));
  std::vector<NetworkStep> steps;
  for (const Json& one : *ops) {
    DLLM_TRY(NetworkStep step, read_step(one, steps.size()));
    steps.push_back(std::move(step));
  }
  read_samples(network, "sample.input.", network.sample_inputs);
  read_samples(network, "sample.output.", network.sample_outputs);
  return steps;
}

Expected<void> check_network_arrays(const Network& network, const Graph& graph) {
  std::int64_t columns = 0, tokens = 0;
  for (const NetworkInput& in : network.inputs) {
    DLLM_TRY(const std::int64_t n, elements(in.shape));
    if (in.kind == NetworkInput::Kind::kTokens) {
      if (++tokens > 1 || n != network.rows)
        return bad(fmt::format("input {} of {} token ids for {} rows", quote_name(in.name), n, network.rows));
      continue;
    }
    columns += in.width;
    if (in.width < 1) return bad(fmt::format("input {} without columns", quote_name(in.name)));
    for (const std::int64_t i : in.from)
      if (i >= n) return bad(fmt::format("input {}: index {} of {} numbers", quote_name(in.name), i, n));
  }
  if (columns != hidden_in_width(graph)) return bad("an input that no operator reads");
  if (tokens == 0)
    for (const Op& any : graph.ops)
      if (std::holds_alternative<op::Embed>(any)) return bad("an embedding, but no input of tokens");
  if (network.outputs.empty()) return bad("no outputs");
  for (const NetworkOutput& out : network.outputs) {
    for (const std::int64_t i : out.from)
      if (i >= network.handed)
        return bad(fmt::format("output {}: index {} of {} numbers", quote_name(out.name), i, network.handed));
  }
  for (const NetworkSample& sample : network.sample_inputs) {
    const NetworkInput* in = network.input(sample.name);
    DLLM_TRY(const std::int64_t n, elements(in == nullptr ? std::vector<std::int64_t>{} : in->shape));
    if (in == nullptr || static_cast<std::int64_t>(sample.values.size()) != n)
      return bad(
          fmt::format("a sample of an input {} that does not exist or has another size", quote_name(sample.name)));
  }
  for (const NetworkSample& sample : network.sample_outputs) {
    const auto fits = [&](const NetworkOutput& out) {
      return out.name == sample.name && out.from.size() == sample.values.size();
    };
    if (std::none_of(network.outputs.begin(), network.outputs.end(), fits))
      return bad(
          fmt::format("a sample of an output {} that does not exist or has another size", quote_name(sample.name)));
  }
  return {};
}

}  // namespace dllm::npu
