#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "app/cli/fit.h"
#include "app/cli/model_file.h"
#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "base/human_bytes.h"
#include "base/input_file.h"
#include "base/json_reader.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/cpu_backend.h"
#include "engine/load_options.h"
#include "text/chat_template.h"

namespace dllm::app {
namespace {

/// The raw prompt; bos still precedes it if the file requires it.
constexpr const char* kRawTemplate = "{% for message in messages %}{{ message['content'] }}{% endfor %}";

}  // namespace

void add_load_flags(Flags& flags, LoadOptions& load, const std::vector<std::string_view>& without) {
  for (const LoadOption& one : load_options()) {
    const OptionInfo& info = one.info();
    if (std::ranges::find(without, info.key) != without.end()) continue;
    flags.add({.names = info.flags,
               .value = one.value_name,
               .help = info.meaning,
               .default_text = info.standard_text,
               .choices = info.choices,
               .takes_path = info.path,
               .apply = [&load, key = info.key](const std::string& text) { return load.set(key, text); },
               .rare = !one.usual});
  }
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
  add_load_flags(flags, load);
  add_list_devices(flags);
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

void ModelFlags::add_list_devices(Flags& flags) {
  flags.add({.names = {"--list-devices"},
             .help = "list what each backend, or the given one, can run on here, and end",
             .apply = into(list_devices),
             .rare = true});
}

/// Names are what --device takes.
void ModelFlags::print_devices(Terminal& terminal) const {
  const auto list = dllm::list_devices(load.backend);
  if (!list) return;  // --backend has been checked
  std::size_t width = 1;
  for (const DeviceInfo& one : *list) width = std::max(width, one.name.size());
  for (const DeviceInfo& one : *list)
    terminal.out << sanitize(fmt::format("{:<8}  {:<{}}  {}{}", one.backend, one.name.empty() ? "-" : one.name, width,
                                         one.missing.empty() ? one.meaning : one.missing,
                                         one.standard ? " (default)" : ""))
                 << "\n";
}

bool ModelFlags::listed(Terminal& terminal) const {
  if (list_devices) {
    print_devices(terminal);
    return true;
  }
  if (load.isa != "list") return false;
  for (const CpuIsa& one : cpu_isas())
    terminal.out << fmt::format("{:<8}  {}{}\n", one.name, one.available ? "yes" : "no",
                                one.is_default ? "  (default)" : "");
  return true;
}

void ModelFlags::limit_threads(Terminal& terminal) {
  if (const int cpus = default_thread_count(); load.threads > cpus) {
    terminal.err << fmt::format("warning: {} threads were requested, and this process may use {} CPU{}: taking {}\n",
                                load.threads, cpus, cpus == 1 ? "" : "s", cpus);
    load.threads = cpus;
  }
}

/// Shows one bar from the start: reading a vocabulary and packing weights may take seconds.
Expected<LanguageModel> ModelFlags::load_model(Session& session) {
  limit_threads(session.terminal);
  if (const FitFacts facts = fit_facts(std::filesystem::path(path).filename().string(), model_bytes(path), false);
      facts.bytes > 0 && judge(facts) != Fit::kFits)
    session.terminal.err << "warning: " << facts.name << ": " << fit_text(facts) << "\n";
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
  const std::optional<DeviceStatus> device = model.device_status();
  // Where a model runs is never left to be guessed.
  if (device && !device->split.empty()) terminal.err << device->split << "\n";
  if (device && verbose)
    terminal.err << fmt::format("device memory: {} in use of {}\n",
                                human_bytes(static_cast<double>(device->memory_used)),
                                human_bytes(static_cast<double>(device->memory_total)));
  return model;
}

}  // namespace dllm::app
