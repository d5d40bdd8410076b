#include <fmt/format.h>

#include <istream>
#include <iterator>
#include <ostream>

#include "app/model_file.h"
#include "app/options.h"
#include "base/try.h"
#include "cpu/kernels/kernel_set.h"
#include "engine/load.h"
#include "npu/backend/npu_backend.h"
#include "npu/device/device.h"
#include "npu/machine/device_machine.h"

namespace dllm::app {
namespace {

/// The prompt as it is; bos still goes in front where the file asks for it.
constexpr const char* kRawTemplate = "{% for message in messages %}{{ message['content'] }}{% endfor %}";

}  // namespace

void ModelFlags::add_loading(Flags& flags) {
  flags.group("Model");
  flags.add({.names = {"-m", "--model"},
             .value = "PATH",
             .help = "GGUF file or Hugging Face directory",
             .default_text = "the embedded tiny-llada",
             .takes_path = true,
             .apply = into(path)});
  flags.add({.names = {"-t", "--threads"},
             .value = "N",
             .help = "worker threads",
             .default_text = "one per CPU",
             .apply = into(load.threads, 0, 1024)});
  flags.add({.names = {"--isa"},
             .value = "NAME",
             .help = "kernel set; 'list' tells what this machine runs",
             .default_text = "the best",
             .apply = into(load.isa)});
  flags.add({.names = {"--cache-type"},
             .value = "TYPE",
             .help = "storage of K and V",
             .default_text = "f32 for F32 models, else f16",
             .choices = {"f32", "f16", "bf16", "q8_0"},
             .apply = into(load.cache_type, {"f32", "f16", "bf16", "q8_0"})});
  flags.add({.names = {"--activations"},
             .value = "TYPE",
             .help = "arithmetic against quantized weights",
             .default_text = "int8",
             .choices = {"int8", "f32"},
             .apply = into(load.activations, {"int8", "f32"})});
  flags.add({.names = {"--weight-cache"},
             .value = "PATH",
             .help = "keep packed weights in this file, map it in later runs; auto: <model>.dllm-packed",
             .default_text = "none",
             .takes_path = true,
             .apply = into(load.weight_cache)});
  flags.add(
      {.names = {"--backend"},
       .value = "NAME",
       .help = "what runs the model: this processor, or the simulated NPU with its number formats (bit-exact, slow)",
       .default_text = "cpu",
       .choices = {"cpu", "npu"},
       .apply = into(backend, {"cpu", "npu"})});
  flags.add({.names = {"--device"},
             .value = "NAME|FILE",
             .help = "profile of --backend npu; see dllm npu devices",
             .default_text = device,
             .takes_path = true,
             .apply = into(device)});
  flags.add({.names = {"--set"},
             .value = "KEY=VALUE",
             .help = "change one key of that profile, e.g. numerics.weight=mxint8:32:ocp; may be repeated",
             .apply = into(sets)});
  flags.add({.names = {"-v", "--verbose"}, .help = "tell about the model on stderr", .apply = into(verbose)});
}

void ModelFlags::add_template(Flags& flags) {
  flags.group("Input");
  flags.add({.names = {"--chat-template"},
             .value = "JINJA",
             .help = "chat template instead of the file's",
             .apply = into(chat_template)});
  flags.add({.names = {"--chat-template-file"},
             .value = "FILE",
             .help = "the same, from a file",
             .takes_path = true,
             .apply = into(chat_template_file)});
  flags.add({.names = {"--raw", "-no-cnv", "--no-conversation"},
             .help = "complete the text as it is, without a chat template",
             .apply = into(raw)});
}

Expected<std::string> read_text(const std::string& path, Terminal& terminal) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(terminal.in), {});
  return read_file(path);
}

bool ModelFlags::list_isas(Terminal& terminal) const {
  if (load.isa != "list") return false;
  cpu::KernelSetEntry entries[cpu::kMaxKernelSets];
  const int count = cpu::list_kernel_sets(entries);
  for (int i = 0; i < count; ++i) {
    const bool best = entries[i].set == cpu::default_kernel_set();
    terminal.out << fmt::format("{:<8}  {}{}\n", entries[i].set->name, entries[i].available ? "yes" : "no",
                                best ? "  (default)" : "");
  }
  return true;
}

namespace {

Expected<LanguageModel> open_on_npu(const ModelFlags& flags) {
  std::vector<npu::Override> overrides;
  for (const std::string& text : flags.sets) {
    DLLM_TRY(npu::Override change, npu::parse_override(text));
    overrides.push_back(std::move(change));
  }
  DLLM_TRY(const npu::Device device, npu::load_device(flags.device, overrides));
  DLLM_TRY(const npu::MachineConfig machine, npu::machine_config(device));
  return LanguageModelParts::load(
      flags.path, flags.load, [&machine](const Model& model) -> Expected<std::unique_ptr<Backend>> {
        DLLM_TRY(std::unique_ptr<npu::NpuBackend> backend,
                 npu::NpuBackend::create(
                     model.desc(), [&model](StepShape shape) { return model.build(shape); }, model.weights(), machine));
        return std::unique_ptr<Backend>(std::move(backend));
      });
}

}  // namespace

Expected<LanguageModel> ModelFlags::open(Terminal& terminal) const {
  if (backend != "npu" && !sets.empty())
    return Error{ErrorCode::kUsage, "--set changes the profile of a simulated device", "--set", "add --backend npu"};
  DLLM_TRY(LanguageModel model, backend == "npu" ? open_on_npu(*this) : LanguageModel::load(path, load));
  const int templates = int{!chat_template.empty()} + int{!chat_template_file.empty()} + int{raw};
  if (templates > 1)
    return Error{ErrorCode::kUsage, "the chat template is given twice", "",
                 "give one of --chat-template, --chat-template-file and --raw"};
  std::string source = raw ? kRawTemplate : chat_template;
  if (!chat_template_file.empty()) {
    DLLM_TRY(source, read_text(chat_template_file, terminal));
  }
  if (!source.empty()) DLLM_CHECK_OK(model.set_chat_template(source));
  if (verbose)
    terminal.err << fmt::format("model: {} ({}), vocabulary {}, context {}, {} threads, {}\n", model.name(),
                                model.architecture(), model.vocab_size(), model.context_length(), model.threads(),
                                model.isa());
  return model;
}

}  // namespace dllm::app
