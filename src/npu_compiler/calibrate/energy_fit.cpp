// The keys of energy: linear least squares of measured joules.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/try.h"
#include "npu_compiler/calibrate/further_fits.h"

namespace dllm::npu {
namespace {

struct EnergyKey {
  const char *key, *unit;
  double& (*of)(Device&);
};

constexpr EnergyKey kMac = {"energy.mac_pj", "pJ", [](Device& d) -> double& { return d.energy.mac_pj; }};
constexpr EnergyKey kLane = {"energy.vector_lane_pj", "pJ",
                             [](Device& d) -> double& { return d.energy.vector_lane_pj; }};
constexpr EnergyKey kSram = {"energy.sram_pj_per_byte", "pJ/B",
                             [](Device& d) -> double& { return d.energy.sram_pj_per_byte; }};
constexpr EnergyKey kTraffic[] = {
    {"energy.dram_read_pj_per_byte", "pJ/B", [](Device& d) -> double& { return d.energy.dram_read_pj_per_byte; }},
    {"energy.dram_write_pj_per_byte", "pJ/B", [](Device& d) -> double& { return d.energy.dram_write_pj_per_byte; }},
    {"energy.dram_activate_pj", "pJ", [](Device& d) -> double& { return d.energy.dram_activate_pj; }},
    {"energy.dram_io_pj_per_byte", "pJ/B", [](Device& d) -> double& { return d.energy.dram_io_pj_per_byte; }}};
constexpr EnergyKey kBackground = {"energy.dram_background_mw", "mW",
                                   [](Device& d) -> double& { return d.energy.dram_background_mw; }};
constexpr EnergyKey kStandby[] = {
    {"energy.phy_idle_w", "W", [](Device& d) -> double& { return d.energy.phy_idle_w; }},
    {"energy.leakage_w_per_mm2", "W/mm2", [](Device& d) -> double& { return d.energy.leakage_w_per_mm2; }},
    {"energy.clock_w_per_mm2", "W/mm2", [](Device& d) -> double& { return d.energy.clock_w_per_mm2; }},
    {"energy.static_w", "W", [](Device& d) -> double& { return d.energy.static_w; }}};
constexpr EnergyKey kHostActive = {"host.active_w", "W", [](Device& d) -> double& { return d.host.active_w; }};
constexpr EnergyKey kHostIdle = {"host.idle_w", "W", [](Device& d) -> double& { return d.host.idle_w; }};

using KeyGroup = std::vector<EnergyKey>;

/// Keys with one factor each: those that the model does not tell apart in any measurement. Keys that are 0 are left
/// out.
std::vector<KeyGroup> key_groups(Device device) {
  std::vector<KeyGroup> groups = {{kMac},        {kLane},
                                  {kSram},       {std::begin(kTraffic), std::end(kTraffic)},
                                  {kBackground}, {std::begin(kStandby), std::end(kStandby)},
                                  {kHostActive}, {kHostIdle}};
  for (KeyGroup& group : groups) std::erase_if(group, [&](const EnergyKey& one) { return one.of(device) == 0; });
  std::erase_if(groups, [](const KeyGroup& group) { return group.empty(); });
  return groups;
}

/// Joules of the measurements on a device, in their order.
class EnergyModel {
 public:
  EnergyModel(const StepTimer::GraphFactory& graph, const Measurements& measured)
      : graph_(graph), measured_(measured) {}

