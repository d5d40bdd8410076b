// dllm npu dram: the memory model alone, under synthetic streams or a trace.
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/dram_report.h"
#include "app/npu/flags.h"
#include "base/try.h"
#include "npu_core/device/device.h"
#include "npu_core/device/energy.h"
#include "npu_core/dram/protocol_checker.h"

namespace dllm::app {
namespace {

using namespace npu::dram;

constexpr std::uint64_t kMostTraced =
    200000;  // requests; a command record takes 24 bytes, and the check is quadratic in nearby commands

class NpuDram final : public Verb {
 public:
  void declare(Flags& flags) override {
    declare_memory(flags);
    declare_traffic(flags);
    declare_output(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    std::ostream& out = session.terminal.out;
    if (list_) {
      out << (output_ == "json" ? dump(standards_json()) + "\n" : standards_text());
      return kExitOk;
    }
    if (flags.given("--stride") && pattern_ != "strided")
      return Error{ErrorCode::kUsage, "is read only with --pattern strided", "--stride", ""};
    if (flags.given("--seed") && pattern_ != "random" && spec_.write_fraction == 0)
      return Error{ErrorCode::kUsage, "is read only with --pattern random or --writes", "--seed", ""};
    std::int64_t period_fs = 1000000;
    DLLM_TRY(const MemoryConfig config, memory(flags, period_fs));
    const bool traced = check_ || !commands_.empty();
    if (traced && trace_.empty() && static_cast<std::uint64_t>(requests_) > kMostTraced)
      return Error{ErrorCode::kUsage, fmt::format("{} requests with a command trace", requests_), "--requests",
                   fmt::format("at most {}", kMostTraced)};
    DLLM_TRY(MemorySystem memory, MemorySystem::create(config, period_fs, traced));
    const auto start = std::chrono::steady_clock::now();
    DLLM_CHECK_OK(traffic(memory, session));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    memory.advance(memory.cycle_of(memory.finished()));
    const StreamResult result = summary(memory);
    std::optional<double> loss;
    if (config.refresh == RefreshMode::kPerBank) {
      DLLM_TRY(loss, refresh_loss(config, period_fs, result, session));
    }
    if (!commands_.empty()) DLLM_CHECK_OK(write_commands(session, memory));
    if (output_ == "json") {
      nlohmann::ordered_json json = provenance(session.command);
      json.update(dram_json(memory, result));
      if (loss) json["result"]["refresh_loss_percent"] = 100 * *loss;
      if (flags.given("--device")) json["energy_j"] = energy(memory);
      if (benchmark_) json["lines_per_second"] = static_cast<double>(result.bytes) / 64 / took.count();
      out << dump(json) << "\n";
    } else {
      out << dram_text(memory, result);
      if (loss)
        out << fmt::format("refresh takes {:.2f} % of this traffic's bandwidth, compared with no refresh\n",
                           100 * *loss);
      if (flags.given("--device")) out << fmt::format("energy: {:.4g} J\n", energy(memory));
      if (benchmark_)
        out << fmt::format("simulated at {:.2f} million 64-byte lines per second\n",
                           static_cast<double>(result.bytes) / 64 / took.count() * 1e-6);
    }
    if (check_) {
      const std::vector<std::string> faults = check_protocol(memory.trace(), config);
      if (!faults.empty()) return Error{ErrorCode::kMismatch, faults.front(), "protocol check", ""};
      session.terminal.err << fmt::format("protocol check: {} commands, none too early\n", memory.trace().size());
    }
    return kExitOk;
  }

 private:
  void declare_memory(Flags& flags) {
    flags.group("Memory");
    flags.add({.names = {"--device"},
               .value = "NAME|FILE",
               .help = "take the memory of this device profile",
               .takes_path = true,
               .apply = into(device_.name)});
    flags.add({.names = {"--set"},
               .value = "KEY=VALUE",
               .help = "change one key of the profile",
               .apply = into(device_.sets)});
    flags.add({.names = {"--standard"},
               .value = "NAME|FILE",
               .help = "DRAM standard, without a device; see --list",
               .default_text = "hbm2e-3200",
               .takes_path = true,
               .apply = into(standard_)});
    flags.add({.names = {"--channels"},
               .value = "N",
               .help = "channels",
               .default_text = "1",
               .apply = into(channels_, 1, 64)});
    flags.add({.names = {"--mapping"},
               .value = "NAME",
               .help = "address mapping",
               .default_text = "the standard's",
               .apply = into(mapping_)});
    flags.add({.names = {"--row-policy"},
               .value = "P",
               .help = "row policy",
               .choices = {"open", "closed", "timeout"},
               .apply = into(policy_, {"open", "closed", "timeout"})});
    flags.add({.names = {"--refresh"},
               .value = "M",
               .help = "refresh",
               .choices = {"all-bank", "per-bank", "none"},
               .apply = into(refresh_, {"all-bank", "per-bank", "none"})});
  }

  void declare_traffic(Flags& flags) {
    flags.group("Traffic");
    flags.add({.names = {"--pattern"},
               .value = "P",
               .help = "addresses",
               .default_text = "sequential",
               .choices = {"sequential", "random", "strided"},
               .apply = into(pattern_, {"sequential", "random", "strided"})});
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    flags.add({.names = {"--requests"},
               .value = "N",
               .help = "requests",
               .default_text = "100000",
               .apply = into(requests_, 1, kMost)});
    flags.add({.names = {"--bytes"},
               .value = "N",
               .help = "per request",
               .default_text = "64",
               .apply = into(bytes_, 1, kMost)});
    flags.add({.names = {"--stride"},
               .value = "N",
               .help = "stride of --pattern strided, in bytes",
               .apply = into(stride_, 1, kMost)});
    flags.add({.names = {"--footprint"},
               .value = "N",
               .help = "bytes of memory that are accessed",
               .default_text = "all",
               .apply = into(footprint_, 1, kMost)});
    flags.add({.names = {"--writes"},
               .value = "F",
               .help = "share of writes",
               .default_text = "0",
               .apply = into(spec_.write_fraction, 0, 1)});
    flags.add({.names = {"--outstanding"},
               .value = "N",
               .help = "requests in flight",
               .default_text = "256 per pseudo-channel",
               .apply = into(outstanding_, 1, 1 << 24)});
    flags.add({.names = {"--seed"},
               .value = "N",
               .help = "seed of random addresses and writes",
               .default_text = "0",
               .apply = into(spec_.seed)});
    flags.add({.names = {"--trace"},
               .value = "FILE",
               .help = "replay requests: lines of R|W, address, bytes, cycle (1 GHz, or the device's)",
               .takes_path = true,
               .apply = into(trace_)});
    flags.read_only_without("Traffic", {"--trace"});
  }

  void declare_output(Flags& flags) {
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    flags.add({.names = {"--commands"},
               .value = "FILE",
               .help = "write every DRAM command",
               .takes_path = true,
               .written = true,
               .apply = into(commands_)});
    flags.add({.names = {"--check"}, .help = "verify every command against the standard", .apply = into(check_)});
    flags.add({.names = {"--benchmark"}, .help = "also print the speed of the simulation", .apply = into(benchmark_)});
    flags.add({.names = {"--list"},
               .help = "the shipped standards, their timing with sources (json), and mappings",
               .apply = into(list_)});
  }

  Expected<MemoryConfig> memory(const Flags& flags, std::int64_t& period_fs) const {
    MemoryConfig config;
    if (flags.given("--device")) {
      if (flags.given("--standard") || flags.given("--channels"))
        return Error{ErrorCode::kUsage, "--device has its own memory", "",
                     "use --set memory.standard=... and memory.stacks=..."};
      DLLM_TRY(const npu::Device device, device_.load({"npu dram"}));
      config = device.memory_config;
      period_fs = device.period_fs();
    } else {
      if (!device_.sets.empty()) return Error{ErrorCode::kUsage, "--set needs a --device", "", ""};
      DLLM_TRY(config.standard, load_standard(standard_));
      config.channels = channels_;
    }
    if (!mapping_.empty()) config.mapping = mapping_;
    if (!policy_.empty())
      config.row_policy = policy_ == "open"     ? RowPolicy::kOpen
                          : policy_ == "closed" ? RowPolicy::kClosed
                                                : RowPolicy::kTimeout;
    if (!refresh_.empty())
      config.refresh = refresh_ == "none"       ? RefreshMode::kNone
                       : refresh_ == "all-bank" ? RefreshMode::kAllBank
                                                : RefreshMode::kPerBank;
    return config;
  }

  Expected<void> traffic(MemorySystem& memory, Session& session) {
    if (!trace_.empty()) {
      DLLM_TRY(const std::string text, read_text(trace_, session.terminal));
      DLLM_TRY(const std::vector<TraceRequest> requests, parse_trace(text, trace_));
      if (auto done = run_trace(memory, requests); !done) return std::move(done).error();
      return {};
    }
    spec_.pattern = pattern_ == "random"    ? Pattern::kRandom
                    : pattern_ == "strided" ? Pattern::kStrided
                                            : Pattern::kSequential;
    spec_.requests = static_cast<std::uint64_t>(requests_);
    spec_.request_bytes = static_cast<std::uint64_t>(bytes_);
    spec_.stride = static_cast<std::uint64_t>(stride_);
    spec_.footprint = static_cast<std::uint64_t>(footprint_);
    spec_.outstanding = static_cast<std::uint64_t>(outstanding_);
    if (auto done = run_stream(memory, spec_); !done) return std::move(done).error();
    return {};
  }

  /// Refreshes of single banks overlap with other banks' work, so their cost is measured by comparison.
  Expected<double> refresh_loss(MemoryConfig config, std::int64_t period_fs, const StreamResult& result,
                                Session& session) {
    config.refresh = RefreshMode::kNone;
    DLLM_TRY(MemorySystem memory, MemorySystem::create(config, period_fs));
    DLLM_CHECK_OK(traffic(memory, session));
    memory.advance(memory.cycle_of(memory.finished()));
    const StreamResult without = summary(memory);
    return without.gbps > 0 ? 1 - result.gbps / without.gbps : 0;
  }

  double energy(const MemorySystem& memory) const {
    double joules = 0;
    const auto device = device_.load({"npu dram"});  // has loaded before
    for (int c = 0; device && c < memory.config().channels; ++c)
      for (int p = 0; p < memory.config().standard.pseudochannels; ++p)
        joules += npu::dram_energy(*device, memory.stats(c, p));
    return joules;
  }

  Expected<void> write_commands(Session& session, const MemorySystem& memory) const {
    return write_result(session, commands_, command_trace_text(memory));
  }

  DeviceFlags device_;
  std::string standard_ = "hbm2e-3200", mapping_, policy_, refresh_, pattern_, trace_, output_, commands_;
  std::int32_t channels_ = 1;
  std::int64_t requests_ = 100000, bytes_ = 64, stride_ = 0, footprint_ = 0, outstanding_ = 0;
  StreamSpec spec_;
  bool check_ = false, list_ = false, benchmark_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_npu_dram() { return std::make_unique<NpuDram>(); }

}  // namespace dllm::app
