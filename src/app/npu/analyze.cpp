// dllm npu analyze: roofline, time and energy of a model's steps on a device.
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/npu/flags.h"
#include "base/try.h"
#include "npu_compiler/analytic/gpu.h"
#include "npu_compiler/analytic/operator_work.h"
#include "npu_compiler/compiler/block_cost.h"
#include "npu_compiler/compiler/mapper.h"
#include "npu_core/device/energy.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

Json cost_json(const npu::OperatorCost& c) {
  return {{"macs", c.macs},
          {"matrix_cycles", c.matrix},
          {"vector_cycles", c.vector},
          {"memory_cycles", c.memory},
          {"host_cycles", c.host},
          {"cycles", c.cycles},
          {"serial_cycles", c.serial},
          {"lower_bound_cycles", c.lower_bound},
          {"read_bytes", c.read_bytes},
          {"write_bytes", c.write_bytes},
          {"weight_bytes", c.weight_bytes},
          {"bound", npu::bound_name(c.bound)}};
}

/// Name of what an operator computes, without its layer: "ffn_gate", "attn_mix", "score_head".
std::string role(const Graph& graph, const Op& op) {
  const std::vector<ValueId> out = outputs(op);
  if (out.empty()) return std::string(op_name(op));
  const std::string& name = graph.value(out.front()).name;
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

struct Line {
  std::string role;
  int count = 0;
  npu::OperatorCost sum;
  std::map<std::string_view, int> bounds;
};

/// Operators of the same role over all layers, in the order of the graph.
std::vector<Line> by_role(const Graph& graph, const npu::StepCost& step) {
  std::vector<Line> lines;
  for (const npu::OperatorCost& c : step.operators) {
    const std::string name = role(graph, graph.ops[static_cast<std::size_t>(c.op)]);
    auto line = std::find_if(lines.begin(), lines.end(), [&name](const Line& l) { return l.role == name; });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{name, 0, {}, {}});
    ++line->count;
    line->sum.macs += c.macs;
    line->sum.matrix += c.matrix;
    line->sum.vector += c.vector;
    line->sum.memory += c.memory;
    line->sum.cycles += c.cycles;
    line->sum.serial += c.serial;
    line->sum.lower_bound += c.lower_bound;
    line->sum.read_bytes += c.read_bytes;
    line->sum.write_bytes += c.write_bytes;
    line->sum.weight_bytes += c.weight_bytes;
    line->sum.host += c.host;
    line->sum.bound = c.bound;
    ++line->bounds[npu::bound_name(c.bound)];
  }
  return lines;
}

/// "priced schedule, in 8 parts that read all weights each: 118.3 ms; dispatch 1.2 ms".
std::string time_text(const npu::StepCycles& time, std::size_t parts, double ms) {
  std::string text =
      fmt::format("{}{}: {:.3f} ms", npu::source_name(time.source),
                  parts > 1 ? fmt::format(", in {} parts that read all weights each", parts) : "", time.cycles() * ms);
  if (time.dispatch > 0) text += fmt::format("; of it dispatch by the host {:.3f} ms", time.dispatch * ms);
  if (time.mapping > 0) text += fmt::format("; of it waiting for mappings {:.3f} ms", time.mapping * ms);
  return text + "\n\n";
}

std::string step_text(const char* title, const Graph& graph, const npu::PhaseCost& phase, std::size_t parts,
                      const npu::Device& device) {
  const npu::StepCost& step = phase.cost;
  const npu::StepEnergy& energy = phase.energy;
  std::string text = fmt::format("{} step, {} rows, {} scored\n{:<16}{:>4}{:>11}{:>11}{:>11}{:>11}{:>11}{:>10}  {}\n",
                                 title, graph.shape.rows, graph.shape.scored, "operator", "n", "matrix", "vector",
                                 "memory", "cycles", "bound", "MB", "limited by");
  const auto row = [](std::string_view name, int n, const npu::OperatorCost& c, std::string_view bound) {
    return fmt::format("{:<16}{:>4}{:>11.0f}{:>11.0f}{:>11.0f}{:>11.0f}{:>11.0f}{:>10.1f}  {}\n", name, n, c.matrix,
                       c.vector, c.memory, c.cycles, c.lower_bound, (c.read_bytes + c.write_bytes) * 1e-6, bound);
  };
  for (const Line& line : by_role(graph, step))
    text += row(line.role, line.count, line.sum, npu::bound_name(line.sum.bound));
  text += row("sum", static_cast<int>(step.operators.size()), step.total, npu::bound_name(step.total.bound));
  const double ms = 1e-6 / device.clock.ghz;
  text += fmt::format(
      "units overlapped {:.3f} ms, operators in sequence {:.3f} ms, serial {:.3f} ms, lower bound {:.3f} ms; {:.3f} J "
      "(dram {:.0f} %)\n",
      step.overlapped * ms, step.total.cycles * ms, step.total.serial * ms, step.lower_bound * ms, energy.total(),
      100 * (energy.dram_core + energy.dram_io + energy.dram_background) / energy.total());
  return text + time_text(phase.time, parts, ms);
}

