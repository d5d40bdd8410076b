// The file of a recording. Reading is strict, because benchmark figures depend on the file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/input_file.h"
#include "base/json_object.h"
#include "base/to_size.h"
#include "base/try.h"
#include "engine/recording.h"
#include "engine/recording_passes.h"
#include "format/strict_json.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRecordingFormat = "dllm-recording";
// Version 1 has the pass of each commit, version 2 all that passes did.
constexpr std::int64_t kCommitsVersion = 1, kPassesVersion = 2;
constexpr std::int32_t kMostLength = 1 << 20;  // as --canvas-length
constexpr std::int64_t kMostListed = 1 << 24;
constexpr std::int32_t kMostCount = std::numeric_limits<std::int32_t>::max();

/// The kind of a file's answers.
struct Format {
  std::int32_t length;
  bool passes;
  std::int64_t& left;  ///< as in read_passes()
};

Expected<void> read_commits(JsonObject& object, std::int32_t length, RecordedAnswer& answer) {
  const std::string_view key = "commit_step";
  DLLM_TRY(const std::vector<std::int64_t> list, object.integers(key, -1, answer.nfe - 1));
  if (list.size() != to_size(length)) return object.error(key, fmt::format("not a list of {} passes", length));
  for (const std::int64_t pass : list) answer.commit_step.push_back(static_cast<std::int32_t>(pass));
  return {};
}

Expected<void> check_committed(const JsonObject& object, const RecordedAnswer& answer) {
  const auto end = answer.commit_step.begin() + answer.answer_tokens;
  const auto open = std::find(answer.commit_step.begin(), end, -1);
  if (open == end) return {};
  const auto at = open - answer.commit_step.begin();
  return object.error(
      answer.passes.empty() ? fmt::format("commit_step[{}]", at) : fmt::format("passes, position {}", at),
      "a position of the answer is never committed");
}

Expected<RecordedAnswer> read_answer(const Json& json, const Format& format, std::string place) {
  DLLM_TRY(JsonObject object, recording_object(json, std::move(place)));
  RecordedAnswer answer;
  DLLM_TRY(answer.prompt_tokens, read_count(object, "prompt_tokens", 0, kMostLength));
  DLLM_TRY(answer.answer_tokens, read_count(object, "answer_tokens", 1, format.length));
  DLLM_TRY(const std::string finish, object.text("finish"));
  if (finish != "stop" && finish != "length") return object.error("finish", "neither stop nor length");
  answer.stops = finish == "stop";
  if (!answer.stops && answer.answer_tokens != format.length)
    return object.error("answer_tokens", "an answer without a stop has every position");
  DLLM_TRY(answer.nfe, read_count(object, "nfe", 1, kMostCount));
  DLLM_TRY(answer.rows_forwarded, object.integer("rows_forwarded", 1, std::int64_t{1} << 52));
  DLLM_TRY(answer.rows_scored, object.integer("rows_scored", 1, answer.rows_forwarded));
  if (format.passes) {
    DLLM_TRY(answer.passes, read_passes(object, format.length, format.left));
    if (answer.passes.size() != to_size(answer.nfe))
      return object.error("passes", fmt::format("not a list of {} passes", answer.nfe));
    answer.commit_step = commit_steps(answer.passes, format.length);
  } else {
    DLLM_CHECK_OK(read_commits(object, format.length, answer));
  }
  DLLM_CHECK_OK(check_committed(object, answer));
  DLLM_CHECK_OK(object.finish());
  return answer;
}

Expected<GenerateOptions> read_options(const Json& json, const std::string& place) {
  DLLM_TRY(JsonObject object, recording_object(json, place));
  GenerateOptions options;
  for (const auto& [key, value] : json.items()) {
    if (value.is_structured() || value.is_null()) return object.error(key, "not the value of an option");
    if (auto set = options.set(key, value.is_string() ? value.get<std::string>() : value.dump()); !set)
      return object.error(key, set.error().what, set.error().hint);
  }
  const OptionMap kept = given_options(options);
  for (const auto& [key, value] : json.items())
    if (!kept.contains(key)) return object.error(key, "is no option of a recording, by this name");
  return options;
}

Expected<void> read_origin(JsonObject& root, Recording& recording) {
  DLLM_TRY(const Json* const json, root.any("recorded"));
  DLLM_TRY(JsonObject object, recording_object(*json, root.place() + ", recorded"));
  DLLM_TRY(recording.program, object.text("program"));
  DLLM_TRY(recording.command, object.text("command"));
  DLLM_TRY(recording.model, object.text("model"));
  DLLM_TRY(recording.items, read_count(object, "items", 0, kMostCount));
  DLLM_TRY(recording.correct, read_count(object, "correct", 0, recording.items));
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
  DLLM_TRY(JsonObject root, recording_object(json, file));
  DLLM_TRY(const std::string format, root.text("format"));
  if (format != kRecordingFormat) return root.error("format", fmt::format("not {}", kRecordingFormat));
  DLLM_TRY(const std::int64_t version, root.integer("version", 1, kMostCount));
  if (version > kPassesVersion)
    return root.error(
        "version",
        fmt::format("version {}, and this program reads {} and {}", version, kCommitsVersion, kPassesVersion),
        "record again, or get the program that wrote it");
  Recording recording;
  DLLM_CHECK_OK(read_origin(root, recording));
  DLLM_TRY(recording.length, read_count(root, "length", 1, kMostLength));
  DLLM_TRY(recording.block_length, read_count(root, "block_length", 1, recording.length));
  DLLM_TRY(const Json* const options, root.any("options"));
  DLLM_TRY(recording.options, read_options(*options, file + ", options"));
  DLLM_TRY(const Json* const answers, root.list("answers"));
  if (answers->empty()) return root.error("answers", "there are none");
  std::int64_t left = kMostListed;
  for (std::size_t i = 0; i < answers->size(); ++i) {
    DLLM_TRY(RecordedAnswer answer, read_answer((*answers)[i], {recording.length, version == kPassesVersion, left},
                                                fmt::format("{}, answers[{}]", file, i)));
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
  const bool passes = !recording.answers.empty() && !recording.answers.front().passes.empty();
  std::string text = fmt::format(
      "{{\"format\": \"{}\", \"version\": {},\n \"recorded\": {},\n \"length\": {}, \"block_length\": {},\n"
      " \"options\": {},\n \"answers\": [",
      kRecordingFormat, passes ? kPassesVersion : kCommitsVersion, compact(recorded), recording.length,
      recording.block_length, compact(options_of(recording)));
  // A line per answer: the files are kept under version control.
  const char* separator = "\n";
  for (const RecordedAnswer& answer : recording.answers) {
    text += fmt::format(
        "{}  {{\"prompt_tokens\": {}, \"answer_tokens\": {}, \"finish\": \"{}\", \"nfe\": {}, \"rows_forwarded\": {}, "
        "\"rows_scored\": {}, \"{}\": [{}]}}",
        separator, answer.prompt_tokens, answer.answer_tokens, answer.stops ? "stop" : "length", answer.nfe,
        answer.rows_forwarded, answer.rows_scored, passes ? "passes" : "commit_step",
        passes ? passes_text(answer.passes) : fmt::format("{}", fmt::join(answer.commit_step, ",")));
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace dllm
