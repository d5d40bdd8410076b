// dllm npu sampling: the sampling phases as a program, timed, and on request computed and compared.

#include <fmt/format.h>

#include <ostream>

#include "app/npu_flags.h"
#include "app/npu_timing_flags.h"
#include "app/options.h"
#include "app/report.h"
#include "app/verb.h"
#include "base/try.h"
#include "npu/analytic/sampling.h"
#include "npu/sampling/kernel.h"
#include "npu/sampling/reference.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuSampling final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Device");
    device_.add(flags);
    flags.add({.names = {"--published"},
               .value = "WHEN",
               .help = "the memory system, scale fetch and block length behind the published figures",
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
    issue_.add(flags);
    flags.group("Output");
    flags.add({.names = {"--emit"},
               .value = "WHAT",
               .help = "print the program instead of running it",
               .choices = {"asm"},
               .apply = into(emit_, {"asm"})});
    flags.add({.names = {"--check"},
               .value = "SEED",
               .help = "also run it on random logits and compare with plain loops",
               .apply = [this](const std::string& text) -> Expected<void> {
                 check_ = true;
                 return into(seed_)(text);
               }});
    flags.add({.names = {"--trace"},
               .value = "FILE",
               .help = "write a trace for ui.perfetto.dev",
               .takes_path = true,
               .apply = into(trace_)});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    resolve_form();
    DLLM_TRY(const npu::Device device, device());
    DLLM_TRY(const npu::SamplingKernel kernel, npu::build_sampling(device, shape_));
    if (!emit_.empty()) {
      session.terminal.out << kernel.assembly;
      return kExitOk;
    }
    PerfettoTrace trace(kernel.program, 1 / device.clock.ghz, kMostEvents);
    DLLM_TRY(const npu::TimingReport report,
             npu::simulate(device, kernel.machine, kernel.program, issue_.options, trace_.empty() ? nullptr : &trace));
    if (!trace_.empty()) DLLM_CHECK_OK(trace.write(trace_, report));
    if (check_) DLLM_CHECK_OK(check(kernel));
    if (output_ == "json")
      session.terminal.out << dump(json(device, kernel, report, session.command)) << "\n";
    else
      session.terminal.out << text(device, kernel, report);
    return kExitOk;
  }

 private:
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
      shape_.form =
          shape_.chunk > 0 && shape_.chunk < shape_.vocab ? npu::SamplingForm::kChunked : npu::SamplingForm::kPublished;
    else
      shape_.form = npu::SamplingForm::kOnePass;
    as_published_ = published_ == "yes" || (published_ != "no" && serial && shape_.form != npu::SamplingForm::kOnePass);
    if (as_published_) issue_.options.compat_scale64 = true;
  }

  Expected<npu::Device> device() const {
    std::vector<npu::Override> overrides;
    if (as_published_) overrides = npu::published_sampling_overrides();
    for (const std::string& text : device_.sets) {
      DLLM_TRY(npu::Override one, npu::parse_override(text));
      overrides.push_back(std::move(one));
    }
    return npu::load_device(device_.name, overrides);
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
        "\nbound: {:.0f} cycles ({:.4f} ms): memory {:.0f}, chained vector work {:.0f}; simulated is {:.2f} times it\n",
        bounds.bound(), bounds.bound() / device.clock.ghz * 1e-6, bounds.memory, bounds.chained,
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
  std::string form_, published_ = "auto", emit_, trace_, output_;
  bool check_ = false, as_published_ = false;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_npu_sampling() { return std::make_unique<NpuSampling>(); }

}  // namespace dllm::app
