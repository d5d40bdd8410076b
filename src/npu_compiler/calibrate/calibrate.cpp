#include "npu_compiler/calibrate/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "base/integers.h"
#include "base/parse_text.h"
#include "base/try.h"
#include "graph/builder.h"
#include "npu_compiler/answers/host_cpu.h"
#include "npu_compiler/calibrate/further_fits.h"
#include "npu_compiler/calibrate/plausible.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

/// The parameters of a fit: costs in microseconds, and the reciprocals of rates.
enum Parameter : std::size_t {
  kDispatch,
  kMultiply,
  kUnpack,
  kTransfer,
  kMap,
  kMapPage,
  kInt8,
  kF16,
  kF32,
  kHostMemory,
  kParameters
};

struct ParameterKey {
  std::string_view key, unit;
  bool rate;
  double& (*of)(Device&);
};

constexpr ParameterKey kKeys[kParameters] = {
    {"host.dispatch_us", "us", false, [](Device& d) -> double& { return d.host.dispatch_us; }},
    {"array.macs_per_pe", "", true, [](Device& d) -> double& { return d.array.macs_per_pe; }},
    {"host.dequantize_gbps", "GB/s", true, [](Device& d) -> double& { return d.host.dequantize_gbps; }},
    {"memory.dma_gbps", "GB/s", true, [](Device& d) -> double& { return d.memory.dma_gbps; }},
    {"window.map_us", "us", false, [](Device& d) -> double& { return d.window.map_us; }},
    {"window.map_us_per_page", "us", false, [](Device& d) -> double& { return d.window.map_us_per_page; }},
    {"host.int8_gops", "GOP/s", true, [](Device& d) -> double& { return d.host.int8_gops; }},
    {"host.f16_gflops", "GFLOP/s", true, [](Device& d) -> double& { return d.host.f16_gflops; }},
    {"host.f32_gflops", "GFLOP/s", true, [](Device& d) -> double& { return d.host.f32_gflops; }},
    {"host.memory_gbps", "GB/s", true, [](Device& d) -> double& { return d.host.memory_gbps; }}};

bool same(const LinearForm& a, const LinearForm& b) { return a.constant == b.constant && a.terms == b.terms; }

/// Layers repeat: equal operators are counted.
void add_operator(MeasuredTime& time, std::vector<LinearForm> forms) {
  for (MeasuredTime::Operator& one : time.operators)
    if (std::ranges::equal(one.forms, forms, same)) {
      one.count += 1;
      return;
    }
  time.operators.push_back({std::move(forms), 1});
}

/// What measurements would take on a device, as functions of the parameters.
class TimeModel {
 public:
  static Expected<TimeModel> create(const Device& device, const StepTimer::GraphFactory& graph) {
    TimeModel model(device, graph);
    DLLM_CHECK_OK(check_modelled(device));
    Device unlimited = device;
    unlimited.memory.dma_gbps = 0;
    DLLM_TRY(model.dram_gbps_, achieved_bandwidth(unlimited));
    return model;
  }

  double dram_gbps() const { return dram_gbps_; }

  Expected<MeasuredTime> gemm(const Measurements::Gemm& m) const {
    MeasuredTime time{m.us * 1e-6, 0, {}};
    DLLM_CHECK_OK(add_device_operators(product_graph(m), {1, m.rows, 0, 1}, time));
    return time;
  }

  /// With room for the largest of the steps.
  Expected<StepTimer> timer(const std::vector<Measurements::MeasuredStep>& steps) const {
    StepTotals most{1, 1, 0, 1};
    for (const Measurements::MeasuredStep& m : steps) {
      most.rows = std::max(most.rows, m.rows);
      most.keys = std::max(most.keys, m.keys);
    }
    return StepTimer::create(device_, graph_, most, {});
  }

