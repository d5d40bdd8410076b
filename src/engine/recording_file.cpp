// The file of a recording. Reading is strict, because benchmark figures depend on the file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/input_file.h"
#include "base/try.h"
#include "engine/recording.h"
#include "engine/recording_passes.h"
#include "engine/strict_object.h"
#include "format/strict_json.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRecordingFormat = "dllm-recording";
// Version 1 has the pass of each commit, version 2 all that passes did.
constexpr std::int64_t kCommitsVersion = 1, kPassesVersion = 2;
constexpr std::int64_t kMostLength = 1 << 20;  // as --canvas-length
constexpr std::int64_t kMostListed = 1 << 24;
constexpr std::int64_t kMostCount = std::numeric_limits<std::int32_t>::max();

/// The kind of a file's answers.
struct Format {
  std::int32_t length;
  bool passes;
  std::int64_t& left;  ///< as in read_passes()
};

Expected<void> read_commits(StrictObject& object, std::int32_t length, RecordedAnswer& answer) {
  const std::string key = "commit_step";
  DLLM_TRY(const Json* const list, object.value(key));
  if (!list->is_array() || list->size() != static_cast<std::size_t>(length))
    return object.error(fmt::format("not a list of {} passes", length), key);
  for (std::size_t i = 0; i < list->size(); ++i) {
    DLLM_TRY(const std::int64_t pass, object.in_range((*list)[i], fmt::format("{}[{}]", key, i), -1, answer.nfe - 1));
    answer.commit_step.push_back(static_cast<std::int32_t>(pass));
  }
  return {};
}

Expected<void> check_committed(const StrictObject& object, const RecordedAnswer& answer) {
  const auto end = answer.commit_step.begin() + answer.answer_tokens;
  const auto open = std::find(answer.commit_step.begin(), end, -1);
  if (open == end) return {};
  const auto at = open - answer.commit_step.begin();
  return object.error("a position of the answer is never committed", answer.passes.empty()
                                                                         ? fmt::format("commit_step[{}]", at)
                                                                         : fmt::format("passes, position {}", at));
}

Expected<RecordedAnswer> read_answer(const Json& json, const Format& format, std::string place) {
  DLLM_TRY(StrictObject object, StrictObject::of(json, std::move(place)));
  RecordedAnswer answer;
  DLLM_TRY(answer.prompt_tokens, object.count("prompt_tokens", 0, kMostLength));
  DLLM_TRY(answer.answer_tokens, object.count("answer_tokens", 1, format.length));
  DLLM_TRY(const std::string finish, object.text("finish"));
  if (finish != "stop" && finish != "length") return object.error("neither stop nor length", "finish");
  answer.stops = finish == "stop";
  if (!answer.stops && answer.answer_tokens != format.length)
    return object.error("an answer without a stop has every position", "answer_tokens");
  DLLM_TRY(answer.nfe, object.count("nfe", 1, kMostCount));
  DLLM_TRY(answer.rows_forwarded, object.integer("rows_forwarded", 1, std::int64_t{1} << 52));
  DLLM_TRY(answer.rows_scored, object.integer("rows_scored", 1, answer.rows_forwarded));
  if (format.passes) {
    DLLM_TRY(answer.passes, read_passes(object, format.length, format.left));
    if (answer.passes.size() != static_cast<std::size_t>(answer.nfe))
      return object.error(fmt::format("not a list of {} passes", answer.nfe), "passes");
    answer.commit_step = commit_steps(answer.passes, format.length);
  } else {
    DLLM_CHECK_OK(read_commits(object, format.length, answer));
  }
  DLLM_CHECK_OK(check_committed(object, answer));
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
      return object.error(error.what, key, error.hint.empty() ? StrictObject::kHint : error.hint);
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
  DLLM_TRY(recording.items, object.count("items", 0, kMostCount));
  DLLM_TRY(recording.correct, object.count("correct", 0, recording.items));
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
  if (version > kPassesVersion)
    return root.error(
        fmt::format("version {}, and this program reads {} and {}", version, kCommitsVersion, kPassesVersion),
        "version", "record again, or get the program that wrote it");
  Recording recording;
  DLLM_CHECK_OK(read_origin(root, recording));
  DLLM_TRY(recording.length, root.count("length", 1, kMostLength));
  DLLM_TRY(recording.block_length, root.count("block_length", 1, recording.length));
  DLLM_TRY(const Json* const options, root.value("options"));
  DLLM_TRY(recording.options, read_options(*options, file + ", options"));
  DLLM_TRY(const Json* const answers, root.value("answers"));
  if (!answers->is_array() || answers->empty()) return root.error("not a list of answers", "answers");
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
