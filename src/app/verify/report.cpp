#include "app/verify/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/human_bytes.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

/// `text` in a Markdown table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '\\') result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("| {} | {} |\n", cell(name), cell(value));
}

std::string word(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() ? "" : it->is_string() ? it->get<std::string>() : it->dump();
}

/// The first part of a text; cut between characters.
std::string beginning(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

/// The values of a member in a list of objects, as text; empty: there is no such list.
std::vector<std::string> column(const Json& report, const char* list, const char* member) {
  std::vector<std::string> values;
  const auto it = report.find(list);
  if (it == report.end() || !it->is_array()) return values;
  for (const Json& one : *it) values.push_back(one.is_object() ? word(one, member) : "");
  return values;
}

}  // namespace

std::string verify_text(const Json& report) {
  const Json& model = report["model"];
  const Json& config = report["config"];
  std::string text = fmt::format("### dllm verify: {}\n\n| | |\n|---|---|\n", report["name"].get<std::string>());
  text += row("program",
              fmt::format("dllm {}, {}, {} threads, {}{}", word(config, "version"), word(config["host"], "cpu"),
                          word(config["load"], "threads"), word(config["load"], "isa"),
                          word(config["load"], "arithmetic").empty() ? "" : ", " + word(config["load"], "arithmetic")));
  text += row("model", fmt::format("{}, {:.1f} M parameters, {}, vocabulary {}, context {}",
                                   word(model, "architecture"), model["parameters"].get<double>() / 1e6,
                                   word(model, "type"), word(model, "vocabulary"), word(model, "context")));
  for (const Json& file : report["files"])
    text += row("file", fmt::format("{}, {}, {}", word(file, "name"), human_bytes(file["bytes"].get<double>()),
                                    file["sha256"].is_null() ? "no digest" : "sha256 " + word(file, "sha256")));
  text += row("metadata", "sha256 " + word(model, "metadata_sha256"));
  text += row(fmt::format("{} texts", word(report["texts"], "count")), "ids sha256 " + word(report["texts"], "sha256"));
  text += row("chat", "ids sha256 " + word(report["chat"], "sha256"));
  for (const Json& prompt : report["prompts"])
    text += row(beginning(word(prompt, "prompt"), 60),
                fmt::format("#{}, {} tokens, {} passes: {}", word(prompt, "hash"), word(prompt, "tokens"),
                            word(prompt, "passes"), beginning(word(prompt, "text"), 160)));
  text +=
      row("speed", fmt::format("{:.1f} tokens/s, {:.1f} ms a pass", report["speed"]["tokens_per_second"].get<double>(),
                               report["speed"]["ms_per_pass"].get<double>()));
  return text + fmt::format("\n    {}\n", word(config, "command"));
}

Expected<std::vector<std::string>> verify_differences(const Json& report, const Json& other) {
  for (const char* key : {"files", "model", "texts", "prompts"})
    if (!other.is_object() || !other.contains(key))
      return Error{ErrorCode::kInvalidFile, fmt::format("there is no '{}'", key), "",
                   "give the JSON of an earlier dllm verify"};
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& what, const std::string& here, const std::string& there) {
    if (here != there && !here.empty() && !there.empty() && here != "null" && there != "null")
      differences.push_back(fmt::format("{}: {} here, {} there", what, beginning(here, 80), beginning(there, 80)));
  };
  const auto compare_lists = [&](const char* list, const char* name, const std::vector<const char*>& members) {
    const auto names = column(report, list, name), others = column(other, list, name);
    if (names.size() != others.size())
      return differences.push_back(fmt::format("{}: {} here, {} there", list, names.size(), others.size()));
    for (const char* member : members) {
      const auto here = column(report, list, member), there = column(other, list, member);
      for (std::size_t i = 0; i < here.size(); ++i)
        compare(fmt::format("{} '{}', {}", list, names[i], member), here[i], there[i]);
    }
  };
  compare_lists("files", "name", {"bytes", "sha256"});
  for (const char* key : {"architecture", "parameters", "type", "vocabulary", "context", "metadata_sha256"})
    compare(key, word(report["model"], key), word(other["model"], key));
  for (const char* part : {"texts", "chat"})
    if (other.contains(part))
      compare(fmt::format("ids of {}", part), word(report[part], "sha256"), word(other[part], "sha256"));
  compare_lists("prompts", "prompt", {"hash", "passes"});
  return differences;
}

}  // namespace dllm::app
