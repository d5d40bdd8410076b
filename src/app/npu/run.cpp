#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "app/cli/model_file.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/flags.h"
#include "app/npu/program.h"
#include "app/npu/timing_flags.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/try.h"
#include "dllm/version.h"
#include "format/npy.h"
#include "npu_core/device/profile.h"
#include "npu_core/isa/csr.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/machine/hazard_monitor.h"
#include "npu_core/machine/images.h"

namespace dllm::app {
namespace {

/// Limit for an image, which is as large as the memory that it fills.
constexpr std::size_t kMostImageBytes = std::size_t{8} << 30;

/// Prints one line per instruction, then calls the other observers.
class Observer final : public npu::IssueObserver {
 public:
  /// `half`: Program::half_scalars.
  Observer(std::string* trace, bool half, std::vector<npu::IssueObserver*> others)
      : trace_(trace), half_(half), others_(std::move(others)) {}

  void on_issue(const npu::IssueEvent& event) override {
    for (npu::IssueObserver* other : others_) other->on_issue(event);
    if (trace_ == nullptr) return;
    *trace_ += fmt::format("{} {} {}", event.sequence, event.index, npu::to_text(*event.instruction, half_));
    for (int i = 0; i < event.accesses->count; ++i) {
      const npu::MemoryRange& range = (*event.accesses)[i];
      if (range.length == 0) continue;
      *trace_ += fmt::format(" {}{}@{}:{}x{}x{}", range.access == npu::Access::kRead ? "<" : ">",
                             npu::name_of(range.space), range.base, range.groups, range.rows, range.length);
    }
    *trace_ += '\n';
  }

