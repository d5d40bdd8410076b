// dllm npu network: a network from outside, compiled, timed and computed.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/flags.h"
#include "app/npu/network_values.h"
#include "app/npu/timing_flags.h"
#include "base/try.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/compiler/listing.h"
#include "npu_compiler/compiler/step_time.h"
#include "npu_compiler/runtime/memory_map.h"
#include "npu_compiler/runtime/step_memory.h"
#include "npu_core/timing/memo.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuNetwork final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.positionals("FILE", "a network that python3 -m dllm.networks has translated from ONNX", 1, files_);
    flags.group("Device");
    device_.name = "dart-512";
    device_.add(flags);
    add_number(flags, "--batch", "sequences, each with all of the network's rows", batch_, 1 << 12);
    add_mapping_flag(flags, search_);
    issue_.add(flags);
    flags.group("Values");
    values_.add(flags);
    flags.group("Output");
    flags.add(
        {.names = {"--analytic"}, .help = "also the priced schedule (npu-analytic.md)", .apply = into(analytic_)});
    flags.add({.names = {"--plan"},
               .help = "also where tensors are placed in the device's window of addresses (npu-runtime.md)",
               .apply = into(plan_)});
    issue_.add_cache(flags);
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (files_.empty())
      return Error{ErrorCode::kUsage, "there is no network", "dllm npu network", "dllm npu network FILE.safetensors"};
    DLLM_TRY(const std::shared_ptr<const npu::Network> network, npu::load_network(files_.front()));
    npu::VerbUse use = {"npu network"};
    if (analytic_) use.add("npu network --analytic");
    if (plan_) use.add("npu network --plan");
    DLLM_TRY(npu::Device device, device_.load(use));
    DLLM_CHECK_OK(issue_.resolve(device));
    DLLM_TRY(const npu::CompiledStep compiled, compile(*network, device));
    DLLM_TRY(const npu::MemoisedTiming timing,
             npu::memoised_timing(compiled.device, compiled.machine, compiled.step.program, issue_.options,
                                  issue_.cache_folder()));
    Json json = provenance(session.command);
    describe(*network, compiled, timing, json);
    if (analytic_) {
      DLLM_TRY(const npu::PricedStep priced, npu::price(compiled, {}));
      json["scheduled"] = {{"total_cycles", priced.time.device}, {"achieved_gbps", priced.gbps}};
    }
    std::string map;
    if (plan_) {
      DLLM_TRY(map, place(*network, compiled, static_cast<double>(timing.total), json));
    }
    DLLM_CHECK_OK(values_.run(session, *network, compiled.device, device_, json));
    session.terminal.out << (output_ == "json" ? dump(json) + "\n" : text(json) + map);
    return kExitOk;
  }

 private:
  Expected<npu::CompiledStep> compile(const npu::Network& network, const npu::Device& device) const {
    npu::StepRequest request;
    request.size = {.sequences = batch_, .rows = network.rows, .keys = network.rows, .scored = network.step().scored};
    request.network = {network.scored, network.visible, network.causal ? 1 : 0};
    request.search = search_;
    request.mappings = npu_cache_folder();
    return npu::compile_step(network.shape(), device, request);
  }

  void describe(const npu::Network& network, const npu::CompiledStep& compiled, const npu::MemoisedTiming& timing,
                Json& json) const {
    json["network"] = network.name;
    json["source"] = network.source;
    json["device"] = compiled.device.name;
    json["rows"] = network.rows;
    json["batch"] = batch_;
    json["fixed_inputs"] = network.left_out;
    json["parts"] = compiled.step.row_parts.size();
    json["mapping"] = npu::mapping_json(compiled.layout);
    json["weight_bytes"] = compiled.layout.weight_bytes;
    json["total_cycles"] = timing.total;
    json["time_ms"] = static_cast<double>(timing.total) / (compiled.device.clock.ghz * 1e6);
    json["compile_ms"] = compiled.milliseconds;
    json["from_cache"] = timing.from_cache;
    json["timing"] = timing.report;
  }

  Expected<std::string> place(const npu::Network& network, const npu::CompiledStep& compiled, double cycles,
                              Json& json) const {
    DLLM_TRY(const npu::MemoryLimits limits, npu::memory_limits(compiled.device));
    DLLM_TRY(const double gbps, npu::achieved_bandwidth(compiled.device));
    DLLM_TRY(const npu::CostModel model, npu::CostModel::create(compiled.device, gbps));
    const npu::CostAssumptions load{
        .sequences = batch_, .keys = network.rows, .parts = static_cast<std::int64_t>(compiled.step.row_parts.size())};
    const StepShape one = network.step();
    const Graph graph = network.architecture.build(network.desc, {batch_ * one.rows, batch_ * one.scored});
    DLLM_TRY(npu::StepCost cost, model.evaluate(graph, load));
    // The simulated time, spread over the operators as the cost model has them.
    double all = 0;
    for (npu::OperatorCost& c : cost.operators) all += c.cycles = std::max({c.matrix, c.vector, c.memory});
    for (npu::OperatorCost& c : cost.operators) c.cycles *= cycles / all;
    const npu::MemoryProgram program = npu::step_program(graph, compiled.device, load, cost);
    DLLM_TRY(const npu::MemoryPlan plan, npu::plan_memory(program, limits));
    json["plan"] = npu::memory_map_json(program, plan);
    return npu::memory_map_text(program, plan);
  }

  static std::string text(const Json& json) {
    const Json& timing = json["timing"];
    const auto cycles = json["total_cycles"].get<std::uint64_t>();
    std::string text =
        fmt::format("{} on {}, {} x {} rows: {} cycles, {:.4f} ms, {:.4g} mJ\n",
                    NetworkValues::shown(json["network"].get<std::string>()), json["device"].get<std::string>(),
                    json["batch"].get<std::int64_t>(), json["rows"].get<std::int64_t>(), cycles,
                    json["time_ms"].get<double>(), 1e3 * timing["energy_j"].get<double>());
    for (const Json& fixed : json["fixed_inputs"])
      text += fmt::format("fixed: {}\n", NetworkValues::shown(fixed.get<std::string>()));
    if (const auto parts = json["parts"].get<std::size_t>(); parts > 1)
      text += fmt::format("in {} parts, as its rows do not fit at once: weights are read {} times\n", parts, parts);
    if (json.contains("scheduled")) {
      const auto scheduled = json["scheduled"]["total_cycles"].get<double>();
      text += fmt::format("as scheduled (analytical): {:.0f} cycles, {:+.2f} % of the simulated\n", scheduled,
                          100 * (scheduled / static_cast<double>(cycles) - 1));
    }
    for (const auto& [name, engine] : timing["engines"].items()) {
      std::string stalls;
      for (const auto& [cause, count] : engine["stall_cycles"].items())
        stalls += fmt::format("{}{} {}", stalls.empty() ? "; waits for " : ", ", cause, count.get<std::uint64_t>());
      text += fmt::format("{:<13}{:>6.1f} % busy{}\n", name, 100 * engine["busy_share"].get<double>(), stalls);
    }
    return text + NetworkValues::text(json);
  }

  DeviceFlags device_;
  TimingFlags issue_;
  NetworkValues values_;
  std::vector<std::string> files_;
  std::int64_t batch_ = 1;
  bool search_ = false, analytic_ = false, plan_ = false;
  std::string output_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_network() { return std::make_unique<NpuNetwork>(); }

}  // namespace dllm::app
