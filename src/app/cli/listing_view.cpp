#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "app/cli/model_listing.h"
#include "app/cli/terminal.h"
#include "base/human_bytes.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownElements = 6;
constexpr std::size_t kShownCharacters = 120;

/// One line: quoted, control characters escaped, long texts truncated.
std::string in_quotes(std::string_view text) {
  const bool cut = text.size() > kShownCharacters;
  std::string result;
  for (char c : sanitize(text.substr(0, kShownCharacters)))
    result += c == '\n'   ? std::string("\\n")
              : c == '\t' ? std::string("\\t")
              : c == '"'  ? std::string("\\\"")
                          : std::string(1, c);
  return cut ? fmt::format("\"{}...\" ({} bytes)", result, text.size()) : "\"" + result + "\"";
}

std::string element_text(const std::string& value, MetaType) { return in_quotes(value); }
std::string element_text(std::int64_t value, MetaType) { return fmt::format("{}", value); }
/// Metadata widens F32 to double; digits beyond a float's precision are not in the file.
std::string element_text(double value, MetaType type) {
  return type == MetaType::kF32 ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
}

std::string value_text(const MetaValue& value, bool full) {
  return std::visit(
      [&](const auto& payload) -> std::string {
        using T = std::decay_t<decltype(payload)>;
        if constexpr (std::is_same_v<T, bool>) {
          return payload ? "true" : "false";
        } else if constexpr (std::is_same_v<T, OpaqueValue>) {
          return fmt::format("{} bytes", payload.bytes.size());
        } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          return element_text(payload, value.type);
        } else {
          std::string text = "[";
          const std::size_t shown = full ? payload.size() : std::min(payload.size(), kShownElements);
          for (std::size_t i = 0; i < shown; ++i)
            text += (i == 0 ? "" : ", ") + element_text(payload[i], value.element);
          return text + (shown < payload.size() ? fmt::format(", ...] ({} elements)", payload.size()) : "]");
        }
      },
      value.payload);
}

Json value_json(const MetaValue& value, bool full) {
  return std::visit(
      [&](const auto& payload) -> Json {
        using T = std::decay_t<decltype(payload)>;
        if constexpr (std::is_same_v<T, OpaqueValue>) {
          return {{"bytes", payload.bytes.size()}};
        } else if constexpr (!std::is_same_v<T, std::string> && !std::is_arithmetic_v<T>) {
          if (full || payload.size() <= kShownElements) return payload;
          const auto cut = payload.begin() + static_cast<std::ptrdiff_t>(kShownElements);
          return {{"count", payload.size()}, {"first", T(payload.begin(), cut)}};
        } else {
          return payload;
        }
      },
      value.payload);
}

std::string type_text(const MetaValue& value) {
  if (value.type != MetaType::kArray) return std::string(meta_type_name(value.type));
  return fmt::format("{}[]", meta_type_name(value.element));
}

bool matches(const std::string& name, const ListingView& view) {
  return view.match.empty() || name.find(view.match) != std::string::npos;
}

struct Totals {
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  std::map<TensorType, std::int64_t> by_type;
};

Totals totals(const ModelListing& listing) {
  Totals sum;
  for (const auto& tensor : listing.tensors) {
    sum.elements += element_count(tensor.shape);
    sum.bytes += tensor.bytes;
    ++sum.by_type[tensor.type];
  }
  return sum;
}

double bits_per_weight(const Totals& sum) {
  return sum.elements == 0 ? 0 : 8.0 * static_cast<double>(sum.bytes) / static_cast<double>(sum.elements);
}

