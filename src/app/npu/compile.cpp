// dllm npu compile: one denoising step of a model as a program.
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/program.h"
#include "app/npu/step_flags.h"
#include "base/try.h"
#include "npu_compiler/compiler/listing.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

class NpuCompile final : public Verb {
 public:
  void declare(Flags& flags) override {
    step_.add(flags);
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
               .written = true,
               .apply = into(file_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    DLLM_TRY(const CompiledStep compiled, step_.compile({"npu compile"}));
    const npu::Device& device = compiled.device;
    const auto& layout = compiled.layout;
    const auto& step = compiled.step;
    DLLM_TRY(const npu::Listing listing, npu::list_step(layout, device, step));
    std::string text;
    if (emit_ == "asm") {
      text = npu::listing_asm(step, listing);
    } else if (emit_ == "bin") {
      text = npu::to_binary(step.program);
    } else if (emit_ == "json") {
      Json json = provenance(session.command);
      step_.describe(compiled, json);
      json["device"] = npu::device_json(device);
      json["compile_ms"] = compiled.milliseconds;
      json.update(npu::listing_json(step, listing, layout));
      text = dump(json) + "\n";
    } else {
      text = npu::listing_summary(step, listing, layout, device);
      text += step_.text(compiled);
      text += fmt::format("compiled in {:.1f} ms\n", compiled.milliseconds);
    }
    if (file_.empty() && emit_ == "bin")
      return Error{ErrorCode::kUsage, "--emit bin writes binary words", "--output", "name a file: -o step.bin"};
    if (file_.empty())
      session.terminal.out << text;
    else
      DLLM_CHECK_OK(write_result(session, file_, text));
    return kExitOk;
  }

 private:
  StepFlags step_;
  std::string emit_ = "summary", file_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_compile() { return std::make_unique<NpuCompile>(); }

}  // namespace dllm::app
