#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "serve/ollama.h"

namespace dllm::serve {
namespace {

constexpr std::string_view kLatest = ":latest";

/// Fields of `options` and ours. The rest of those that Ollama documents say how a model is loaded and computed, which
/// never changes an answer here.
constexpr std::pair<const char*, const char*> kRenamed[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"repeat_penalty", "repeat_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"repeat_last_n", "repeat_last_n"},
    {"num_predict", "max_tokens"},
};
constexpr std::array<std::string_view, 14> kLoading = {
    "num_ctx",   "num_keep", "num_batch", "num_gpu", "main_gpu",   "num_thread", "use_mmap",
    "use_mlock", "low_vram", "numa",      "f16_kv",  "vocab_only", "logits_all", "draft_num_predict"};

/// An object in the making: Json would search all its members for each new one.
class Members {
 public:
  bool contains(const std::string& name) const { return places_.contains(name); }
  /// In the place of one of that name.
  void put(const std::string& name, Json value) {
    auto& members = object_.get_ref<Json::object_t&>();
    const auto [place, added] = places_.try_emplace(name, members.size());
    if (added) {
      members.emplace_back(name, std::move(value));
    } else {
      members.data()[place->second].second = std::move(value);
    }
  }
  Json take() { return std::move(object_); }

 private:
  Json object_ = Json::object();
  std::unordered_map<std::string, std::size_t> places_;
};

/// `options`: Ollama's names in `asked` become ours; other names are options of ours, or errors of read_options().
Expected<void> add_options(const Json& options, Members& asked, Ignored* ignored) {
  if (!options.is_object()) return wrong_type("options", "an object");
  for (const auto& [key, value] : options.items()) {
    if (value.is_null()) continue;
    if (std::ranges::count(kLoading, key) > 0) {
      if (ignored != nullptr) ignored->add("options." + key);
      continue;
    }
    // Mirostat and tail-free sampling: only "off" changes nothing.
    if ((key == "mirostat" && value == 0) || (key == "tfs_z" && value == 1)) continue;
    if (key == "penalize_newline" && value == true) continue;
    // -1 asks for no limit, -2 for the context: both are no bound.
    if (key == "num_predict" && value.is_number_integer() && value.get<std::int64_t>() < 0) continue;
    const auto* const renamed = std::ranges::find(kRenamed, key, &std::pair<const char*, const char*>::first);
    const std::string name = renamed == std::end(kRenamed) ? key : renamed->second;
    if (asked.contains(name)) return Error{ErrorCode::kUsage, "it is given twice", "options." + key, "leave one out"};
    asked.put(name, value);
  }
  return {};
}

Expected<void> add_format(const Json& format, Members& asked) {
  if (format.is_object()) {
    asked.put("json_schema", format);
  } else if (format == "json") {
    asked.put("response_format", {{"type", "json_object"}});
  } else if (format != "") {
    return wrong_type("format", "\"json\" or a JSON Schema");
  }
  return {};
}

std::optional<double> parse_plain_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Error in_ollama_fields(Error error) {
  for (const auto& [theirs, ours] : kRenamed)
    if (error.where == ours) error.where = std::string("options.") + theirs;
  for (const std::string_view ours : {"json_schema", "response_format"})
    if (error.where.starts_with(ours)) error.where = "format" + error.where.substr(ours.size());
  return error;
}

Expected<Json> from_ollama(Fields& fields) {
  Members asked;
  if (const Json* options = fields.find("options")) DLLM_CHECK_OK(add_options(*options, asked, fields.ignored()));
  if (const Json* format = fields.find("format")) DLLM_CHECK_OK(add_format(*format, asked));
  // A server with one model keeps it as long as it runs; one with several has read this before.
  fields.ignore("keep_alive");
  for (const std::string& rest : fields.rest()) asked.put(rest, *fields.find(rest));
  return asked.take();
}

Expected<Json> content_with_images(const Json& message, const Json& images, const std::string& where) {
  const Json content = message.value("content", Json(""));
  if (!images.is_array() || !content.is_string()) return wrong_type(where, "a list of images beside a text");
  Json parts = Json::array();
  for (const Json& image : images) {
    if (!image.is_string()) return wrong_type(where, "a list of images in base64");
    parts.push_back({{"type", "image"}, {"source", {{"type", "base64"}, {"data", image}}}});
  }
  parts.push_back({{"type", "text"}, {"text", content}});
  return parts;
}

Expected<Json> messages_from_ollama(const Json& list) {
  if (!list.is_array()) return wrong_type("messages", "a list of messages");
  Json result = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    Json message = list[i];
    if (!message.is_object()) return wrong_type(fmt::format("messages[{}]", i), "a message");
    if (const auto images = message.find("images"); images != message.end()) {
      const Json list_of = *images;
      message.erase("images");
      if (!list_of.empty()) {
        DLLM_TRY(message["content"], content_with_images(message, list_of, fmt::format("messages[{}].images", i)));
      }
    }
    for (const auto& [theirs, ours] : {std::pair("tool_name", "name"), std::pair("thinking", "reasoning_content")})
      if (const auto found = message.find(theirs); found != message.end()) {
        message[ours] = *found;
        message.erase(theirs);
      }
    // A call's place among the others is not needed: they are in their order.
    if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
      for (Json& call : *calls)
        if (call.is_object() && call.contains("function") && call["function"].is_object())
          call["function"].erase("index");
    result.push_back(std::move(message));
  }
  return result;
}

std::string without_latest(const std::string& name) {
  return name.ends_with(kLatest) ? name.substr(0, name.size() - kLatest.size()) : name;
}

Expected<void> read_ollama_model(const CallPtr& call, Fields& fields) {
  DLLM_TRY(const auto asked, fields.text("model"));
  if (!asked || asked->empty()) return wrong_type("model", "given");
  // A server with several models has found the one of this name before.
  const ServedModel* const only = call->api.only;
  if (only != nullptr && !only->is_served(*asked) && !only->is_served(without_latest(*asked)))
    return unknown_model(*asked, {only->name()});
  call->model = *asked;
  return {};
}

std::optional<double> parse_duration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\u00b5s", 1e-6}, {"ms", 1e-3},
                                                            {"s", 1},     {"m", 60},    {"h", 3600}};
  const double sign = text.starts_with('-') ? -1 : 1;
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
    const auto number = parse_plain_number(text.substr(0, end));
    if (!number) return std::nullopt;
    text.remove_prefix(end);
    if (first && text.empty()) return sign * *number;
    const std::string_view unit = text.substr(0, std::min(text.find_first_of("0123456789."), text.size()));
    const auto* const known = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
    if (known == std::end(kUnits)) return std::nullopt;
    seconds += *number * known->second;
    text.remove_prefix(unit.size());
  }
  return sign * seconds;
}

Expected<std::optional<double>> read_keep_alive(Call& call) {
  const auto found = call.dialect == Dialect::kOllama ? call.body.find("keep_alive") : call.body.end();
  if (found == call.body.end() || found->is_null()) return std::optional<double>();
  std::optional<double> seconds;
  if (found->is_number()) seconds = found->get<double>();
  if (found->is_string()) seconds = parse_duration(found->get_ref<const std::string&>());
  if (!seconds) return wrong_type("keep_alive", "a number of seconds, or a duration as \"5m\"");
  call.body.erase(found);
  return seconds;
}

}  // namespace dllm::serve
