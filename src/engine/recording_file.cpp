// The file of a recording. Reading is strict, because benchmark figures depend on the file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/input_file.h"
#include "base/nearest.h"
#include "base/try.h"
#include "engine/recording.h"
#include "format/strict_json.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRecordingFormat = "dllm-recording";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostLength = 1 << 20;  // as --predict
constexpr std::int64_t kMostCount = std::numeric_limits<std::int32_t>::max();
constexpr const char* kHint = "`dllm eval --record` writes such files; docs/guide/benchmarking.md describes them";

/// An object all of whose keys must be read. `place`: "file, answers[2]".
class StrictObject {
 public:
  static Expected<StrictObject> of(const Json& json, std::string place) {
    if (!json.is_object()) return Error{ErrorCode::kInvalidFile, "not an object", std::move(place), kHint};
    return StrictObject(json, std::move(place));
  }

  Error error(std::string what, const std::string& key, std::string hint = kHint) const {
    return {ErrorCode::kInvalidFile, std::move(what), place_ + ", " + key, std::move(hint)};
  }
  const std::string& place() const { return place_; }

  Expected<const Json*> value(const std::string& key) {
    read_.push_back(key);
    const auto found = json_->find(key);
    if (found == json_->end()) return error("is missing", key);
    return &*found;
  }

  Expected<std::int64_t> integer(const std::string& key, std::int64_t least, std::int64_t most) {
    DLLM_TRY(const Json* const value, this->value(key));
    return in_range(*value, key, least, most);
  }

  Expected<std::int64_t> in_range(const Json& value, const std::string& key, std::int64_t least,
                                  std::int64_t most) const {
    const bool small = !value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (!value.is_number_integer() || !small || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
      return error(fmt::format("not an integer from {} to {}", least, most), key);
    return value.get<std::int64_t>();
  }

  Expected<std::string> text(const std::string& key) {
    DLLM_TRY(const Json* const value, this->value(key));
    if (!value->is_string()) return error("not a string", key);
    return value->get<std::string>();
  }

  Expected<void> finish() const {
    for (const auto& [key, value] : json_->items())
      if (std::find(read_.begin(), read_.end(), key) == read_.end())
        return error("the key is unknown", key, choice_hint(key, read_));
    return {};
  }

 private:
  StrictObject(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  const Json* json_;
  std::string place_;
  std::vector<std::string> read_;
};

Expected<std::int32_t> count(StrictObject& object, const std::string& key, std::int64_t least, std::int64_t most) {
  DLLM_TRY(const std::int64_t value, object.integer(key, least, most));
  return static_cast<std::int32_t>(value);
}

Expected<void> read_commits(StrictObject& object, std::int32_t length, RecordedAnswer& answer) {
  const std::string key = "commit_step";
  DLLM_TRY(const Json* const list, object.value(key));
  if (!list->is_array() || list->size() != static_cast<std::size_t>(length))
    return object.error(fmt::format("not a list of {} passes", length), key);
  for (std::size_t i = 0; i < list->size(); ++i) {
    DLLM_TRY(const std::int64_t pass, object.in_range((*list)[i], fmt::format("{}[{}]", key, i), -1, answer.nfe - 1));
    answer.commit_step.push_back(static_cast<std::int32_t>(pass));
  }
  const auto end = answer.commit_step.begin() + answer.answer_tokens;
  if (const auto open = std::find(answer.commit_step.begin(), end, -1); open != end)
    return object.error("a position of the answer is never committed",
                        fmt::format("{}[{}]", key, open - answer.commit_step.begin()));
  return {};
}

Expected<RecordedAnswer> read_answer(const Json& json, std::int32_t length, std::string place) {
  DLLM_TRY(StrictObject object, StrictObject::of(json, std::move(place)));
  RecordedAnswer answer;
  DLLM_TRY(answer.prompt_tokens, count(object, "prompt_tokens", 0, kMostLength));
  DLLM_TRY(answer.answer_tokens, count(object, "answer_tokens", 1, length));
  DLLM_TRY(const std::string finish, object.text("finish"));
  if (finish != "stop" && finish != "length") return object.error("neither stop nor length", "finish");
  answer.stops = finish == "stop";
  if (!answer.stops && answer.answer_tokens != length)
    return object.error("an answer without a stop has every position", "answer_tokens");
  DLLM_TRY(answer.nfe, count(object, "nfe", 1, kMostCount));
  DLLM_TRY(answer.rows_forwarded, object.integer("rows_forwarded", 1, std::int64_t{1} << 52));
  DLLM_TRY(answer.rows_scored, object.integer("rows_scored", 1, answer.rows_forwarded));
  DLLM_CHECK_OK(read_commits(object, length, answer));
  DLLM_CHECK_OK(object.finish());
  return answer;
}

Expected<GenerateOptions> read_options(const Json& json, const std::string& place) {
  DLLM_TRY(StrictObject object, StrictObject::of(json, place));
  GenerateOptions options;
  for (const auto& [key, value] : json.items()) {
    if (value.is_structured() || value.is_null()) return object.error("not the value of an option", key);
    if (auto set = options.set(key, value.is_string() ? value.get<std::string>() : value.dump()); !set) {
      const Error& error = set.error();
      return object.error(error.what, key, error.hint.empty() ? kHint : error.hint);
    }
  }
  const OptionMap kept = given_options(options);
  for (const auto& [key, value] : json.items())
    if (!kept.contains(key)) return object.error("is no option of a recording, by this name", key);
  return options;
}

Expected<void> read_origin(StrictObject& root, Recording& recording) {
  DLLM_TRY(const Json* const json, root.value("recorded"));
  DLLM_TRY(StrictObject object, StrictObject::of(*json, root.place() + ", recorded"));
  DLLM_TRY(recording.program, object.text("program"));
  DLLM_TRY(recording.command, object.text("command"));
  DLLM_TRY(recording.model, object.text("model"));
  DLLM_TRY(recording.items, count(object, "items", 0, kMostCount));
  DLLM_TRY(recording.correct, count(object, "correct", 0, recording.items));
  return object.finish();
}

nlohmann::ordered_json options_of(const Recording& recording) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : given_options(recording.options))
    std::visit([&json, name = key](const auto& one) { json[name] = one; }, value);
  return json;
}