  Expected<std::vector<StepTime>> times(const Device& device) const {
    std::vector<StepTime> result;
    for (const Measurements::GemmEnergy& m : measured_.gemm_energies) {
      const auto product = [&m](StepShape shape) {
        return product_graph({shape.rows, m.product.outputs, m.product.inputs, 0});
      };
      DLLM_TRY(StepTimer timer, StepTimer::create(device, product, {1, m.product.rows, 0, 1}, {}));
      DLLM_TRY(StepTime time, timer.time({1, m.product.rows, 0, 1}));
      result.push_back(time);
    }
    DLLM_CHECK_OK(add_steps(device, measured_.step_energies, StepProcessor::kDevice, result));
    DLLM_CHECK_OK(add_steps(device, measured_.host_step_energies, StepProcessor::kHost, result));
    return result;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Measurements::GemmEnergy& m : measured_.gemm_energies)
      result.push_back(fmt::format("gemm {} x {} x {}", m.product.rows, m.product.outputs, m.product.inputs));
    for (const Measurements::StepEnergy& m : measured_.step_energies)
      result.push_back(fmt::format("step of {} rows, {} keys", m.rows, m.keys));
    for (const Measurements::StepEnergy& m : measured_.host_step_energies)
      result.push_back(fmt::format("host step of {} rows, {} keys", m.rows, m.keys));
    return result;
  }

  /// Watts are those of the modelled time.
  std::vector<double> measured_joules(const std::vector<StepTime>& times) const {
    std::vector<double> result;
    const auto add = [&](const Measurements::Energy& energy) {
      result.push_back(energy.value * (energy.watts ? times[result.size()].seconds() : 1));
    };
    for (const Measurements::GemmEnergy& m : measured_.gemm_energies) add(m.energy);
    for (const Measurements::StepEnergy& m : measured_.step_energies) add(m.energy);
    for (const Measurements::StepEnergy& m : measured_.host_step_energies) add(m.energy);
    return result;
  }

 private:
  Expected<void> add_steps(const Device& device, const std::vector<Measurements::StepEnergy>& steps,
                           StepProcessor processor, std::vector<StepTime>& result) const {
    if (steps.empty()) return {};
    StepTotals most{1, 1, 0, 1};
    for (const Measurements::StepEnergy& m : steps) {
      most.rows = std::max(most.rows, m.rows);
      most.keys = std::max(most.keys, m.keys);
    }
    DLLM_TRY(StepTimer timer, StepTimer::create(device, graph_, most, {.processor = processor}));
    for (const Measurements::StepEnergy& m : steps) {
      DLLM_TRY(StepTime time, timer.time({1, m.rows, m.rows, m.keys}));
      result.push_back(time);
    }
    return {};
  }

  const StepTimer::GraphFactory& graph_;
  const Measurements& measured_;
};

/// Joules by group and measurement at the profile's values, and what no group has.
struct EnergyParts {
  std::vector<KeyGroup> groups;
  std::vector<std::vector<double>> joules;
  std::vector<double> rest, measured;

  std::vector<MeasuredTime> equations() const {
    std::vector<MeasuredTime> result;
    for (std::size_t m = 0; m < measured.size(); ++m) {
      LinearForm form{rest[m], {}};
      for (std::size_t g = 0; g < groups.size(); ++g)
        if (joules[g][m] > 0) form.terms.emplace_back(g, joules[g][m]);
      result.push_back({measured[m], 0, {{{std::move(form)}, 1}}});
    }
    return result;
  }

  /// How near two groups are to proportional in all measurements: 1 is entirely.
  double cosine(std::size_t a, std::size_t b) const {
    double aa = 0, bb = 0, ab = 0;
    for (std::size_t m = 0; m < measured.size(); ++m) {
      const double x = joules[a][m] / measured[m], y = joules[b][m] / measured[m];
      aa += x * x, bb += y * y, ab += x * y;
    }
    return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
  }

  void join(std::size_t a, std::size_t b) {
    groups[a].insert(groups[a].end(), groups[b].begin(), groups[b].end());
    for (std::size_t m = 0; m < measured.size(); ++m) joules[a][m] += joules[b][m];
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(b));
    joules.erase(joules.begin() + static_cast<std::ptrdiff_t>(b));
  }

