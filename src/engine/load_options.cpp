#include "engine/load_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/try.h"
#include "engine/backends.h"
#include "engine/load_rows.h"
#include "engine/option_parts.h"

namespace dllm {
namespace {

using L = LoadOptions;

constexpr double kMostThreads = 1024;

std::vector<LoadOption> computing_options() {
  using namespace load_rows;
  return {
      usual(with_flags(number("threads", &L::threads, kMostThreads, "", "one per CPU", "worker threads"),
                       {"-t", "--threads"})),
      text("isa", &L::isa, "NAME", "the best", "kernel set; 'list' shows the sets that this machine supports"),
      named("cache_type", &L::cache_type, {"f32", "f16", "bf16", "q8_0", "q4_0"}, "TYPE",
            "f32 for F32 models, else f16", "storage of K and V"),
      named("activations", &L::activations, {"int8", "f32"}, "TYPE", "int8", "arithmetic against quantized weights"),
      named("arithmetic", &L::arithmetic, {"exact", "super", "residual", "auto", "f16"}, "NAME", "exact",
            "rounding of products with weights; super: designed for matrix tiles; residual: more exact, twice the "
            "work; auto: super on matrix tiles unless the model is autoregressive, else exact; f16: F16 and BF16 "
            "weights on the matrix units of a GPU"),
      named("attention_arithmetic", &L::attention_arithmetic, {"f32", "bf16", "auto"}, "NAME", "f32",
            "rounding of the products of attention; auto: bf16 with quantized weights where this machine is faster at "
            "it"),
      of_model(named("rope_scaling", &L::rope_scaling, {"none", "linear", "ntk", "yarn"}, "NAME", "the file's",
                     "positions for contexts beyond those of training, by --rope-scale")),
      of_model(factor("rope_scale", &L::rope_scale, 1 << 20, "not given",
                      "how many times as long contexts become under --rope-scaling")),
      of_model(number("rope_original_context", &L::rope_original_context, 1 << 30, "positions", "the file's",
                      "context of the training, for --rope-scaling")),
      of_path(text("numerics", &L::numerics, "NAME|FILE", "the file's own",
                   "run in the number formats of a profile: bf16, w4a8kv4, mxfp8, ...")),
      of_path(text("weight_cache", &L::weight_cache, "PATH", "none",
                   "store packed weights in this file and map it in later runs; auto: <model>.dllm-packed")),
      of_path(
          list("lora", &L::lora, "PATH[:SCALE]", "low-rank adapter, a GGUF file or a PEFT folder; may be repeated")),
      of_path(
          list("lora_draft", &L::lora_draft, "PATH[:SCALE]", "the same for drafts only, with --mode; may be repeated")),
      with_flags(of_path(text("draft_model", &L::draft_model, "PATH", "the model itself",
                              "what makes the drafts of --mode self-speculation: a drafter (DFlash) that was trained "
                              "for the model, or the same model in a cheaper quantization")),
                 {"-md", "--draft-model", "--model-draft"}),
      with_flags(of_path(text("mmproj", &L::mmproj, "PATH", "none: prompts have no images",
                              "vision tower of the model, a GGUF file or the Hugging Face folder that has it, for "
                              "prompts with images")),
                 {"-mm", "--mmproj"}),
  };
}

std::vector<LoadOption> placing_options() {
  using namespace load_rows;
  std::vector<std::string> names;
  std::string places, devices;
  for (const BackendEntry& entry : backends()) {
    names.push_back(entry.name);
    places += fmt::format("{}{}: {}", places.empty() ? "" : "; ", entry.name, entry.meaning);
    if (!entry.devices.kind.empty())
      devices += fmt::format("{}with --backend {}, {}", devices.empty() ? "" : "; ", entry.name, entry.devices.kind);
  }
  return {
      named("backend", &L::backend, names, "NAME", names.front().c_str(), "where the model runs; " + places),
      of_path(text("device", &L::device, "NAME", "the backend's default",
                   "what it runs on there, as --list-devices names it; " + devices)),
  };
}

/// The first long spelling, as on the command line.
const std::string& flag_of_row(const LoadOption& one) {
  const std::vector<std::string>& flags = one.info().flags;
  return *std::ranges::find_if(flags, [](const std::string& flag) { return flag.starts_with("--"); });
}

Error error_about(const LoadOption& one, Error error) {
  error.where = flag_of_row(one);
  return error;
}

/// `suits`: the options that could have been meant.
Error unknown_option(std::string_view key, bool (*suits)(const LoadOption&)) {
  std::vector<std::string> known;
  for (const LoadOption& other : load_options())
    if (suits(other)) known.push_back(other.info().key);
  return {ErrorCode::kUsage, "there is no such option of loading a model", std::string(key), choice_hint(key, known)};
}

bool reads_it(const BackendEntry& entry, const LoadOption& one) {
  return std::ranges::any_of(entry.readers, [&](const LoadReader& reader) { return reader.reads(one); });
}

/// An option that the first backend lacks is asked for by its name; the others are those of a computation here, which
/// this reader does otherwise.
Error unread(const LoadOption& one, const LoadReader& reader) {
  const std::string others = backend_flags([&](const BackendEntry& entry) { return reads_it(entry, one); });
  const bool own = others.find("--backend " + reader.backend) != std::string::npos;
  if (!own && !others.empty() && !reads_it(backends().front(), one))
    return {ErrorCode::kUsage, fmt::format("only {} reads it", others), flag_of_row(one), "add " + others};
  return {ErrorCode::kUsage, reader.refusal, flag_of_row(one), reader.hint};
}

}  // namespace

bool LoadReader::reads(const LoadOption& option) const {
  const std::string& key = option.info().key;
  return key == "backend" || option.of_model || std::ranges::find(keys, key) != keys.end();
}

const std::vector<LoadOption>& load_options() {
  static const std::vector<LoadOption> all = [] {
    std::vector<LoadOption> rows = computing_options();
    for (LoadOption& one : placing_options()) rows.push_back(std::move(one));
    for (const BackendEntry& entry : backends()) rows.insert(rows.end(), entry.options.begin(), entry.options.end());
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

Expected<void> check_load(const LoadOptions& load, const LoadReader& reader) {
  for (const auto& [key, value] : load.backend_options)
    if (const LoadOption* const one = find_load_option(key); one == nullptr || !one->of_backend)
      return unknown_option(key, [](const LoadOption& other) { return other.of_backend; });
  for (const LoadOption& one : load_options()) {
    if (!is_given(one, load)) continue;
    if (!reader.reads(one)) return unread(one, reader);
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
  if (one == nullptr) return unknown_option(key, [](const LoadOption&) { return true; });
  auto value = parse_option(one->info(), text);
  if (!value) return error_about(*one, value.error());
  one->row.store(*this, *value);
  return {};
}

}  // namespace dllm
