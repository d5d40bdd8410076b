// dllm npu trace: the time of a program, without its data, and how every cycle was spent.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/flags.h"
#include "app/npu/program.h"
#include "app/npu/timing_flags.h"
#include "base/try.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/timing/perfetto.h"

namespace dllm::app {
namespace {

class NpuTrace final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("FILE", "program: .asm, or words as bytes or hexadecimal text", 1, words_);
    words_flag_.add(flags);
    flags.group("Machine");
    device_.add(flags);
    flags.add({.names = {"--number-format"},
               .value = "NAME=FORMAT",
               .help = "reset value of a format register, as in dllm npu run; may be repeated",
               .apply = into(formats_)});
    issue_.add(flags);
    flags.group("Output");
    flags.add({.names = {"--perfetto"},
               .value = "FILE",
               .help = "write a Chrome JSON trace, for ui.perfetto.dev",
               .takes_path = true,
               .written = true,
               .apply = into(perfetto_)});
    flags.add({.names = {"--max-instructions"},
               .value = "N",
               .help = "stop longer programs; a simulated instruction takes about a microsecond",
               .default_text = "20000000",
               .apply = into(max_instructions_)});
    flags.add({.names = {"--limit"},
               .value = "N",
               .help = "events in the trace; later ones are counted only",
               .default_text = "1000000",
               .apply = into(limit_),
               .needs = {"--perfetto"}});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (words_.empty())
      return Error{ErrorCode::kUsage, "there is no program", "dllm npu trace", "dllm npu trace FILE.asm"};
    DLLM_TRY(const npu::Program program, open_npu_program(words_.front(), session.terminal, words_flag_.source()));
    DLLM_TRY(npu::Device device, device_.load({"npu trace"}));
    DLLM_CHECK_OK(issue_.resolve(device));
    DLLM_TRY(npu::MachineConfig machine, npu::machine_config(device));
    for (const std::string& text : formats_) DLLM_CHECK_OK(npu::override_format(machine, text));
    npu::PerfettoTrace trace(program, 1 / device.clock.ghz, limit_);
    DLLM_TRY(const npu::TimingReport report, npu::simulate(device, machine, program, issue_.options,
                                                           perfetto_.empty() ? nullptr : &trace, max_instructions_));
    if (!perfetto_.empty()) DLLM_CHECK_OK(write_result(session, perfetto_, trace.text(report)));
    if (output_ == "json") {
      nlohmann::ordered_json json = provenance(session.command);
      json["program"] = program.name;
      json["timing"] = npu::timing_json(report, device, machine, issue_.options);
      if (!perfetto_.empty()) json["trace_events_dropped"] = trace.dropped();
      session.terminal.out << dump(json) << "\n";
      return kExitOk;
    }
    session.terminal.out << npu::timing_text(report, device);
    session.terminal.err << fmt::format("simulated in {:.3f} s, {:.2f} million instructions per second\n",
                                        report.host_seconds,
                                        static_cast<double>(report.instructions) / report.host_seconds * 1e-6);
    if (trace.dropped() > 0)
      session.terminal.err << fmt::format("the trace leaves out {} events; see --limit\n", trace.dropped());
    return kExitOk;
  }

 private:
  WordsFlag words_flag_;
  std::vector<std::string> words_, formats_;
  DeviceFlags device_;
  TimingFlags issue_;
  std::string perfetto_, output_;
  std::uint64_t limit_ = 1000000, max_instructions_ = 20000000;
};

}  // namespace

std::unique_ptr<Verb> make_npu_trace() { return std::make_unique<NpuTrace>(); }

}  // namespace dllm::app
