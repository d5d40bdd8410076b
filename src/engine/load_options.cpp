#include "engine/load_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/try.h"
#include "engine/backends.h"
#include "engine/option_parts.h"

namespace dllm {
namespace {

using L = LoadOptions;

constexpr double kMostThreads = 1024;
constexpr auto kHere = static_cast<std::uint8_t>(Computer::kCpu);
constexpr auto kSimulated = static_cast<std::uint8_t>(Computer::kNumerics);
constexpr auto kExecuted = static_cast<std::uint8_t>(Computer::kExecutor);
constexpr auto kDevice = static_cast<std::uint8_t>(kExecuted | static_cast<std::uint8_t>(Computer::kMachine));
constexpr auto kEverywhere = static_cast<std::uint8_t>(kHere | kSimulated | kDevice);

/// An empty text of LoadOptions means the default, of which `otherwise` speaks.
LoadOption text(const char* key, std::string L::* member, std::uint8_t readers, const char* placeholder,
                const char* otherwise, const char* meaning) {
  LoadOption one{option(key, member, meaning), placeholder, readers};
  one.row.info.standard.reset();
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption named(const char* key, std::string L::* member, const std::vector<std::string>& names, std::uint8_t readers,
                 const char* placeholder, const char* otherwise, const char* meaning) {
  LoadOption one = text(key, member, readers, placeholder, otherwise, meaning);
  one.row.info.type = OptionType::kChoice;
  one.row.info.choices = names;
  return one;
}

LoadOption number(const char* key, std::int32_t L::* member, double most, std::uint8_t readers, const char* unit,
                  const char* otherwise, const char* meaning) {
  LoadOption one{option(key, member, 0, most, unit, meaning), "N", readers};
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption factor(const char* key, double L::* member, double most, std::uint8_t readers, const char* otherwise,
                  const char* meaning) {
  LoadOption one{option(key, member, 0, most, "", meaning), "X", readers};
  one.row.info.standard_text = otherwise;
  return one;
}

LoadOption toggle(const char* key, bool L::* member, std::uint8_t readers, const char* meaning) {
  return {option(key, member, meaning), "", readers};
}

LoadOption list(const char* key, std::vector<std::string> L::* member, std::uint8_t readers, const char* placeholder,
                const char* meaning) {
  LoadOption one{{}, placeholder, readers};
  OptionInfo& info = one.row.info;
  info.key = key;
  info.flags = {detail::flag_of(key)};
  info.type = OptionType::kText;
  info.repeated = true;
  info.standard_text = "none";
  info.meaning = meaning;
  one.row.store = [member](L& load, const OptionValue& value) {
    (load.*member).push_back(std::get<std::string>(value));
  };
  one.row.load = [member](const L& load) -> std::optional<OptionValue> {
    std::string all;
    for (const std::string& each : load.*member) all += each + "\n";
    return all;
  };
  return one;
}

LoadOption with_flags(LoadOption one, std::vector<std::string> flags) {
  one.row.info.flags = std::move(flags);
  return one;
}

LoadOption of_path(LoadOption one) {
  one.row.info.path = true;
  return one;
}

LoadOption usual(LoadOption one) {
  one.usual = true;
  return one;
}

std::vector<LoadOption> computing_options() {
  return {
      usual(with_flags(number("threads", &L::threads, kMostThreads, kHere | kSimulated | kExecuted, "", "one per CPU",
                              "worker threads"),
                       {"-t", "--threads"})),
      text("isa", &L::isa, kHere, "NAME", "the best", "kernel set; 'list' shows the sets that this machine supports"),
      named("cache_type", &L::cache_type, {"f32", "f16", "bf16", "q8_0", "q4_0"}, kHere, "TYPE",
            "f32 for F32 models, else f16", "storage of K and V"),
      named("activations", &L::activations, {"int8", "f32"}, kHere, "TYPE", "int8",
            "arithmetic against quantized weights"),
      named("arithmetic", &L::arithmetic, {"exact", "super", "auto"}, kHere, "NAME", "exact",
            "rounding of products with weights; super: designed for matrix tiles; auto: the faster on this machine"),
      named("attention_arithmetic", &L::attention_arithmetic, {"f32", "bf16", "auto"}, kHere, "NAME", "f32",
            "rounding of the products of attention; auto: bf16 with quantized weights where this machine is faster at "
            "it"),
      named("rope_scaling", &L::rope_scaling, {"none", "linear", "ntk", "yarn"}, kEverywhere, "NAME", "the file's",
            "positions for contexts beyond those of training, by --rope-scale"),
      factor("rope_scale", &L::rope_scale, 1 << 20, kEverywhere, "not given",
             "how many times as long contexts become under --rope-scaling"),
      number("rope_original_context", &L::rope_original_context, 1 << 30, kEverywhere, "positions", "the file's",
             "context of the training, for --rope-scaling"),
      of_path(text("numerics", &L::numerics, kSimulated, "NAME|FILE", "the file's own",
                   "run in the number formats of a profile: bf16, w4a8kv4, mxfp8, ...")),
      of_path(text("weight_cache", &L::weight_cache, kHere, "PATH", "none",
                   "store packed weights in this file and map it in later runs; auto: <model>.dllm-packed")),
      of_path(list("lora", &L::lora, kEverywhere, "PATH[:SCALE]",
                   "low-rank adapter, a GGUF file or a PEFT folder; may be repeated")),
      of_path(list("lora_draft", &L::lora_draft, kEverywhere, "PATH[:SCALE]",
                   "the same for drafts only, with --mode; may be repeated")),
      of_path(text("draft_model", &L::draft_model, kHere, "PATH", "the model itself",
                   "the same model in a cheaper quantization, which makes the drafts of --mode self-speculation")),
  };
}

std::vector<LoadOption> device_options() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : backends()) names.push_back(entry.name);
  return {
      named("backend", &L::backend, names, kEverywhere, "NAME", "cpu",
            "where the model runs: on this processor, or on a simulated NPU, in its number formats and virtual time"),
      of_path(text("device", &L::device, kDevice, "NAME|FILE", "dart-2048",
                   "profile of --backend npu; see dllm npu devices")),
      with_flags(list("device_changes", &L::device_changes, kDevice, "KEY=VALUE",
                      "change one key of that profile, e.g. numerics.weight=mxint8:32:ocp; may be repeated"),
                 {"--set"}),
      named("npu_values", &L::npu_values, {"executor", "machine"}, kDevice, "NAME", "executor",
            "what computes the values of --backend npu, which are the same: machine runs the compiled programs"),
      named("npu_processor", &L::npu_processor, {"device", "host"}, kDevice, "NAME", "device",
            "whose virtual time counts: the device's, or that of its host alone"),
      named("npu_timing", &L::npu_timing, {"analytic", "simulated"}, kDevice, "NAME", "analytic",
            "what times the device's operators: a model of costs, or the cycle-accurate simulator (seconds to minutes "
            "for each shape of a step, kept in the cache)"),
      with_flags(toggle("npu_paging", &L::npu_paging, kDevice,
                        "without the device's memory runtime: weights outside its window are paged"),
                 {"--no-somr"}),
      with_flags(toggle("npu_all_logits", &L::npu_all_logits, kDevice,
                        "the device's LM head computes every row, not only those that are scored"),
                 {"--all-logits"}),
  };
}

/// The long spelling.
const std::string& flag_of_row(const LoadOption& one) { return one.info().flags.back(); }

Error error_about(const LoadOption& one, Error error) {
  error.where = flag_of_row(one);
  return error;
}

Error unread(const LoadOption& one, Computer computer) {
  const auto error = [&](const char* what, const char* hint) {
    return Error{ErrorCode::kUsage, what, flag_of_row(one), hint};
  };
  if ((one.readers & ~kDevice) == 0) return error("only a simulated device has it", "add --backend npu");
  if (computer == Computer::kNumerics)
    return error("the numerics profile says how the model is computed", "leave it out, or leave --numerics out");
  return error("the simulated device takes its arithmetic from its profile",
               "leave it out, or change the profile with --set");
}

}  // namespace

const std::vector<LoadOption>& load_options() {
  static const std::vector<LoadOption> all = [] {
    std::vector<LoadOption> rows = computing_options();
    for (LoadOption& one : device_options()) rows.push_back(std::move(one));
    return rows;
  }();
  return all;
}

const std::vector<OptionInfo>& load_options_info() {
  static const std::vector<OptionInfo> all = [] {
    std::vector<OptionInfo> infos;
    for (const LoadOption& one : load_options()) infos.push_back(one.info());
    return infos;
  }();
  return all;
}

const LoadOption* find_load_option(std::string_view key_or_flag) {
  for (const LoadOption& one : load_options())
    if (names_option(one.info(), key_or_flag)) return &one;
  return nullptr;
}

bool is_given(const LoadOption& option, const LoadOptions& load) {
  return option.row.load(load) != option.row.load(LoadOptions());
}

Expected<void> check_load(const LoadOptions& load, Computer computer) {
  for (const LoadOption& one : load_options()) {
    if (!is_given(one, load)) continue;
    if (!one.read_by(computer)) return unread(one, computer);
    if (auto fine = fit_option(one.info(), *one.row.load(load)); !fine) return error_about(one, fine.error());
  }
  return {};
}

std::string load_key(const LoadOptions& load) {
  std::string key;
  for (const LoadOption& one : load_options())
    if (is_given(one, load)) key += fmt::format("{}\t{}\n", one.info().key, to_text(*one.row.load(load)));
  return key;
}

Expected<void> LoadOptions::set(std::string_view key, std::string_view text) {
  const LoadOption* const one = find_load_option(key);
  if (one == nullptr) {
    std::vector<std::string> known;
    for (const LoadOption& other : load_options()) known.push_back(other.info().key);
    return Error{ErrorCode::kUsage, "there is no such option of loading a model", std::string(key),
                 choice_hint(key, known)};
  }
  auto value = parse_option(one->info(), text);
  if (!value) return error_about(*one, value.error());
  one->row.store(*this, *value);
  return {};
}

}  // namespace dllm