Json step_json(const Graph& graph, const npu::PhaseCost& phase) {
  const npu::StepCost& step = phase.cost;
  Json operators = Json::array();
  for (const npu::OperatorCost& c : step.operators) {
    const Op& op = graph.ops[static_cast<std::size_t>(c.op)];
    const std::vector<ValueId> out = outputs(op);
    Json one = {{"operator", op_name(op)},
                {"name", out.empty() ? std::string(op_name(op)) : graph.value(out.front()).name}};
    one.update(cost_json(c));
    operators.push_back(std::move(one));
  }
  return {{"rows", graph.shape.rows},
          {"scored_rows", graph.shape.scored},
          {"total", cost_json(step.total)},
          {"overlapped_cycles", step.overlapped},
          {"lower_bound_cycles", step.lower_bound},
          {"time", npu::time_json(phase.time)},
          {"energy", npu::energy_json(phase.energy)},
          {"operators", operators}};
}

Json model_json(const ModelDesc& desc) {
  return {{"name", desc.name},
          {"architecture", desc.architecture},
          {"layers", desc.layers},
          {"width", desc.width},
          {"vocabulary", desc.vocab}};
}

Json workload_json(const npu::Workload& w, const npu::BlockParts& parts) {
  return {{"batch", w.batch},
          {"block", w.block},
          {"context", w.context},
          {"steps", w.steps},
          {"fused_head", w.fused_head},
          {"cache", npu::cache_name(w.cache)},
          {"refine_rows", npu::refine_rows(w)},
          {"mapping", parts.mapping ? "search" : "rule"},
          {"warm_parts", parts.warm.size()},
          {"refine_parts", parts.refine.size()}};
}

/// A GPU's roofline next to the device's figures.
struct Baseline {
  npu::GpuProfile gpu;
  npu::GpuCost cost;

  std::string text(const npu::BlockCost& ours) const {
    return fmt::format(
        "{}: roofline in BF16 of {} TFLOPS, {} GB/s, {} W ({}): {:.1f} tokens/s, {:.2f} tokens/J; the device has "
        "{:.2f} and {:.1f} times as many\n",
        gpu.name, gpu.tflops, gpu.gbps, gpu.watts, gpu.source, cost.tokens_per_second, cost.tokens_per_joule,
        ours.tokens_per_second / cost.tokens_per_second, ours.tokens_per_joule / cost.tokens_per_joule);
  }
  Json json(const npu::BlockCost& ours) const {
    return {{"name", gpu.name},
            {"source", gpu.source},
            {"tflops", gpu.tflops},
            {"gbps", gpu.gbps},
            {"watts", gpu.watts},
            {"compute_efficiency", gpu.compute_efficiency},
            {"memory_efficiency", gpu.memory_efficiency},
            {"format", "bf16"},
            {"warm_ms", cost.warm_seconds * 1e3},
            {"refine_ms", cost.refine_seconds * 1e3},
            {"tokens_per_second", cost.tokens_per_second},
            {"tokens_per_joule", cost.tokens_per_joule},
            {"device_speedup", ours.tokens_per_second / cost.tokens_per_second},
            {"device_efficiency_ratio", ours.tokens_per_joule / cost.tokens_per_joule}};
  }
};