 private:
  std::string* trace_;
  bool half_;
  std::vector<npu::IssueObserver*> others_;
};

struct Dump {
  std::string text;  ///< the piece of memory, as given
  npu::ImageSpec spec;
  std::string file;
};

class NpuRun final : public Verb {
 public:
  void declare(Flags& flags) override {
    declare_machine(flags);
    declare_output(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (words_.empty()) return Error{ErrorCode::kUsage, "there is no program", "dllm npu run", "dllm npu run FILE.asm"};
    DLLM_TRY(const std::vector<Dump> dumps, parse_dumps());
    DLLM_TRY(npu::Device device, device_.load({timing_ ? "npu run --timing" : "npu run"}));
    DLLM_CHECK_OK(issue_.resolve(device));
    DLLM_TRY(const npu::MachineConfig config, machine(device));
    const bool half = config.lanes == npu::LaneFormat::kF16;
    DLLM_TRY(const npu::Program program,
             open_npu_program(words_.front(), session.terminal, words_flag_.source(), half));
    DLLM_TRY(npu::Machine machine, npu::Machine::create(config));
    for (const std::string& text : csrs_) DLLM_CHECK_OK(set_control(machine.state(), text));
    DLLM_CHECK_OK(load(machine.state()));
    std::string trace;
    npu::HazardMonitor monitor;
    std::unique_ptr<npu::TimingSimulator> simulator;
    std::vector<npu::IssueObserver*> observers;
    if (hazards_) observers.push_back(&monitor);
    if (timing_) {
      DLLM_TRY(simulator, npu::TimingSimulator::create(device, config, program, issue_.options));
      observers.push_back(simulator.get());
    }
    Observer observer(trace_.empty() ? nullptr : &trace, program.half_scalars, observers);
    npu::RunOptions options;
    options.max_instructions = max_instructions_;
    options.data = !no_data_;
    if (!trace_.empty() || !observers.empty()) options.observer = &observer;
    const auto result = machine.run(program, options);
    if (!trace_.empty()) DLLM_CHECK_OK(write_result(session, trace_, trace, made_of(words_)));
    if (!result) return result.error();
    if (timing_) {
      const npu::TimingReport report = simulator->finish();
      timing_json_ = npu::timing_json(report, device, config, issue_.options);
      timing_text_ = npu::timing_text(report, device);
    }
    return report(session, program, config, machine.state(), *result, dumps, monitor.hazards());
  }

 private:
  void declare_machine(Flags& flags) {
    flags.group("Input");
    flags.positionals("FILE", "program: .asm, or words as bytes or hexadecimal text", 1, words_);
    words_flag_.add(flags);
    flags.add(
        {.names = {"--load"},
         .value = "PIECE=FILE",
         .help = "fill memory: vram@0=x.npy, fp@16=c.npy, int@0=ids.npy, hbm@4096:mxint4:32:ocp=w.npy; files that are "
                 "not NumPy's are copied as raw words; may be repeated",
         .apply = into(loads_)});
    flags.group("Machine");
    device_.add(flags);
    flags.add({.names = {"--number-format"},
               .value = "NAME=FORMAT",
               .help =
                   "reset value of a format register: weight, matrix_kv, activation, vector_kv or matrix_input, for "
                   "example matrix_input=bf16; may be repeated",
               .apply = into(formats_)});
    flags.add({.names = {"--loop-depth"},
               .value = "N",
               .help = "maximum nesting of hardware loops",
               .default_text = "16",
               .apply = into(loop_depth_, 1, 64)});
    flags.add({.names = {"--bf16-sums"},
               .help = "round V_RED_SUM to BF16 after every row, as PLENA's emulator",
               .apply = into(bf16_sums_)});
    flags.add(
        {.names = {"--tmv-vector-first"},
         .help = "M_TMV has the vector in rs1 and the matrix in rs2, as PLENA's flash-attention template writes it",
         .apply = into(tmv_vector_first_)});
    flags.add({.names = {"--csr"},
               .value = "NAME=VALUE",
               .help = "set a control register before the run: bmm_scale=0.25; docs/guide/isa.md lists them; may be "
                       "repeated",
               .apply = into(csrs_)});
    flags.add({.names = {"--max-instructions"},
               .value = "N",
               .help = "stop longer programs",
               .default_text = "1000000000",
               .apply = into(max_instructions_)});
    flags.add({.names = {"--timing"},
               .help = "also simulate the time it takes, docs/design/npu-timing.md",
               .apply = into(timing_)});
    flags.add({.names = {"--no-data"},
               .help = "execute integers and control only: all that timing needs",
               .apply = into(no_data_)});
  }

  void declare_output(Flags& flags) {
    issue_.add(flags);
    flags.read_only_with("Issue", {"--timing"});
    flags.group("Output");
    flags.add({.names = {"--dump"},
               .value = "PIECE[=FILE]",
               .help = "print memory after the run, or write it to a NumPy file: vram@0:64, int@0:32=ids.npy, "
                       "hbm@4096+8192:64:mxint8:32:ocp; may be repeated",
               .apply = into(dumps_)});
    flags.add({.names = {"--trace"},
               .value = "FILE",
               .help = "write each instruction with its addresses",
               .takes_path = true,
               .written = true,
               .apply = into(trace_)});
    flags.add({.names = {"--hazards"},
               .help = "report memory that is used before a fence for its transfer",
               .apply = into(hazards_)});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<npu::MachineConfig> machine(const npu::Device& device) const {
    DLLM_TRY(npu::MachineConfig config, npu::machine_config(device));
    for (const std::string& text : formats_) DLLM_CHECK_OK(npu::override_format(config, text));
    config.loop_depth = loop_depth_;
    config.bf16_sums = bf16_sums_;
    config.tmv_vector_first = tmv_vector_first_;
    return config;
  }

  static Expected<void> set_control(npu::MachineState& state, const std::string& text) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const npu::CsrInfo* csr = npu::find_csr(std::string_view(text).substr(0, equals));
    if (csr == nullptr)
      return bad_value(fmt::format("--csr {}: there is no control register '{}'", text, text.substr(0, equals)),
                       "--csr NAME=VALUE; docs/guide/isa.md lists the names");
    const std::string value = equals < text.size() ? text.substr(equals + 1) : "";
    std::optional<std::uint32_t> bits;
    if (csr->csr == npu::Csr::kBmmScale) {
      if (const auto number = parse_number<float>(value)) bits = std::bit_cast<std::uint32_t>(*number);
    } else {
      bits = parse_number<std::uint32_t>(value);
    }
    if (!bits) return bad_value(fmt::format("--csr {}: '{}' is not a number", text, value));
    if (const std::string fault = state.set_control(csr->csr, *bits); !fault.empty())
      return bad_value(fmt::format("--csr {}: {}", text, fault));
    return {};
  }

  Expected<void> load(npu::MachineState& state) const {
    for (const std::string& text : loads_) {
      const std::size_t equals = text.find('=');
      if (equals == std::string::npos)
        return bad_value(fmt::format("--load {} names no file", text), "--load PIECE=FILE");
      DLLM_TRY(const npu::ImageSpec spec, npu::parse_image_spec(text.substr(0, equals)));
      const std::string path = text.substr(equals + 1);
      DLLM_TRY(const std::string bytes, read_input(path, kMostImageBytes));
      auto loaded = npu::load_image(state, spec, bytes, path);
      if (loaded) continue;
      Error error = std::move(loaded).error();
      if (error.where.empty()) error.where = "--load " + text;
      return error;
    }
    return {};
  }

  Expected<std::vector<Dump>> parse_dumps() const {
    std::vector<Dump> dumps;
    for (const std::string& text : dumps_) {
      const std::size_t equals = std::min(text.find('='), text.size());
      Dump dump{text.substr(0, equals), {}, equals < text.size() ? text.substr(equals + 1) : ""};
      DLLM_TRY(dump.spec, npu::parse_image_spec(dump.text));
      if (!dump.file.empty()) DLLM_CHECK_OK(check_result(dump.file, made_of(words_)));
      dumps.push_back(std::move(dump));
    }
    return dumps;
  }

  Expected<ExitCode> report(Session& session, const npu::Program& program, const npu::MachineConfig& config,
                            const npu::MachineState& state, const npu::RunResult& result,
                            const std::vector<Dump>& dumps, const std::vector<npu::Hazard>& hazards) const {
    nlohmann::ordered_json memories = nlohmann::ordered_json::object();
    std::string text;
    for (const Dump& dump : dumps) {
      DLLM_TRY(const npu::ImageValues values, npu::read_image(state, dump.spec));
      if (!dump.file.empty()) {
        DLLM_CHECK_OK(write_result(session, dump.file,
                                   values.is_integer ? npy_of(values.integers) : npy_of(values.real), made_of(words_)));
        continue;
      }
      text += dump.text + ":";
      if (values.is_integer) {
        memories[dump.text] = values.integers;
        for (const std::uint32_t value : values.integers) text += fmt::format(" {}", value);
      } else {
        memories[dump.text] = numbers(values.real);
        for (const float value : values.real) text += fmt::format(" {}", value);
      }
      text += '\n';
    }
    nlohmann::ordered_json counts = nlohmann::ordered_json::object();
    for (int op = 0; op < npu::kOpCount; ++op)
      if (const std::uint64_t count = result.counts[static_cast<std::size_t>(op)]; count != 0) {
        auto& entry = counts[std::string(npu::info(static_cast<npu::Op>(op)).mnemonic)];
        entry = (entry.is_null() ? std::uint64_t{0} : entry.get<std::uint64_t>()) + count;
      }
    nlohmann::ordered_json found = nlohmann::ordered_json::array();
    for (const npu::Hazard& hazard : hazards)
      found.push_back({{"where", program.where(hazard.index)}, {"what", hazard.what}});
    if (output_ == "json") {
      nlohmann::ordered_json json = {{"program", program.name},
                                     {"instructions", result.instructions},
                                     {"counts", counts},
                                     {"stopped_by", result.stopped_by_break ? "C_BREAK" : "end"},
                                     {"memory", memories},
                                     {"hazards", found},
                                     {"config", config_json(config)}};
      if (timing_) json["timing"] = timing_json_;
      json["version"] = DLLM_VERSION;
      json["command"] = session.command;
      session.terminal.out << dump(json) << "\n";
      return kExitOk;
    }
    session.terminal.out << text << timing_text_;
    session.terminal.err << fmt::format("{} instructions, stopped {}\n", result.instructions,
                                        result.stopped_by_break ? "by C_BREAK" : "after the last");
    for (const npu::Hazard& hazard : hazards)
      session.terminal.err << fmt::format("warning: {}: {}\n", program.where(hazard.index), hazard.what);
    return kExitOk;
  }

  /// JSON has no infinities: those and NaN as strings.
  static nlohmann::ordered_json numbers(const std::vector<float>& values) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const float value : values) {
      if (std::isfinite(value))
        list.push_back(value);
      else
        list.push_back(fmt::format("{}", value));
    }
    return list;
  }

  nlohmann::ordered_json config_json(const npu::MachineConfig& c) const {
    nlohmann::ordered_json json = {{"device", device_.name}, {"set", device_.sets}};
    json.update(npu::machine_json(c));
    json.update({{"contraction_bits", c.contraction_bits}, {"bf16_sums", c.bf16_sums}});
    json.update({{"tmv_vector_first", c.tmv_vector_first}, {"csr", csrs_}});
    return json;
  }

  std::vector<std::string> words_, loads_, dumps_, formats_, csrs_;
  DeviceFlags device_{.name = "plena-64", .sets = {}};
  std::string trace_, output_;
  std::int32_t loop_depth_ = 16;
  std::uint64_t max_instructions_ = 1000000000;
  WordsFlag words_flag_;
  bool bf16_sums_ = false, tmv_vector_first_ = false, hazards_ = false, timing_ = false, no_data_ = false;
  TimingFlags issue_;
  nlohmann::ordered_json timing_json_;
  std::string timing_text_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_run() { return std::make_unique<NpuRun>(); }

}  // namespace dllm::app