  /// Joins the pair that is nearest to proportional, of which one is not determined. False: there is none.
  bool join_nearest(const PiecewiseFit& fit) {
    constexpr double kNear = 0.9;
    const auto open = [&fit](std::size_t g) {
      const FittedParameter::State state = fit.parameters[g].state;
      return state == FittedParameter::State::kInseparable || state == FittedParameter::State::kVague;
    };
    double nearest = kNear;
    std::pair<std::size_t, std::size_t> pair{0, 0};
    for (std::size_t a = 0; a < groups.size(); ++a)
      for (std::size_t b = a + 1; b < groups.size(); ++b)
        if ((open(a) || open(b)) && cosine(a, b) > nearest) nearest = cosine(a, b), pair = {a, b};
    if (pair.second == 0) return false;
    join(pair.first, pair.second);
    return true;
  }
};

Expected<EnergyParts> energy_parts(const EnergyModel& model, const Device& device) {
  EnergyParts parts{.groups = key_groups(device), .joules = {}, .rest = {}, .measured = {}};
  Device without = device;
  for (const KeyGroup& group : parts.groups)
    for (const EnergyKey& one : group) one.of(without) = 0;
  DLLM_TRY(const std::vector<StepTime> bare, model.times(without));
  for (const StepTime& time : bare) parts.rest.push_back(time.energy.joules());
  parts.measured = model.measured_joules(bare);
  for (const KeyGroup& group : parts.groups) {
    Device with = without, given = device;
    for (const EnergyKey& one : group) one.of(with) = one.of(given);
    DLLM_TRY(const std::vector<StepTime> times, model.times(with));
    std::vector<double>& joules = parts.joules.emplace_back();
    for (std::size_t m = 0; m < times.size(); ++m) joules.push_back(times[m].energy.joules() - parts.rest[m]);
  }
  return parts;
}

/// Gives a device the costs of its memory as keys of its own, so that 0 means none and not "the standard's".
void own_memory_costs(Device& device) {
  const dram::DramCosts costs = device.memory_costs();
  device.energy.dram_read_pj_per_byte = costs.read_pj_per_byte;
  device.energy.dram_write_pj_per_byte = costs.write_pj_per_byte;
  device.energy.dram_activate_pj = costs.activate_pj;
  device.energy.dram_io_pj_per_byte = costs.io_pj_per_byte;
  device.energy.dram_background_mw = costs.background_mw;
  device.energy.phy_idle_w = costs.phy_idle_w;
  device.memory.phy_mm2 = costs.phy_mm2;
  device.memory_config.standard.costs = {};
}

}  // namespace

Expected<void> fit_energy(const StepTimer::GraphFactory& graph, const Measurements& measured, Calibration& result) {
  const EnergyModel model(graph, measured);
  const std::vector<std::string> names = model.names();
  if (names.empty()) return {};
  own_memory_costs(result.device);
  DLLM_TRY(EnergyParts parts, energy_parts(model, result.device));
  PiecewiseFit fit;
  do fit = fit_piecewise(parts.equations(), std::vector<double>(parts.groups.size(), 1.0));
  while (parts.join_nearest(fit));
  for (std::size_t g = 0; g < parts.groups.size(); ++g)
    for (const EnergyKey& one : parts.groups[g]) {
      double& value = one.of(result.device);
      CalibratedKey key{one.key, one.unit, value, fit.parameters[g], {}};
      key.fit.value = value;
      if (determined(key.fit)) key.fit.value = value = six_digits(value * fit.parameters[g].value);
      for (const EnergyKey& other : parts.groups[g])
        if (std::string_view(other.key) != one.key) key.with.emplace_back(other.key);
      for (const std::size_t other : key.fit.with)
        for (const EnergyKey& theirs : parts.groups[other]) key.with.emplace_back(theirs.key);
      result.keys.push_back(std::move(key));
    }
  DLLM_TRY(const std::vector<StepTime> times, model.times(result.device));
  for (std::size_t m = 0; m < names.size(); ++m)
    result.residuals.push_back({names[m], parts.measured[m], times[m].energy.joules(), "J"});
  return {};
}

}  // namespace dllm::npu
