#include "npu_backend/functional/network_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote_name.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

Error wrong_input(std::string what, const Network& network) {
  std::string names;
  for (const NetworkInput& in : network.inputs)
    if (in.kind != NetworkInput::Kind::kConstant)
      names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", quote_name(in.name), fmt::join(in.shape, " x "));
  return {ErrorCode::kUsage, std::move(what), "--input", "the network has " + names};
}

Expected<void> set_tokens(const Network& network, const NetworkInput& in, std::span<const float> ids, StepPlan& plan) {
  for (std::size_t r = 0; r < ids.size(); ++r) {
    if (!(ids[r] >= 0 && ids[r] < static_cast<float>(network.ids) && ids[r] == std::floor(ids[r])))
      return wrong_input(fmt::format("{} has {}, which is none of {} ids", quote_name(in.name), ids[r], network.ids),
                         network);
    plan.rows[r].token = static_cast<TokenId>(ids[r]);
  }
  return {};
}

}  // namespace

Expected<StepPlan> network_plan(const Network& network, std::span<const NetworkSample> inputs) {
  StepPlan plan;
  for (std::int64_t r = 0; r < network.rows; ++r) plan.rows.push_back({static_cast<Position>(r), 0});
  plan.visible = {{0, static_cast<Position>(network.visible)}};
  plan.causal_block = network.causal ? 1 : 0;
  plan.scored = network.scored;
  std::int64_t columns = 0, first = 0;
  for (const NetworkInput& in : network.inputs)
    if (in.kind != NetworkInput::Kind::kTokens) columns += in.width;
  plan.hidden.resize(to_size(network.rows * columns));
  for (const NetworkSample& given : inputs)
    if (const NetworkInput* in = network.input(given.name); in == nullptr || in->kind == NetworkInput::Kind::kConstant)
      return wrong_input(fmt::format("there is no input {}", quote_name(given.name)), network);
  for (const NetworkInput& in : network.inputs) {
    const auto given = std::ranges::find(inputs, in.name, &NetworkSample::name);
    std::int64_t count = 1;
    for (const std::int64_t dim : in.shape) count *= dim;
    if (in.kind != NetworkInput::Kind::kConstant &&
        (given == inputs.end() || static_cast<std::int64_t>(given->values.size()) != count))
      return wrong_input(fmt::format("{} numbers for {}, which needs {}",
                                     given == inputs.end() ? 0 : given->values.size(), quote_name(in.name), count),
                         network);
    if (in.kind == NetworkInput::Kind::kTokens) {
      DLLM_CHECK_OK(set_tokens(network, in, given->values, plan));
      continue;
    }
    for (std::int64_t r = 0; r < network.rows; ++r)
      for (std::int64_t c = 0; c < in.width; ++c) {
        const std::size_t at = to_size(r * in.width + c);
        float& target = plan.hidden[to_size(r * columns + first + c)];
        if (in.kind == NetworkInput::Kind::kConstant)
          target = in.values[at];
        else
          target = in.from[at] < 0 ? 0.0f : given->values[to_size(in.from[at])];
      }
    first += in.width;
  }
  return plan;
}

Expected<std::vector<NetworkSample>> run_network(Backend& backend, const Network& network,
                                                 std::span<const NetworkSample> inputs) {
  SequenceStep step;
  DLLM_TRY(step.plan, network_plan(network, inputs));
  DLLM_TRY(const std::unique_ptr<KvCache> cache, backend.make_cache(static_cast<Position>(network.rows)));
  step.cache = cache.get();
  step.request.hidden = true;
  DLLM_TRY(const std::vector<Scores> scores, backend.forward({&step, 1}));
  const std::vector<float>& hidden = scores.front().hidden;
  if (static_cast<std::int64_t>(hidden.size()) != network.handed)
    return Error{ErrorCode::kMismatch,
                 fmt::format("the backend hands out {} numbers, the network {}", hidden.size(), network.handed),
                 quote_name(network.name), "the backend must have been made of the network's graph"};
  std::vector<NetworkSample> outputs;
  for (const NetworkOutput& out : network.outputs) {
    NetworkSample& made = outputs.emplace_back(NetworkSample{out.name, {}});
    for (const std::int64_t i : out.from) made.values.push_back(hidden[to_size(i)]);
  }
  return outputs;
}

NetworkDifference difference(std::span<const float> values, std::span<const float> expected) {
  NetworkDifference result;
  double squares = 0, all = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = static_cast<double>(expected[i]), d = static_cast<double>(values[i]) - e;
    if (std::isnan(d)) return {d, d};
    result.largest = std::max(result.largest, std::abs(d));
    squares += d * d;
    all += e * e;
  }
  result.relative = std::sqrt(squares / std::max(all, std::numeric_limits<double>::min()));
  return result;
}

}  // namespace dllm::npu
