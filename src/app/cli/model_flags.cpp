#include <fmt/format.h>

#include <filesystem>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/model_file.h"
#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "base/input_file.h"
#include "base/json_reader.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/kernels/kernel_set.h"
#include "engine/backends.h"
#include "text/chat_template.h"

namespace dllm::app {
namespace {

/// The raw prompt; bos still precedes it if the file requires it.
constexpr const char* kRawTemplate = "{% for message in messages %}{{ message['content'] }}{% endfor %}";

void add_adapters(Flags& flags, LoadOptions& load) {
  flags.add({.names = {"--lora"},
             .value = "PATH[:SCALE]",
             .help = "low-rank adapter, a GGUF file or a PEFT folder; may be repeated",
             .default_text = "none",
             .takes_path = true,
             .apply = into(load.lora),
             .rare = true});
  flags.add({.names = {"--lora-draft"},
             .value = "PATH[:SCALE]",
             .help = "the same for drafts only, with --mode",
             .default_text = "none",
             .takes_path = true,
             .apply = into(load.lora_draft),
             .rare = true});
  flags.add({.names = {"--draft-model"},
             .value = "PATH",
             .help = "the same model in a cheaper quantization, which makes the drafts of --mode self-speculation",
             .default_text = "the model itself",
             .takes_path = true,
             .apply = into(load.draft_model),
             .rare = true});
}

}  // namespace

void add_device_flags(Flags& flags, LoadOptions& load) {
  std::vector<std::string> names;
  for (const BackendEntry& entry : backends()) names.push_back(entry.name);
  flags.add(
      {.names = {"--backend"},
       .value = "NAME",
       .help = "where the model runs: on this processor, or on a simulated NPU, in its number formats and virtual time",
       .default_text = "cpu",
       .choices = names,
       .apply = into(load.backend, names),
       .rare = true});
  flags.add({.names = {"--device"},
             .value = "NAME|FILE",
             .help = "profile of --backend npu; see dllm npu devices",
             .default_text = "dart-2048",
             .takes_path = true,
             .apply = into(load.device),
             .rare = true});
  flags.add({.names = {"--set"},
             .value = "KEY=VALUE",
             .help = "change one key of that profile, e.g. numerics.weight=mxint8:32:ocp; may be repeated",
             .apply = into(load.device_changes),
             .rare = true});
  flags.add(
      {.names = {"--npu-values"},
       .value = "NAME",
       .help = "what computes the values of --backend npu, which are the same: machine runs the compiled programs",
       .default_text = "executor",
       .choices = {"executor", "machine"},
       .apply = into(load.npu_values, {"executor", "machine"}),
       .rare = true});
  flags.add({.names = {"--npu-processor"},
             .value = "NAME",
             .help = "whose virtual time counts: the device's, or that of its host alone",
             .default_text = "device",
             .choices = {"device", "host"},
             .apply = into(load.npu_processor, {"device", "host"}),
             .rare = true});
  flags.add({.names = {"--npu-timing"},
             .value = "NAME",
             .help = "what times the device's operators: a model of costs, or the cycle-accurate simulator (seconds to "
                     "minutes for each shape of a step, kept in the cache)",
             .default_text = "analytic",
             .choices = {"analytic", "simulated"},
             .apply = into(load.npu_timing, {"analytic", "simulated"}),
             .rare = true});
  flags.add({.names = {"--no-somr"},
             .help = "without the device's memory runtime: weights outside its window are paged",
             .apply = into(load.npu_paging),
             .rare = true});
  flags.add({.names = {"--all-logits"},
             .help = "the device's LM head computes every row, not only those that are scored",
             .apply = into(load.npu_all_logits),
             .rare = true});
}

namespace {

void add_backend(Flags& flags, LoadOptions& load) {
  add_adapters(flags, load);
  add_device_flags(flags, load);
}

}  // namespace

void add_arithmetic_flags(Flags& flags, LoadOptions& load) {
  flags.add({.names = {"--arithmetic"},
             .value = "NAME",
             .help = "rounding of products with weights; super: designed for matrix tiles; auto: the faster "
                     "on this machine",
             .default_text = "exact",
             .choices = {"exact", "super", "auto"},
             .apply = into(load.arithmetic, {"exact", "super", "auto"}),
             .rare = true});
  flags.add({.names = {"--attention-arithmetic"},
             .value = "NAME",
             .help = "rounding of the products of attention; auto: bf16 with quantized weights where this machine is "
                     "faster at it",
             .default_text = "f32",
             .choices = {"f32", "bf16", "auto"},
             .apply = into(load.attention_arithmetic, {"f32", "bf16", "auto"}),
             .rare = true});
}

void ModelFlags::add_loading(Flags& flags) {
  flags.group("Model");
  flags.add({.names = {"-m", "--model"},
             .value = "PATH",
             .help = "GGUF file or Hugging Face directory",
             .default_text = "the embedded tiny-llada",
             .takes_path = true,
             .apply = into(path)});
  hub.add_name(flags);
  hub.add(flags);
  flags.add({.names = {"-t", "--threads"},
             .value = "N",
             .help = "worker threads",
             .default_text = "one per CPU",
             .apply = into(load.threads, 0, 1024)});
  flags.add({.names = {"--isa"},
             .value = "NAME",
             .help = "kernel set; 'list' shows the sets that this machine supports",
             .default_text = "the best",
             .apply = into(load.isa),
             .rare = true});
  flags.add({.names = {"--cache-type"},
             .value = "TYPE",
             .help = "storage of K and V",
             .default_text = "f32 for F32 models, else f16",
             .choices = {"f32", "f16", "bf16", "q8_0", "q4_0"},
             .apply = into(load.cache_type, {"f32", "f16", "bf16", "q8_0", "q4_0"}),
             .rare = true});
  flags.add({.names = {"--activations"},
             .value = "TYPE",
             .help = "arithmetic against quantized weights",
             .default_text = "int8",
             .choices = {"int8", "f32"},
             .apply = into(load.activations, {"int8", "f32"}),
             .rare = true});
  add_arithmetic_flags(flags, load);
  flags.add({.names = {"--numerics"},
             .value = "NAME|FILE",
             .help = "run in the number formats of a profile: bf16, w4a8kv4, mxfp8, ...",
             .default_text = "the file's own",
             .takes_path = true,
             .apply = into(load.numerics),
             .rare = true});
  flags.add({.names = {"--weight-cache"},
             .value = "PATH",
             .help = "store packed weights in this file and map it in later runs; auto: <model>.dllm-packed",
             .default_text = "none",
             .takes_path = true,
             .apply = into(load.weight_cache),
             .rare = true});
  add_backend(flags, load);
  flags.add({.names = {"-v", "--verbose"}, .help = "print details of the model on stderr", .apply = into(verbose)});
}

void ModelFlags::add_template(Flags& flags) {
  flags.group("Input");
  flags.add({.names = {"--chat-template"},
             .value = "JINJA",
             .help = "chat template instead of the file's",
             .apply = into(chat_template),
             .rare = true});
  flags.add({.names = {"--chat-template-file"},
             .value = "FILE",
             .help = "the same, from a file",
             .takes_path = true,
             .apply = into(chat_template_file),
             .rare = true});
  flags.add({.names = {"--chat-template-kwargs"},
             .value = "JSON",
             .help = "variables of the chat template, as {\"enable_thinking\": false}",
             .apply = into(template_kwargs),
             .rare = true});
  flags.add({.names = {"--raw", "-no-cnv", "--no-conversation"},
             .help = "complete the text as it is, without a chat template",
             .apply = into(raw)});
  flags.add({.names = {"--special"},
             .help = "texts of control tokens in the prompt become control tokens; otherwise they remain plain text",
             .apply = into(special),
             .rare = true});
}

Expected<std::string> read_text(const std::string& path, Terminal& terminal) {
  if (path == "-") return read_all(terminal);
  return read_input(path, kMostTextBytes);
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

/// Shows one bar from the start: reading a vocabulary and packing weights may take seconds.
Expected<LanguageModel> ModelFlags::load_model(Session& session) {
  if (const int cpus = default_thread_count(); load.threads > cpus) {
    session.terminal.err << fmt::format(
        "warning: {} threads were requested, and this process may use {} CPU{}: taking {}\n", load.threads, cpus,
        cpus == 1 ? "" : "s", cpus);
    load.threads = cpus;
  }
  LoadOptions options = load;
  ProgressLine bar(session.terminal, !path.empty());
  const std::string text = "loading " + std::filesystem::path(path).filename().string();
  options.progress = [&](double done) {
    bar.show(done, text);
    return !session.interrupt.requested();
  };
  session.interrupt.arm();
  auto model = LanguageModel::load(path, options);
  if (session.interrupt.disarm() && model) return Error{ErrorCode::kCancelled, "the load was stopped", path, ""};
  return model;
}

Expected<void> ModelFlags::set_kwargs(LanguageModel& model, Terminal& terminal) const {
  constexpr const char* kFlag = "--chat-template-kwargs";
  DLLM_TRY(const auto json,
           read_json<nlohmann::ordered_json>(template_kwargs, {.code = ErrorCode::kUsage, .root = kFlag}));
  if (auto set = model.set_template_variables(template_kwargs); !set) {
    Error error = std::move(set).error();
    error.where = error.where.empty() ? kFlag : fmt::format("{} {}", kFlag, error.where);
    return error;
  }
  const auto inputs = template_inputs(model.chat_template());
  for (const auto& [name, value] : json.items())
    if (!inputs.contains(name))
      terminal.err << fmt::format("warning: {}: the chat template does not read '{}'\n", kFlag, name);
  return {};
}

Expected<LanguageModel> ModelFlags::open(Session& session) {
  Terminal& terminal = session.terminal;
  if (hub.name.empty() && (!hub.file.empty() || hub.offline || !hub.token.empty()))
    return Error{ErrorCode::kUsage, "no hub model is given", "", "give -hf ORG/MODEL"};
  if (!hub.name.empty()) {
    if (!path.empty()) return Error{ErrorCode::kUsage, "the model is given twice", "", "give one of -m and -hf"};
    DLLM_TRY(const hub::Pulled pulled, hub.pull(session));
    path = pulled.path;
  }
  DLLM_TRY(LanguageModel model, load_model(session));
  const int templates = int{!chat_template.empty()} + int{!chat_template_file.empty()} + int{raw};
  if (templates > 1)
    return Error{ErrorCode::kUsage, "the chat template is given twice", "",
                 "give one of --chat-template, --chat-template-file and --raw"};
  std::string source = raw ? kRawTemplate : chat_template;
  if (!chat_template_file.empty()) {
    DLLM_TRY(source, read_text(chat_template_file, terminal));
  }
  if (!source.empty()) DLLM_CHECK_OK(model.set_chat_template(source));
  if (!template_kwargs.empty()) DLLM_CHECK_OK(set_kwargs(model, terminal));
  model.set_special_content(special);
  if (verbose)
    terminal.err << fmt::format("model: {} ({}), vocabulary {}, context {}, {} threads, {}{}{}\n", model.name(),
                                model.architecture(), model.vocab_size(), model.context_length(), model.threads(),
                                model.isa(), model.arithmetic().empty() ? "" : ", ", model.arithmetic());
  return model;
}

}  // namespace dllm::app
