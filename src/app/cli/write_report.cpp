#include "app/cli/write_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/cli/terminal.h"
#include "base/human_bytes.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "quant/recipe.h"

namespace dllm::app {

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.emplace_back(recipe.name);
  return names;
}

namespace {

/// A tensor type by name.
Apply into_type(std::optional<TensorType>& target) {
  return [&target](const std::string& value) -> Expected<void> {
    target = tensor_type_from_name(value);
    if (target) return {};
    std::vector<std::string> names;
    for (const Codec* codec : all_codecs())
      if (codec->quantize != nullptr) names.emplace_back(codec->name);
    return bad_value(fmt::format("'{}' is unknown", value), choice_hint(value, names));
  };
}

}  // namespace

void add_recipe_flags(Flags& flags, RecipeOptions& recipe) {
  flags.add({.names = {"--pure"}, .help = "every matrix gets the same type", .apply = into(recipe.pure)});
  flags.add({.names = {"--output-tensor-type"},
             .value = "TYPE",
             .help = "type of the head",
             .apply = into_type(recipe.output_type)});
  flags.add({.names = {"--token-embedding-type"},
             .value = "TYPE",
             .help = "type of the embedding",
             .apply = into_type(recipe.token_embedding_type)});
}

void OutputFlags::add(Flags& flags) {
  flags.add({.names = {"--force"}, .help = "replace an existing file", .apply = into(force_)});
  flags.add({.names = {"-t", "--threads"},
             .value = "N",
             .help = "worker threads; the file is the same for any number",
             .default_text = "one per CPU",
             .apply = into(threads_, 0, 1024)});
  report_ = "text";
  flags.add({.names = {"--report"},
             .value = "FORMAT",
             .help = "form of the report on standard output",
             .default_text = report_,
             .choices = {"text", "json"},
             .apply = into(report_, {"text", "json"})});
}

Expected<void> OutputFlags::check(const std::string& path) const {
  if (path == "-")
    return Error{ErrorCode::kUsage, "a model is written to a file only", "-", "./- is a file of that name"};
  return check_output(path, {.replace = force_});
}

int OutputFlags::threads() const { return threads_ > 0 ? threads_ : default_thread_count(); }

nlohmann::ordered_json report_json(const WriteReport& report, const std::string& path, const std::string& type) {
  nlohmann::ordered_json types, fallbacks = nlohmann::ordered_json::array();
  for (const auto& [tensor_type, count] : report.tensors_by_type) types[std::string(codec(tensor_type).name)] = count;
  for (const Fallback& f : report.fallbacks)
    fallbacks.push_back({{"tensor", f.tensor}, {"wanted", codec(f.wanted).name}, {"written", codec(f.written).name}});
  return {{"file", path},
          {"type", type},
          {"tensors", report.tensors},
          {"elements", report.elements},
          {"bytes_in", report.bytes_in},
          {"bytes_out", report.bytes_out},
          {"bits_per_weight", report.bits_per_weight()},
          {"tensors_by_type", types},
          {"fallbacks", fallbacks},
          {"warnings", report.warnings}};
}

std::string report_text(const WriteReport& report, const std::string& path) {
  const std::string before =
      report.bytes_in > 0 ? human_bytes(static_cast<double>(report.bytes_in)) + " -> " : std::string();
  std::string text = fmt::format("{}: {} tensors, {}{}, {:.2f} bits per weight\n", path, report.tensors, before,
                                 human_bytes(static_cast<double>(report.bytes_out)), report.bits_per_weight());
  std::size_t width = 6;
  for (const auto& [type, count] : report.tensors_by_type) width = std::max(width, codec(type).name.size());
  for (const auto& [type, count] : report.tensors_by_type)
    text += fmt::format("  {:<{}}{:>6}\n", codec(type).name, width, count);
  return text;
}

std::string fallback_lines(const std::vector<Fallback>& fallbacks) {
  std::map<std::pair<TensorType, TensorType>, int> counts;
  for (const Fallback& f : fallbacks) ++counts[{f.wanted, f.written}];
  std::string text;
  for (const auto& [types, count] : counts)
    text += fmt::format("warning: {} tensors whose rows do not fit the blocks of {} are written as {}\n", count,
                        codec(types.first).name, codec(types.second).name);
  return text;
}

}  // namespace dllm::app