  /// `timer`: of this device, for its buckets, waiting and the host's part.
  Expected<MeasuredTime> step(const Measurements::MeasuredStep& m, StepTimer& timer) const {
    MeasuredTime time{m.us * 1e-6, 0, {}};
    const StepTotals work{1, m.rows, m.rows, m.keys};
    DLLM_TRY(const StepTime now, timer.time(work));
    time.constant = now.host + now.staging;
    const StepTotals padded = timer.bucket(work);
    DLLM_CHECK_OK(add_device_operators(graph_({.rows = padded.rows, .scored = padded.scored}), padded, time));
    return time;
  }

  MeasuredTime mapping(const Measurements::Mapping& m) const {
    const auto pages = static_cast<double>(ceil_div(m.bytes, device_.window.page_bytes));
    return {m.us * 1e-6, 0, {{{{0, {{kMap, 1e-6}, {kMapPage, 1e-6 * pages}}}}, 1}}};
  }

  MeasuredTime host(const Graph& graph, double us, std::int64_t keys) const {
    MeasuredTime time{us * 1e-6, 0, {}};
    for (const Op& op : graph.ops) {
      if (operator_rows(graph, op) == 0) continue;
      const HostAmounts a = host_amounts(graph, device_, op, 1, keys);
      add_operator(time, {{0, {{kInt8, a.int8 * 1e-9}, {kF16, a.f16 * 1e-9}, {kF32, a.f32 * 1e-9}}},
                          {0, {{kHostMemory, a.bytes * 1e-9}}}});
    }
    return time;
  }

  MeasuredTime host_gemm(const Measurements::Gemm& m) const { return host(product_graph(m), m.us, 1); }
  MeasuredTime host_step(const Measurements::MeasuredStep& m) const {
    return host(graph_({.rows = m.rows, .scored = m.rows}), m.us, m.keys);
  }

 private:
  TimeModel(const Device& device, const StepTimer::GraphFactory& graph) : device_(device), graph_(graph) {}

  /// As StepTimer adds them: the longest unit of each operator, and its dispatch.
  Expected<void> add_device_operators(const Graph& graph, const StepTotals& work, MeasuredTime& time) const {
    DLLM_TRY(const CostModel model, CostModel::create(device_, 1));
    const bool host = device_.host.cores > 0;
    DLLM_TRY(const StepCost cost,
             model.evaluate(graph, {.sequences = work.sequences, .keys = work.keys, .fused_head = !host}));
    const double hertz = device_.clock.ghz * 1e9;
    double dispatched = 0;
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const bool looks_up = host && std::holds_alternative<op::Embed>(graph.ops[i]);
      if (looks_up || operator_rows(graph, graph.ops[i]) == 0) continue;
      const OperatorCost& c = cost.operators[i];
      const double unpack_gbps = device_.unpack_gbps(), unpacked = unpack_gbps > 0 ? c.weight_bytes : 0;
      const double own = c.vector / hertz - (unpacked > 0 ? unpacked * 1e-9 / unpack_gbps : 0);
      std::vector<LinearForm> forms = {{0, {{kMultiply, c.matrix * device_.array.macs_per_pe / hertz}}},
                                       {0, {{kTransfer, (c.read_bytes + c.write_bytes) * 1e-9}}}};
      forms.push_back({std::max(own, 0.0), {}});
      if (unpacked > 0) forms.back().terms.emplace_back(kUnpack, unpacked * 1e-9);
      add_operator(time, std::move(forms));
      dispatched += 1;
    }
    const double batches = dispatched / static_cast<double>(device_.host.batch_ops);
    add_operator(time, {{batches * device_.host.batch_us * 1e-6, {{kDispatch, dispatched * 1e-6}}}});
    return {};
  }

  const Device& device_;
  const StepTimer::GraphFactory& graph_;
  double dram_gbps_ = 0;
};

std::string named_step(const char* kind, const Measurements::MeasuredStep& m) {
  return fmt::format("{} of {} rows, {} keys", kind, m.rows, m.keys);
}
std::string named_gemm(const char* kind, const Measurements::Gemm& m) {
  return fmt::format("{} {} x {} x {}", kind, m.rows, m.outputs, m.inputs);
}

/// Groups share no parameters: on the device, on the host, and mappings.
constexpr std::size_t kGroups = 3;
struct TimedGroup {
  std::size_t group = 0;
  std::string_view flag;  ///< that gave it
  MeasuredTime time;
};