std::string tensor_table(const ModelListing& listing, const ListingView& view) {
  std::size_t name_width = 4, type_width = 6, shape_width = 5;
  for (const auto& tensor : listing.tensors) {
    if (!matches(tensor.name, view)) continue;
    name_width = std::max(name_width, tensor.name.size());
    type_width = std::max(type_width, codec(tensor.type).name.size());
    shape_width = std::max(shape_width, to_string(tensor.shape).size());
  }
  std::string text = fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:>12}  {}\n", "name", name_width, "type", type_width,
                                 "shape", shape_width, "bytes", listing.format.starts_with("GGUF") ? "offset" : "");
  for (const auto& tensor : listing.tensors)
    if (matches(tensor.name, view))
      text += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:>12}  {}\n", sanitize(tensor.name), name_width,
                          codec(tensor.type).name, type_width, to_string(tensor.shape), shape_width, tensor.bytes,
                          tensor.offset ? fmt::format("{}", *tensor.offset) : "");
  return text;
}

}  // namespace

std::string listing_text(const ModelListing& listing, const ListingView& view) {
  const Totals sum = totals(listing);
  std::string text = fmt::format("{}: {}", listing.path, listing.format);
  if (!listing.architecture.empty()) text += fmt::format(", architecture {}", sanitize(listing.architecture));
  text += "\n";
  if (!listing.description.empty()) text += fmt::format("{}\n", sanitize(listing.description));
  if (view.metadata) {
    text += fmt::format("\nmetadata ({} keys)\n", listing.metadata.entries().size());
    std::size_t width = 0;
    for (const auto& [key, value] : listing.metadata.entries())
      if (matches(key, view)) width = std::max(width, key.size());
    for (const auto& [key, value] : listing.metadata.entries())
      if (matches(key, view))
        text += fmt::format("  {:<{}}  {:<8}  {}\n", sanitize(key), width, type_text(value),
                            value_text(value, view.full_arrays));
  }
  if (view.tensors) {
    text += fmt::format("\ntensors ({})\n", listing.tensors.size()) + tensor_table(listing, view);
    for (const std::string& what : listing.unread) text += fmt::format("  not read: {}\n", sanitize(what));
  }
  text += fmt::format("\ntotal: {} tensors, {} parameters, {}", listing.tensors.size(), sum.elements,
                      human_bytes(static_cast<double>(sum.bytes)));
  if (sum.elements > 0) text += fmt::format(", {:.2f} bits per weight", bits_per_weight(sum));
  for (const auto& [type, count] : sum.by_type) text += fmt::format(" · {} x {}", count, codec(type).name);
  return text + "\n";
}

Json listing_json(const ModelListing& listing, const ListingView& view) {
  const Totals sum = totals(listing);
  Json json = {{"file", listing.path},
               {"format", listing.format},
               {"architecture", listing.architecture},
               {"description", listing.description}};
  if (view.metadata) {
    Json metadata = Json::object();
    // As elements of its vector: a search for each of a hundred thousand keys would take minutes.
    auto& members = metadata.get_ref<Json::object_t&>();
    for (const auto& [key, value] : listing.metadata.entries())
      if (matches(key, view)) members.push_back({key, value_json(value, view.full_arrays)});
    json["metadata"] = std::move(metadata);
  }
  if (view.tensors) {
    Json tensors = Json::array();
    for (const auto& tensor : listing.tensors) {
      if (!matches(tensor.name, view)) continue;
      Json entry = {
          {"name", tensor.name}, {"type", codec(tensor.type).name}, {"shape", tensor.shape}, {"bytes", tensor.bytes}};
      if (tensor.offset) entry["offset"] = *tensor.offset;
      tensors.push_back(std::move(entry));
    }
    json["tensors"] = std::move(tensors);
    if (!listing.unread.empty()) json["unread"] = listing.unread;
  }
  Json types = Json::object();
  for (const auto& [type, count] : sum.by_type) types[std::string(codec(type).name)] = count;
  json["total"] = {{"tensors", listing.tensors.size()},
                   {"parameters", sum.elements},
                   {"bytes", sum.bytes},
                   {"bits_per_weight", bits_per_weight(sum)},
                   {"tensors_by_type", types}};
  return json;
}

}  // namespace dllm::app
