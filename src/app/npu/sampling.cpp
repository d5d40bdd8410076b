// dllm npu sampling: the sampling phases as a program, timed, and optionally computed and compared.

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
#include "npu_core/device/profile.h"
#include "npu_core/sampling/closed_form.h"
#include "npu_core/sampling/kernel.h"
#include "npu_core/sampling/plot.h"
#include "npu_core/sampling/reference.h"
#include "npu_core/timing/perfetto.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuSampling final : public Verb {
 public:
  void declare(Flags& flags) override {
    declare_problem(flags);
    declare_sweep(flags);
    declare_output(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    resolve_form();
    shape_.precision = *npu::draw_precision_from_name(draw_precision_);
    if (!sweep_.empty()) {
      if (flags.given("--output"))
        return Error{ErrorCode::kUsage, "is not read with --sweep", "--output", "the sweep is a table; --csv saves it"};
      return sweep(session);
    }
    DLLM_TRY(npu::Device device, device());
    DLLM_CHECK_OK(issue_.resolve(device));
    DLLM_TRY(const npu::SamplingKernel kernel, npu::build_sampling(device, shape_));
    if (!emit_.empty()) {
      session.terminal.out << kernel.assembly;
      return kExitOk;
    }
    npu::PerfettoTrace trace(kernel.program, 1 / device.clock.ghz, kMostEvents);
    DLLM_TRY(const npu::TimingReport report,
             npu::simulate(device, kernel.machine, kernel.program, issue_.options, trace_.empty() ? nullptr : &trace));
    if (!trace_.empty()) DLLM_CHECK_OK(write_result(session, trace_, trace.text(report)));
    if (check_) DLLM_CHECK_OK(check(kernel));
    if (output_ == "json")
      session.terminal.out << dump(json(device, kernel, report, session.command)) << "\n";
    else
      session.terminal.out << text(device, kernel, report);
    return kExitOk;
  }

 private:
  void declare_problem(Flags& flags) {
    flags.group("Device");
    device_.add(flags);
    flags.add({.names = {"--published"},
               .value = "WHEN",
               .help = "the memory system, scale fetch and block length of the published figures",
               .default_text = "auto: for the published form under serial issue",
               .choices = {"auto", "yes", "no"},
               .apply = into(published_, {"auto", "yes", "no"})});
    flags.group("Problem");
    number(flags, "--batch", "sequences", shape_.batch);
    number(flags, "--block", "positions per sequence", shape_.block);
    number(flags, "--vocab", "logits per position", shape_.vocab);
    number(flags, "--steps", "denoising steps", shape_.steps);
    flags.add({.names = {"--chunk"},
               .value = "N",
               .help = "logits of a position on chip at once, a multiple of VLEN",
               .default_text = "as many as fit",
               .apply = into(shape_.chunk, 1, 1 << 24)});
    flags.add({.names = {"--preload"},
               .value = "N",
               .help = "vectors per transfer",
               .default_text = "the profile's (published), the chunk (others)",
               .apply = into(shape_.preload, 1, 1 << 16)});
    flags.add({.names = {"--form"},
               .value = "FORM",
               .help = "published: load, then reduce; chunked: read twice; one-pass: read once, pipelined",
               .default_text = "serial: published, chunked with --chunk; overlapped: one-pass",
               .choices = {"published", "chunked", "one-pass"},
               .apply = into(form_, {"published", "chunked", "one-pass"})});
    declare_draws(flags);
    issue_.add(flags);
  }

  void declare_draws(Flags& flags) {
    flags.group("Draws");
    flags.add({.names = {"--temperature"},
               .value = "T",
               .help = "draw tokens from softmax(logits / T); needs noise generators: --set array.noise_lanes=N",
               .default_text = "0: the arg-max",
               .apply = into(shape_.temperature, 0, 100)});
    flags.add({.names = {"--draw-precision"},
               .value = "P",
               .help = "numbers in which draws are compared: f64, f32, bf16",
               .default_text = "f64",
               .choices = {"f64", "f32", "bf16"},
               .apply = into(draw_precision_, {"f64", "f32", "bf16"}),
               .needs = {"--temperature"}});
    flags.add({.names = {"--tempered"},
               .help = "confidence of a draw at its temperature instead of at 1",
               .apply = into(shape_.tempered),
               .needs = {"--temperature"}});
  }

  void declare_sweep(Flags& flags) {
    flags.group("Sweep");
    flags.add({.names = {"--sweep"},
               .value = "KEY=N,N,...",
               .help = "one run per value of batch, block, vocab, steps, chunk or preload",
               .apply = into(sweep_)});
    flags.add({.names = {"--lanes"},
               .value = "N,N,...",
               .help = "one line of the sweep per VLEN",
               .default_text = "the profile's",
               .apply = into(lanes_),
               .needs = {"--sweep"}});
    flags.add({.names = {"--csv"},
               .value = "FILE",
               .help = "the sweep as a table",
               .takes_path = true,
               .written = true,
               .apply = into(csv_),
               .needs = {"--sweep"}});
    flags.add({.names = {"--svg"},
               .value = "FILE",
               .help = "plot the sweep's latency; a plot of its on-chip memory goes to FILE-sram.svg",
               .takes_path = true,
               .written = true,
               .apply = into(svg_),
               .needs = {"--sweep"}});
  }

  void declare_output(Flags& flags) {
    flags.group("Output");
    flags.add({.names = {"--emit"},
               .value = "WHAT",
               .help = "print the program instead of running it",
               .choices = {"asm"},
               .apply = into(emit_, {"asm"}),
               .without = {"--sweep"}});
    flags.add({.names = {"--check"},
               .value = "SEED",
               .help = "also run it on random logits and compare with plain loops",
               .apply = [this](const std::string& text) -> Expected<void> {
                 check_ = true;
                 return into(seed_)(text);
               },
               .without = {"--sweep", "--emit"}});
    flags.add({.names = {"--trace"},
               .value = "FILE",
               .help = "write a trace for ui.perfetto.dev",
               .takes_path = true,
               .written = true,
               .apply = into(trace_),
               .without = {"--sweep", "--emit"}});
    add_output_flag(flags, output_, {"text", "json"});
  }

  static constexpr std::uint64_t kMostEvents = 1000000;

  void number(Flags& flags, const char* name, const char* help, std::int64_t& target) {
    flags.add({.names = {name},
               .value = "N",
               .help = help,
               .default_text = fmt::format("{}", target),
               .apply = into(target, 1, 1 << 24)});
  }

  void resolve_form() {
    const bool serial = issue_.options.issue == npu::IssueMode::kSerial;
    if (const auto form = npu::sampling_form_from_name(form_))
      shape_.form = *form;
    else if (serial)
      shape_.form = sweep_.starts_with("chunk=") || (shape_.chunk > 0 && shape_.chunk < shape_.vocab)
                        ? npu::SamplingForm::kChunked
                        : npu::SamplingForm::kPublished;
    else
      shape_.form = npu::SamplingForm::kOnePass;
    as_published_ = published_ == "yes" || (published_ != "no" && serial && shape_.form != npu::SamplingForm::kOnePass);
    if (as_published_) issue_.options.compat_scale64 = true;
  }

  /// `vlen`: replaces the profile's; 0: does not.
  Expected<npu::Device> device(std::int64_t vlen = 0) const {
    std::vector<npu::Override> overrides;
    if (as_published_) overrides = npu::published_sampling_overrides();
    if (vlen > 0) overrides.push_back({"array.vlen", fmt::format("{}", vlen)});
    return device_.load({shape_.draws() ? "npu sampling --temperature" : "npu sampling"}, std::move(overrides));
  }

  static Expected<std::vector<std::int64_t>> numbers(const std::string& text, const char* flag) {
    std::vector<std::int64_t> values;
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t comma = std::min(text.find(',', from), text.size());
      const auto value = parse_number<std::int64_t>(text.substr(from, comma - from));
      if (!value || *value < 1)
        return Error{ErrorCode::kUsage, fmt::format("'{}' is not a list of numbers", text), flag, ""};
      values.push_back(*value);
      from = comma + 1;
    }
    return values;
  }

  std::int64_t* swept(std::string_view key) {
    const std::pair<std::string_view, std::int64_t*> keys[] = {{"batch", &shape_.batch}, {"block", &shape_.block},
                                                               {"vocab", &shape_.vocab}, {"steps", &shape_.steps},
                                                               {"chunk", &shape_.chunk}, {"preload", &shape_.preload}};
    for (const auto& [name, target] : keys)
      if (name == key) return target;
    return nullptr;
  }

  /// One run per value and VLEN: a table, and plots of time and on-chip memory.
  Expected<ExitCode> sweep(Session& session) {
    const std::size_t equals = std::min(sweep_.find('='), sweep_.size());
    const std::string key = sweep_.substr(0, equals);
    std::int64_t* target = swept(key);
    if (target == nullptr || equals == sweep_.size())
      return Error{ErrorCode::kUsage, fmt::format("'{}' sweeps nothing", sweep_), "--sweep",
                   "batch, block, vocab, steps, chunk or preload, as in batch=2,4,8"};
    DLLM_TRY(const std::vector<std::int64_t> values, numbers(sweep_.substr(equals + 1), "--sweep"));
    std::vector<std::int64_t> lanes = {0};
    if (!lanes_.empty()) {
      DLLM_TRY(lanes, numbers(lanes_, "--lanes"));
    }
    const std::string second = svg_.substr(0, svg_.size() - (svg_.ends_with(".svg") ? 4 : 0)) + "-sram.svg";
    if (!svg_.empty() && svg_ != "-") DLLM_CHECK_OK(check_result(second));
    const std::int64_t before = *target;
    std::string table =
        fmt::format("vlen,{},total_cycles,time_ms,memory_gbps,sram_paper_bytes,sram_allocated_bytes,bound_ms\n", key);
    std::vector<npu::PlotLine> times, memories;
    for (const std::int64_t vlen : lanes) {
      npu::PlotLine time, paper, allocated;
      for (const std::int64_t value : values) {
        *target = value;
        DLLM_TRY(npu::Device device, device(vlen));
        DLLM_CHECK_OK(issue_.resolve(device));
        DLLM_TRY(const npu::SamplingKernel kernel, npu::build_sampling(device, shape_));
        DLLM_TRY(const npu::TimingReport report, npu::simulate(device, kernel.machine, kernel.program, issue_.options));
        const npu::SamplingSram sram = npu::sampling_sram(device, load(kernel));
        const std::int64_t formula = sram.integer + sram.fp + sram.vector;
        const npu::SamplingLayout& at = kernel.layout;
        const std::int64_t used = std::int64_t{4} * at.int_words + std::int64_t{2} * at.fp_words +
                                  2 * static_cast<std::int64_t>(at.vram_rows) * device.array.vlen;
        const double ms = report.seconds(device) * 1e3;
        table += fmt::format("{},{},{},{:.6g},{:.4g},{},{},{:.6g}\n", device.array.vlen, value, report.total, ms,
                             static_cast<double>(report.read_bytes) / (ms * 1e6), formula, used,
                             npu::sampling_bounds(device, load(kernel)).bound() / device.clock.ghz * 1e-6);
        const auto x = static_cast<double>(value);
        time.name = fmt::format("VLEN {}", device.array.vlen);
        paper.name = time.name + ", the papers' formula";
        allocated.name = time.name + ", allocated";
        time.points.emplace_back(x, ms);
        paper.points.emplace_back(x, static_cast<double>(formula) / 1024);
        allocated.points.emplace_back(x, static_cast<double>(used) / 1024);
      }
      times.push_back(std::move(time));
      memories.push_back(std::move(paper));
      memories.push_back(std::move(allocated));
    }
    *target = before;
    session.terminal.out << table;
    if (!csv_.empty()) DLLM_CHECK_OK(write_result(session, csv_, table));
    if (svg_.empty()) return kExitOk;
    const bool log_x = key == "chunk";
    const std::string issue(npu::name_of(issue_.options.issue));
    const std::string title = fmt::format("Sampling, {} form, {} issue", npu::name_of(shape_.form), issue);
    DLLM_CHECK_OK(write_result(session, svg_, npu::line_plot(title, key, "time, ms", times, log_x)));
    const std::string memory = npu::line_plot(title, key, "on-chip memory, KiB", memories, log_x, log_x);
    if (svg_ != "-") DLLM_CHECK_OK(write_result(session, second, memory));
    return kExitOk;
  }

  Expected<void> check(const npu::SamplingKernel& kernel) const {
    const npu::SamplingInputs inputs = npu::random_sampling_inputs(kernel.shape, seed_);
    std::vector<std::vector<std::uint8_t>> later;
    const npu::SamplingOutputs expected = npu::sample_plainly(kernel, inputs, &later);
    DLLM_TRY(npu::Machine machine, npu::Machine::create(kernel.machine));
    npu::load_sampling(kernel, inputs, later, machine.state());
    if (const auto result = machine.run(kernel.program); !result) return result.error();
    const npu::SamplingOutputs found = npu::read_sampling(kernel, machine.state());
    if (found.tokens != expected.tokens || found.predicted != expected.predicted ||
        found.confidences != expected.confidences)
      return Error{ErrorCode::kMismatch, "the program and plain loops disagree", "sampling --check", ""};
    return {};
  }

  npu::SamplingLoad load(const npu::SamplingKernel& kernel) const {
    npu::SamplingLoad load;
    load.batch = shape_.batch;
    load.block = shape_.block;
    load.vocab = shape_.vocab;
    load.steps = shape_.steps;
    if (shape_.draws())
      load.draws = shape_.precision == npu::DrawPrecision::kF64 ? npu::SamplingLoad::kF64 : npu::SamplingLoad::kOther;
    load.chunk = kernel.shape.form == npu::SamplingForm::kPublished ? 0 : kernel.shape.chunk;
    return load;
  }

  Json json(const npu::Device& device, const npu::SamplingKernel& kernel, const npu::TimingReport& report,
            const std::string& command) const {
    const npu::SamplingBounds bounds = npu::sampling_bounds(device, load(kernel));
    const npu::SamplingSram paper = npu::sampling_sram(device, load(kernel));
    const npu::SamplingLayout& at = kernel.layout;
    Json j = provenance(command);
    j["problem"] = {{"batch", shape_.batch},       {"block", shape_.block},
                    {"vocab", shape_.vocab},       {"padded_vocab", at.padded_vocab},
                    {"steps", shape_.steps},       {"form", npu::name_of(kernel.shape.form)},
                    {"chunk", kernel.shape.chunk}, {"preload_vectors", kernel.shape.preload},
                    {"buffers", at.buffers},       {"published_memory", as_published_}};
    if (shape_.draws()) {
      const char* distribution = shape_.tempered ? "sampled" : "raw";
      j["problem"]["draws"] = {{"temperature", shape_.temperature},
                               {"precision", npu::name_of(shape_.precision)},
                               {"confidence", distribution},
                               {"noise_lanes", device.array.noise_lanes}};
    }
    j["total_cycles"] = report.total;
    j["time_ms"] = report.seconds(device) * 1e3;
    if (issue_.options.issue == npu::IssueMode::kSerial) {
      j["vector_cycles"] = report.classes.vector;
      j["scalar_cycles"] = report.classes.scalar;
      j["control_cycles"] = report.classes.control;
      j["hidden_cycles"] = report.classes.hidden;
      j["memory_cycles"] = report.classes.memory;
    }
    j["prefetches"] = report.ops[static_cast<std::size_t>(npu::Op::H_PREFETCH_V)].count;
    j["bound"] = {{"memory_cycles", bounds.memory},
                  {"chained_vector_cycles", bounds.chained},
                  {"noise_cycles", bounds.noise},
                  {"cycles", bounds.bound()},
                  {"time_ms", bounds.bound() / device.clock.ghz * 1e-6},
                  {"total_over_bound", static_cast<double>(report.total) / bounds.bound()}};
    j["sram_bytes"] = {{"paper", {{"integer", paper.integer}, {"fp", paper.fp}, {"vector", paper.vector}}},
                       {"allocated",
                        {{"integer", std::int64_t{4} * at.int_words},
                         {"fp", std::int64_t{2} * at.fp_words},
                         {"vector", 2 * static_cast<std::int64_t>(at.vram_rows) * device.array.vlen}}}};
    if (check_) j["checked"] = {{"seed", seed_}, {"equal", true}};
    j["timing"] = npu::timing_json(report, device, kernel.machine, issue_.options);
    return j;
  }

  std::string text(const npu::Device& device, const npu::SamplingKernel& kernel,
                   const npu::TimingReport& report) const {
    const npu::SamplingBounds bounds = npu::sampling_bounds(device, load(kernel));
    const npu::SamplingLayout& at = kernel.layout;
    std::string text =
        fmt::format("{} on {}{}: {} x {} positions, vocabulary {} in chunks of {}\n", kernel.program.name, device.name,
                    as_published_ ? " with the published memory system" : "", shape_.batch, shape_.block, shape_.vocab,
                    kernel.shape.chunk);
    text += npu::timing_text(report, device);
    if (issue_.options.issue == npu::IssueMode::kSerial) {
      const npu::ClassCycles& c = report.classes;
      text += fmt::format("\nvector {}, scalar {}, memory {}, control {}, hidden {} cycles\n", c.vector, c.scalar,
                          c.memory, c.control, c.hidden);
    }
    text += fmt::format(
        "\n"
        "bound: {:.0f} cycles ({:.4f} ms): memory {:.0f}, chained vector work {:.0f}, noise {:.0f}; simulated is "
        "{:.2f} times it\n",
        bounds.bound(), bounds.bound() / device.clock.ghz * 1e-6, bounds.memory, bounds.chained, bounds.noise,
        static_cast<double>(report.total) / bounds.bound());
    text += fmt::format("vector SRAM: {} bytes allocated, {} by the papers' formula\n",
                        2 * at.vram_rows * static_cast<std::uint64_t>(device.array.vlen),
                        npu::sampling_sram(device, load(kernel)).vector);
    if (check_) text += "equal to plain loops\n";
    return text;
  }

  DeviceFlags device_;
  TimingFlags issue_;
  npu::SamplingShape shape_;
  std::string form_, draw_precision_ = "f64", published_ = "auto", sweep_, lanes_, csv_, svg_, emit_, trace_, output_;
  bool check_ = false, as_published_ = false;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_npu_sampling() { return std::make_unique<NpuSampling>(); }

}  // namespace dllm::app