Expected<std::vector<TimedGroup>> times_of(const TimeModel& model, const Measurements& all,
                                           std::vector<CalibrationResidual>& residuals) {
  std::vector<TimedGroup> times;
  residuals.clear();
  const auto add = [&](std::size_t group, std::string_view flag, Expected<MeasuredTime> time,
                       std::string what) -> Expected<void> {
    if (!time) return time.error();
    residuals.push_back({std::move(what), time->seconds * 1e6, 0});
    times.push_back({group, flag, *std::move(time)});
    return {};
  };
  for (const auto& m : all.gemms) DLLM_CHECK_OK(add(0, "--gemms", model.gemm(m), named_gemm("gemm", m)));
  for (const auto& m : all.host_gemms)
    DLLM_CHECK_OK(add(1, "--host-gemms", model.host_gemm(m), named_gemm("host gemm", m)));
  std::optional<StepTimer> timer;
  if (!all.steps.empty()) {
    DLLM_TRY(StepTimer made, model.timer(all.steps));
    timer.emplace(std::move(made));
  }
  for (const auto& m : all.steps) DLLM_CHECK_OK(add(0, "--steps", model.step(m, *timer), named_step("step", m)));
  for (const auto& m : all.host_steps)
    DLLM_CHECK_OK(add(1, "--host-steps", model.host_step(m), named_step("host step", m)));
  for (const auto& m : all.mappings)
    DLLM_CHECK_OK(add(2, "--mappings", model.mapping(m), fmt::format("mapping of {} bytes", m.bytes)));
  return times;
}

/// The parameters' values in a profile; what it leaves out (0) begins with a usual value.
std::vector<double> given_values(Device device, double dram_gbps) {
  // The memory itself limits the device before its DMA engines do.
  if (device.memory.dma_gbps > dram_gbps) device.memory.dma_gbps = dram_gbps;
  std::vector<double> values;
  for (const ParameterKey& one : kKeys) {
    const double value = one.of(device);
    if (one.rate)
      values.push_back(1 / (value > 0 ? value : dram_gbps));
    else
      values.push_back(value > 0 ? value : 1);
  }
  return values;
}

/// Sets what was fitted. Fitted rates are within the keys' ranges, or the key keeps its value.
void set_fitted(const PiecewiseFit& fit, double dram_gbps, Device& device, std::vector<CalibratedKey>& keys) {
  keys.clear();
  for (std::size_t p = 0; p < kParameters; ++p) {
    const ParameterKey& one = kKeys[p];
    double& value = one.of(device);
    CalibratedKey key{std::string(one.key), std::string(one.unit), value, fit.parameters[p], {}};
    for (const std::size_t other : key.fit.with) key.with.emplace_back(kKeys[other].key);
    key.fit.value = value;
    if (determined(key.fit)) {
      const double fitted = fit.parameters[p].value;
      key.fit.value = value = six_digits(one.rate ? 1 / fitted : fitted);
      if (p == kTransfer) key.fit.value = value = std::min(value, dram_gbps);
    }
    keys.push_back(std::move(key));
  }
  device.derive();
}

/// Every group by itself: fewer parameters are searched together.
PiecewiseFit fit_groups(const std::vector<TimedGroup>& times, const std::vector<double>& given) {
  PiecewiseFit all;
  all.parameters.resize(given.size());
  for (std::size_t p = 0; p < given.size(); ++p) {
    all.parameters[p].value = given[p];
    all.parameters[p].state = FittedParameter::State::kUnused;
  }
  for (std::size_t group = 0; group < kGroups; ++group) {
    std::vector<MeasuredTime> measured;
    for (const TimedGroup& one : times)
      if (one.group == group) measured.push_back(one.time);
    if (measured.empty()) continue;
    const PiecewiseFit fit = fit_piecewise(measured, given);
    for (std::size_t p = 0; p < given.size(); ++p)
      if (fit.parameters[p].state != FittedParameter::State::kUnused) all.parameters[p] = fit.parameters[p];
  }
  return all;
}

}  // namespace