class NpuAnalyze final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Model");
    model_.add(flags);
    flags.group("Device");
    device_.add(flags);
    flags.add({.names = {"--bandwidth"},
               .value = "GB/S",
               .help = "achieved memory bandwidth",
               .default_text = "simulated sequential reads",
               .apply = into(bandwidth_, 1e-3, 1e6)});
    flags.group("Workload");
    workload_.add(flags);
    add_mapping_flag(flags, search_);
    routing_.add(flags);
    flags.add({.names = {"--phase"},
               .value = "P",
               .help = "steps to show",
               .default_text = "both",
               .choices = {"warm", "refine", "both"},
               .apply = into(phase_, {"warm", "refine", "both"})});
    std::string known;
    for (const std::string& name : npu::gpu_names()) known += (known.empty() ? "" : ", ") + name;
    flags.add({.names = {"--gpu"},
               .value = "NAME|FILE",
               .help = "also the roofline of a GPU in BF16, for comparison; may be repeated: " + known,
               .takes_path = true,
               .apply = into(gpus_)});
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    flags.add({.names = {"--benchmark"}, .help = "also time the evaluation itself", .apply = into(benchmark_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    DLLM_TRY(const npu::ModelShape shape, model_.load());
    npu::VerbUse use = {"npu analyze"};
    if (!workload_.workload.fused_head) use.add("npu analyze --unfused-head");
    DLLM_TRY(const npu::Device device, device_.load(use));
    workload_.workload.choices = routing_.choices;
    const npu::Workload& w = workload_.workload;
    DLLM_CHECK_OK(npu::check(w));
    DLLM_CHECK_OK(npu::check_modelled(device));
    DLLM_TRY(const npu::BlockParts parts, find_parts(device, shape));
    if (bandwidth_ == 0) {
      DLLM_TRY(bandwidth_, npu::achieved_bandwidth(device));
    }
    DLLM_TRY(const npu::CostModel model, npu::CostModel::create(device, bandwidth_));
    const Graph warm = shape.architecture->build(shape.desc, npu::warm_shape(w));
    const Graph refine = shape.architecture->build(shape.desc, npu::refine_shape(w));
    npu::StepTimes times(shape);
    DLLM_TRY(const npu::BlockCost block, npu::evaluate_block(times, model, warm, refine, w, parts));
    DLLM_TRY(const std::vector<Baseline> baselines, compare(warm, refine));
    const Analysis result{shape, device, model, warm, refine, block, parts, baselines};
    session.terminal.out << (output_ == "json" ? dump(as_json(result, session.command)) + "\n" : as_text(result));
    return kExitOk;
  }

 private:
  Expected<npu::BlockParts> find_parts(const npu::Device& device, const npu::ModelShape& shape) const {
    const npu::Workload& w = workload_.workload;
    return search_ ? npu::search_block(device, shape, w, npu_cache_folder()) : npu::check_feasible(device, shape, w);
  }

  struct Analysis {
    const npu::ModelShape& shape;
    const npu::Device& device;
    const npu::CostModel& model;
    const Graph &warm, &refine;
    const npu::BlockCost& block;
    const npu::BlockParts& parts;
    const std::vector<Baseline>& baselines;
  };

  Json as_json(const Analysis& a, const std::string& command) const {
    const npu::Workload& w = workload_.workload;
    Json json = provenance(command);
    json["model"] = model_json(a.shape.desc);
    json["workload"] = workload_json(w, a.parts);
    json["area_mm2"] = npu::area_json(npu::area(a.device));
    if (Json assumed = routing_.describe(a.shape.desc); !assumed.is_null()) json["routing"] = std::move(assumed);
    json["device"] = npu::device_json(a.device);
    json["achieved_gbps"] = bandwidth_;
    json["block"] = {{"seconds", a.block.seconds},
                     {"serial_seconds", a.block.serial_seconds},
                     {"joules", a.block.joules},
                     {"tokens_per_second", a.block.tokens_per_second},
                     {"tokens_per_joule", a.block.tokens_per_joule}};
    if (phase_ != "refine") json["warm"] = step_json(a.warm, a.block.warm);
    if (phase_ != "warm") json["refine"] = step_json(a.refine, a.block.refine);
    for (const Baseline& b : a.baselines) json["gpus"].push_back(b.json(a.block));
    if (benchmark_) json["evaluation_us"] = evaluation_us(a.model, a.refine, w);
    return json;
  }

  std::string as_text(const Analysis& a) const {
    const npu::Workload& w = workload_.workload;
    std::string text =
        fmt::format("{} on {}: {:.1f} TOPS, {:.1f} GB/s achieved of {:.1f}; cycles at {} GHz\n\n", a.shape.desc.name,
                    a.device.name, a.device.peak_tops(), bandwidth_, a.device.memory_gbps(), a.device.clock.ghz);
    if (phase_ != "refine") text += step_text("warm", a.warm, a.block.warm, a.parts.warm.size(), a.device);
    if (phase_ != "warm") text += step_text("refine", a.refine, a.block.refine, a.parts.refine.size(), a.device);
    text += fmt::format(
        "block of {} x {} tokens, context {}, {} steps: {:.4f} s, {:.1f} tokens/s, {:.2f} J, {:.2f} tokens/J; serial "
        "{:.4f} s\n",
        w.batch, w.block, w.context, w.steps, a.block.seconds, a.block.tokens_per_second, a.block.joules,
        a.block.tokens_per_joule, a.block.serial_seconds);
    text += routing_.text(a.shape.desc);
    for (const Baseline& b : a.baselines) text += b.text(a.block);
    if (benchmark_)
      text += fmt::format("one evaluation of {} operators takes {:.1f} us\n", a.refine.ops.size(),
                          evaluation_us(a.model, a.refine, w));
    return text;
  }

  Expected<std::vector<Baseline>> compare(const Graph& warm, const Graph& refine) const {
    std::vector<Baseline> found;
    for (const std::string& name : gpus_) {
      DLLM_TRY(npu::GpuProfile gpu, npu::load_gpu(name));
      DLLM_TRY(const npu::GpuCost cost, npu::evaluate_gpu(gpu, warm, refine, workload_.workload));
      found.push_back({std::move(gpu), cost});
    }
    return found;
  }

  static double evaluation_us(const npu::CostModel& model, const Graph& graph, const npu::Workload& workload) {
    constexpr int kRuns = 200;
    double sink = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i)
      if (const auto cost = model.evaluate(graph, npu::assumptions_of(workload))) sink += cost->overlapped;
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    return sink > 0 ? time.count() / kRuns : 0;
  }

  NpuModelFlags model_;
  DeviceFlags device_;
  WorkloadFlags workload_;
  RoutingFlags routing_;
  double bandwidth_ = 0;
  std::vector<std::string> gpus_;
  std::string phase_ = "both", output_;
  bool benchmark_ = false, search_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_npu_analyze() { return std::make_unique<NpuAnalyze>(); }

}  // namespace dllm::app