/// Paths and names need not be UTF-8; invalid bytes are replaced, because the JSON library would throw.
std::string compact(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

Expected<Recording> parse_recording(std::string_view text, const std::string& file) {
  DLLM_TRY(const Json json, parse_strict_json(std::as_bytes(std::span(text)), file));
  DLLM_TRY(StrictObject root, StrictObject::of(json, file));
  DLLM_TRY(const std::string format, root.text("format"));
  if (format != kRecordingFormat) return root.error(fmt::format("not {}", kRecordingFormat), "format");
  DLLM_TRY(const std::int64_t version, root.integer("version", 1, kMostCount));
  if (version != kVersion)
    return root.error(fmt::format("version {}, and this program reads {}", version, kVersion), "version",
                      "record again, or get the program that wrote it");
  Recording recording;
  DLLM_CHECK_OK(read_origin(root, recording));
  DLLM_TRY(recording.length, count(root, "length", 1, kMostLength));
  DLLM_TRY(recording.block_length, count(root, "block_length", 1, recording.length));
  DLLM_TRY(const Json* const options, root.value("options"));
  DLLM_TRY(recording.options, read_options(*options, file + ", options"));
  DLLM_TRY(const Json* const answers, root.value("answers"));
  if (!answers->is_array() || answers->empty()) return root.error("not a list of answers", "answers");
  for (std::size_t i = 0; i < answers->size(); ++i) {
    DLLM_TRY(RecordedAnswer answer,
             read_answer((*answers)[i], recording.length, fmt::format("{}, answers[{}]", file, i)));
    recording.answers.push_back(std::move(answer));
  }
  DLLM_CHECK_OK(root.finish());
  return recording;
}

Expected<Recording> read_recording(const std::string& path) {
  DLLM_TRY(const std::string text, read_input(path));
  return parse_recording(text, path);
}

std::string recording_text(const Recording& recording) {
  const nlohmann::ordered_json recorded = {{"program", recording.program},
                                           {"command", recording.command},
                                           {"model", recording.model},
                                           {"items", recording.items},
                                           {"correct", recording.correct}};
  std::string text = fmt::format(
      "{{\"format\": \"{}\", \"version\": {},\n \"recorded\": {},\n \"length\": {}, \"block_length\": {},\n"
      " \"options\": {},\n \"answers\": [",
      kRecordingFormat, kVersion, compact(recorded), recording.length, recording.block_length,
      compact(options_of(recording)));
  // A line per answer: the files are kept under version control.
  const char* separator = "\n";
  for (const RecordedAnswer& answer : recording.answers) {
    text += fmt::format(
        "{}  {{\"prompt_tokens\": {}, \"answer_tokens\": {}, \"finish\": \"{}\", \"nfe\": {}, \"rows_forwarded\": {}, "
        "\"rows_scored\": {}, \"commit_step\": [{}]}}",
        separator, answer.prompt_tokens, answer.answer_tokens, answer.stops ? "stop" : "length", answer.nfe,
        answer.rows_forwarded, answer.rows_scored, fmt::join(answer.commit_step, ","));
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace dllm
