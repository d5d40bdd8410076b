// dllm npu compile: one denoising step of a model as a program.
#include <chrono>
#include <ostream>

#include "app/npu_flags.h"
#include "app/npu_program.h"
#include "app/options.h"
#include "app/report.h"
#include "app/verb.h"
#include "base/try.h"
#include "npu/compiler/listing.h"
#include "npu/compiler/workload_step.h"
#include "npu/machine/device_machine.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuCompile final : public Verb {
 public:
  void declare(Flags& flags) override {
    constexpr std::int64_t kMost = 1 << 20;
    flags.group("Model");
    model_.add(flags);
    flags.add({.names = {"--layers"},
               .value = "N",
               .help = "compile only the first layers of the shape",
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
    flags.add({.names = {"--reduced-head"},
               .help = "arg-max and confidence on chip: no logits in memory",
               .apply = into(reduced_)});
    flags.group("Output");
    flags.add({.names = {"--emit"},
               .value = "FORM",
               .help = "summary, asm (annotated), bin (32-bit words) or json (operators, addresses, bounds)",
               .default_text = "summary",
               .choices = {"summary", "asm", "bin", "json"},
               .apply = into(emit_, {"summary", "asm", "bin", "json"})});
    flags.add({.names = {"-o", "--output"},
               .value = "FILE",
               .help = "where to write it",
               .default_text = "standard output",
               .takes_path = true,
               .apply = into(file_)});
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
    const auto start = std::chrono::steady_clock::now();
    DLLM_TRY(const npu::ModelLayout layout, npu::make_layout(any, present, machine, work_.context));
    DLLM_TRY(const npu::StepSpec spec, npu::make_step(any, layout, work_));
    const Graph graph = shape.architecture->build(shape.desc, {spec.rows(), spec.scored()});
    npu::CompileOptions options;
    if (reduced_) options.head = npu::HeadMode::kReduced;
    DLLM_TRY(const npu::StepProgram step, npu::compile_step(graph, layout, spec, options));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    DLLM_TRY(const npu::Listing listing, npu::list_step(graph, layout, spec, device, step));
    std::string text;
    if (emit_ == "asm") {
      text = npu::listing_asm(step, listing);
    } else if (emit_ == "bin") {
      text = npu::to_binary(step.program);
    } else if (emit_ == "json") {
      Json json = provenance(session.command);
      json["model"] = shape.desc.name;
      json["device"] = npu::device_json(device);
      json["batch"] = work_.batch;
      json["rows"] = work_.rows;
      json["context"] = work_.context;
      json["compile_ms"] = time.count();
      json.update(npu::listing_json(step, listing, layout));
      text = dump(json) + "\n";
    } else {
      text = npu::listing_summary(step, listing, layout, device);
      text += fmt::format("compiled in {:.1f} ms\n", time.count());
    }
    if (file_.empty() && emit_ == "bin")
      return Error{ErrorCode::kUsage, "--emit bin writes binary words", "--output", "name a file: -o step.bin"};
    if (file_.empty())
      session.terminal.out << text;
    else
      DLLM_CHECK_OK(write_bytes(file_, text));
    return kExitOk;
  }

 private:
  NpuModelFlags model_;
  DeviceFlags device_;
  npu::StepWorkload work_{.batch = 16, .rows = 32, .context = 256};
  std::int64_t layers_ = 0;
  bool reduced_ = false;
  std::string emit_ = "summary", file_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_compile() { return std::make_unique<NpuCompile>(); }

}  // namespace dllm::app
