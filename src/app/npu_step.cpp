// dllm npu step: a model's denoising step, compiled and timed.

#include <chrono>
#include <cstdlib>
#include <ostream>

#include "app/npu_flags.h"
#include "app/npu_timing_flags.h"
#include "app/options.h"
#include "app/report.h"
#include "app/verb.h"
#include "base/try.h"
#include "engine/latency_file.h"
#include "npu/compiler/workload_step.h"
#include "npu/machine/device_machine.h"
#include "npu/timing/memo.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuStep final : public Verb {
 public:
  void declare(Flags& flags) override {
    constexpr std::int64_t kMost = 1 << 20;
    flags.group("Model");
    model_.add(flags);
    flags.add({.names = {"--layers"},
               .value = "N",
               .help = "only the first layers of the shape",
               .default_text = "all",
               .apply = into(layers_, 1, kMost)});
    flags.group("Device");
    device_.add(flags);
    flags.group("Step");
    const auto number = [&flags](const char* name, const char* help, std::int64_t& target) {
      flags.add({.names = {name},
                 .value = "N",
                 .help = help,
                 .default_text = fmt::format("{}", target),
                 .apply = into(target, 1, kMost)});
    };
    number("--batch", "sequences", work_.batch);
    number("--rows", "positions of each sequence that run, the last of its context", work_.rows);
    number("--context", "positions of each sequence, all visible", work_.context);
    issue_.add(flags);
    flags.add({.names = {"--all-layers"},
               .help = "simulate every layer, also those that repeat within 1 %",
               .apply = [this](const std::string& text) -> Expected<void> {
                 const auto value = parse_bool(text);
                 if (!value) return bad_value(fmt::format("'{}' is no truth value", text));
                 issue_.options.repeat = !*value;
                 return {};
               }});
    flags.group("Output");
    flags.add({.names = {"--timing-cache"},
               .value = "DIR|auto|off",
               .help = "where reports are kept; auto: $XDG_CACHE_HOME/dllm/npu or ~/.cache/dllm/npu",
               .default_text = "auto",
               .takes_path = true,
               .apply = into(cache_)});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    DLLM_TRY(npu::ModelShape shape, model_.load());
    if (layers_ > 0) shape.desc.layers = std::min(shape.desc.layers, layers_);
    DLLM_TRY(const npu::Device device, device_.load());
    DLLM_TRY(const npu::MachineConfig machine, npu::machine_config(device));
    const Graph any = shape.architecture->build(shape.desc, {1, 1});
    std::vector<bool> present;
    for (const WeightDecl& decl : any.weights) present.push_back(decl.required);
    DLLM_TRY(const npu::ModelLayout layout, npu::make_layout(any, present, machine, work_.context));
    DLLM_TRY(const npu::StepSpec spec, npu::make_step(any, layout, work_));
    const Graph graph = shape.architecture->build(shape.desc, {spec.rows(), spec.scored()});
    const auto start = std::chrono::steady_clock::now();
    DLLM_TRY(const npu::StepProgram step, npu::compile_step(graph, layout, spec));
    const auto compiled = std::chrono::steady_clock::now();
    DLLM_TRY(const npu::MemoisedTiming timing,
             npu::memoised_timing(device, machine, step.program, issue_.options, directory()));
    const auto end = std::chrono::steady_clock::now();
    const auto ms = [](auto from, auto to) { return std::chrono::duration<double, std::milli>(to - from).count(); };
    const double seconds = static_cast<double>(timing.total) / (device.clock.ghz * 1e9);
    if (output_ == "json") {
      Json json = provenance(session.command);
      json["model"] = shape.desc.name;
      json["layers"] = shape.desc.layers;
      json["batch"] = work_.batch;
      json["rows"] = work_.rows;
      json["context"] = work_.context;
      json["total_cycles"] = timing.total;
      json["time_ms"] = seconds * 1e3;
      json["compile_ms"] = ms(start, compiled);
      json["simulate_ms"] = ms(compiled, end);
      json["from_cache"] = timing.from_cache;
      json["timing"] = timing.report;
      session.terminal.out << dump(json) << "\n";
      return kExitOk;
    }
    session.terminal.out << fmt::format("{} on {}, {} layers, {} x {} rows, context {}: {} cycles, {:.3f} ms\n",
                                        shape.desc.name, device.name, shape.desc.layers, work_.batch, work_.rows,
                                        work_.context, timing.total, seconds * 1e3);
    for (const auto& [name, engine] : timing.report["engines"].items())
      session.terminal.out << fmt::format("{:<13}{:>6.1f} % busy\n", name, 100 * engine["busy_share"].get<double>());
    const Json& simulation = timing.report["simulation"];
    session.terminal.err << fmt::format("compiled in {:.1f} ms; {} in {:.1f} ms ({} of {} instructions repeated)\n",
                                        ms(start, compiled), timing.from_cache ? "from the cache" : "simulated",
                                        ms(compiled, end), simulation["instructions_repeated"].get<std::uint64_t>(),
                                        timing.report["instructions"].get<std::uint64_t>());
    return kExitOk;
  }

 private:
  std::string directory() const {
    if (cache_ == "off") return "";
    if (cache_ != "auto") return cache_;
    const std::string base = latency_directory(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
    return base.empty() ? "" : base + "/npu";
  }

  static TimingFlags repeating() {
    TimingFlags flags;
    flags.options.repeat = true;
    return flags;
  }

  NpuModelFlags model_;
  DeviceFlags device_;
  TimingFlags issue_ = repeating();
  npu::StepWorkload work_{.batch = 16, .rows = 32, .context = 256};
  std::int64_t layers_ = 0;
  std::string cache_ = "auto", output_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_step() { return std::make_unique<NpuStep>(); }

}  // namespace dllm::app
