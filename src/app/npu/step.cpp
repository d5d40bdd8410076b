// dllm npu step: a model's denoising step, compiled and timed.

#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/step_flags.h"
#include "app/npu/timing_flags.h"
#include "base/try.h"
#include "npu_compiler/compiler/step_time.h"
#include "npu_core/timing/memo.h"
#include "npu_core/timing/perfetto.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuStep final : public Verb {
 public:
  void declare(Flags& flags) override {
    step_.add(flags);
    issue_.add(flags);
    flags.add({.names = {"--all-layers"},
               .help = "simulate every layer, even if layers repeat within 1 %",
               .apply = [this](const std::string& text) -> Expected<void> {
                 const auto value = parse_bool(text);
                 if (!value) return bad_value(fmt::format("'{}' is neither true nor false", text));
                 issue_.options.repeat = !*value;
                 return {};
               }});
    flags.group("Output");
    flags.add({.names = {"-v", "--verbose"},
               .help = "say on stderr why a cached report is not used",
               .apply = into(verbose_)});
    flags.add({.names = {"--analytic"},
               .help = "also the analytical schedule, phase by phase (npu-analytic.md)",
               .apply = into(analytic_)});
    issue_.add_cache(flags);
    flags.add({.names = {"--perfetto"},
               .value = "FILE",
               .help = "write a Chrome JSON trace of the first million events, for ui.perfetto.dev",
               .takes_path = true,
               .written = true,
               .apply = into(perfetto_)});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    npu::VerbUse use = {"npu step"};
    if (analytic_) use.add("npu step --analytic");
    DLLM_TRY(CompiledStep compiled, step_.compile(use));
    DLLM_CHECK_OK(issue_.resolve(compiled.device));
    Json analytic;
    if (analytic_) {
      DLLM_CHECK_OK(check_schedulable());
      DLLM_TRY(analytic, scheduled(compiled));
    }
    if (!perfetto_.empty()) DLLM_CHECK_OK(write_trace(session, compiled));
    const auto start = std::chrono::steady_clock::now();
    DLLM_TRY(const npu::MemoisedTiming timing,
             npu::memoised_timing(compiled.device, compiled.machine, compiled.step.program, issue_.options,
                                  issue_.cache_folder()));
    const std::chrono::duration<double, std::milli> simulated = std::chrono::steady_clock::now() - start;
    if (verbose_ && !timing.doubt.empty()) session.terminal.err << fmt::format("timing cache: {}\n", timing.doubt);
    const double seconds = static_cast<double>(timing.total) / (compiled.device.clock.ghz * 1e9);
    if (output_ == "json") {
      Json json = provenance(session.command);
      step_.describe(compiled, json);
      json["total_cycles"] = timing.total;
      json["time_ms"] = seconds * 1e3;
      json["compile_ms"] = compiled.milliseconds;
      json["simulate_ms"] = simulated.count();
      json["from_cache"] = timing.from_cache;
      if (analytic_) json["scheduled"] = analytic;
      json["timing"] = timing.report;
      session.terminal.out << dump(json) << "\n";
      return kExitOk;
    }
    session.terminal.out << fmt::format("{} on {}, {} layers, {} x {} rows, context {}: {} cycles, {:.3f} ms\n",
                                        compiled.shape.desc.name, compiled.device.name, compiled.shape.desc.layers,
                                        compiled.size.sequences, compiled.size.rows, compiled.size.keys, timing.total,
                                        seconds * 1e3)
                         << step_.text(compiled);
    if (analytic_) {
      const auto cycles = analytic["total_cycles"].get<double>();
      session.terminal.out << fmt::format("as scheduled (analytical): {:.0f} cycles, {:+.2f} % of the simulated\n",
                                          cycles, 100 * (cycles / static_cast<double>(timing.total) - 1));
    }
    for (const auto& [name, engine] : timing.report["engines"].items())
      session.terminal.out << fmt::format("{:<13}{:>6.1f} % busy\n", name, 100 * engine["busy_share"].get<double>());
    const Json& simulation = timing.report["simulation"];
    session.terminal.err << fmt::format("compiled in {:.1f} ms; {} in {:.1f} ms ({} of {} instructions repeated)\n",
                                        compiled.milliseconds, timing.from_cache ? "from the cache" : "simulated",
                                        simulated.count(), simulation["instructions_repeated"].get<std::uint64_t>(),
                                        timing.report["instructions"].get<std::uint64_t>());
    return kExitOk;
  }

 private:
  /// The analytical schedule supports one front end; for others it would give wrong figures, so they are refused.
  Expected<void> check_schedulable() const {
    const npu::TimingOptions& o = issue_.options;
    const npu::TimingOptions usual;
    const std::pair<bool, const char*> others[] = {{o.issue != usual.issue, "--issue serial"},
                                                   {o.width < usual.width, "--issue-width 1"},
                                                   {!o.chaining, "--no-chaining"},
                                                   {o.vector_starts < usual.vector_starts, "--vector-starts 1"},
                                                   {o.accumulators < usual.accumulators, "--accumulators 1"},
                                                   {!o.asynchronous, "--blocking-transfers"},
                                                   {o.compat_mlen, "--compat-mlen"},
                                                   {o.compat_scale64, "--compat-scale64"},
                                                   {step_.request.reduced, "--reduced-head"}};
    for (const auto& [given, flag] : others)
      if (given)
        return Error{ErrorCode::kUnsupported, fmt::format("the analytical schedule does not support {}", flag),
                     "--analytic", "leave one of them out"};
    return {};
  }

  /// Simulates every instruction: repeated layers have no events.
  Expected<void> write_trace(Session& session, const CompiledStep& compiled) const {
    npu::TimingOptions options = issue_.options;
    options.repeat = false;
    npu::PerfettoTrace trace(compiled.step.program, 1 / compiled.device.clock.ghz, kTraceEvents);
    DLLM_TRY(const npu::TimingReport report,
             npu::simulate(compiled.device, compiled.machine, compiled.step.program, options, &trace));
    return write_result(session, perfetto_, trace.text(report));
  }

  Expected<Json> scheduled(const CompiledStep& compiled) const {
    DLLM_TRY(const npu::PricedStep priced, npu::price(compiled, step_.routing.choices));
    Json phases = Json::array();
    for (const npu::ScheduledPhase& phase : priced.phases)
      phases.push_back({{"name", phase.name},
                        {"cycles", phase.cycles},
                        {"array_cycles", phase.array},
                        {"port_accesses", phase.ports},
                        {"memory_cycles", phase.memory}});
    return Json{{"achieved_gbps", priced.gbps}, {"total_cycles", priced.time.device}, {"phases", phases}};
  }

  static TimingFlags repeating() {
    TimingFlags flags;
    flags.options.repeat = true;
    return flags;
  }

  StepFlags step_;
  TimingFlags issue_ = repeating();
  static constexpr std::uint64_t kTraceEvents = 1000000;
  std::string output_, perfetto_;
  bool analytic_ = false, verbose_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_npu_step() { return std::make_unique<NpuStep>(); }

}  // namespace dllm::app