double six_digits(double value) { return parse_double(fmt::format("{:.6g}", value)).value_or(value); }

Graph product_graph(const Measurements::Gemm& m) {
  GraphBuilder builder({.rows = m.rows, .scored = 1});
  const ValueId x = builder.embed(builder.weight("table", {m.inputs, 2}), "x");
  builder.linear(x, builder.weight("weight", {m.inputs, m.outputs}), "y");
  Graph graph = builder.take();
  std::erase_if(graph.ops, [](const Op& op) { return std::holds_alternative<op::Embed>(op); });
  return graph;
}

bool determined(const FittedParameter& parameter) {
  return parameter.state == FittedParameter::State::kFitted || parameter.state == FittedParameter::State::kBounded;
}

namespace {

/// Every time against the profile's, before anything is fitted.
Expected<void> check_units(const std::vector<TimedGroup>& times, const std::vector<CalibrationResidual>& residuals,
                           const std::vector<double>& given) {
  for (std::size_t i = 0; i < times.size(); ++i)
    DLLM_CHECK_OK(check_plausible(times[i].flag, residuals[i].what, residuals[i].measured,
                                  model_seconds(times[i].time, given) * 1e6));
  return {};
}

/// Times of one processor. Precondition: there are some.
Expected<void> fit_times(const Device& device, const StepTimer::GraphFactory& graph, const Measurements& m,
                         Calibration& result) {
  // Waiting for mappings and the host's part of a step follow from the fitted keys, so they are found by repetition.
  for (int round = 0; round < (m.steps.empty() ? 1 : 4); ++round) {
    const Device now = result.device;
    DLLM_TRY(const TimeModel model, TimeModel::create(now, graph));
    DLLM_TRY(const auto times, times_of(model, m, result.residuals));
    const std::vector<double> given = given_values(device, model.dram_gbps());
    if (round == 0) DLLM_CHECK_OK(check_units(times, result.residuals, given));
    const PiecewiseFit fit = fit_groups(times, given);
    result.device = device;
    set_fitted(fit, model.dram_gbps(), result.device, result.keys);
  }
  const Device fitted = result.device;
  DLLM_TRY(const TimeModel model, TimeModel::create(fitted, graph));
  DLLM_TRY(const auto times, times_of(model, m, result.residuals));
  const std::vector<double> values = given_values(fitted, model.dram_gbps());
  for (std::size_t i = 0; i < times.size(); ++i) result.residuals[i].model = model_seconds(times[i].time, values) * 1e6;
  return {};
}

}  // namespace

Expected<Calibration> calibrate(const Device& device, const StepTimer::GraphFactory& graph,
                                const Measurements& measurements) {
  const Measurements& m = measurements;
  const bool times =
      !(m.gemms.empty() && m.host_gemms.empty() && m.steps.empty() && m.host_steps.empty() && m.mappings.empty());
  const bool energies = !(m.gemm_energies.empty() && m.step_energies.empty() && m.host_step_energies.empty());
  if (!times && !energies && m.shared_steps.empty())
    return Error{ErrorCode::kUsage, "there is nothing to fit", "",
                 "give --gemms, --steps, --mappings, those of the host, --shared-steps, or energies"};
  if (device.host.cores == 0 && !(m.host_gemms.empty() && m.host_steps.empty() && m.host_step_energies.empty()))
    return Error{ErrorCode::kUnsupported, "the profile describes no host processor", "device " + device.name,
                 "begin with a phone such as mobile-sm8750"};
  Calibration result;
  result.device = device;
  if (times) DLLM_CHECK_OK(fit_times(device, graph, m, result));
  DLLM_CHECK_OK(fit_shared_memory(graph, m.shared_steps, result));
  DLLM_CHECK_OK(fit_energy(graph, m, result));
  for (const CalibrationResidual& one : result.residuals) {
    const double relative = one.model / one.measured - 1;
    result.rms += relative * relative;
    result.worst = std::max(result.worst, std::abs(relative));
  }
  result.rms = std::sqrt(result.rms / static_cast<double>(result.residuals.size()));
  return result;
}

}  // namespace dllm::npu
