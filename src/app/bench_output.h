#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dllm::app {

/// Prints records as they come: Markdown tables (one per kind of test), JSON lines, CSV; or one JSON array at the end.
/// `shared` (host, build, command, …) becomes part of every record; Markdown tells it once, above the tables.
class BenchOutput {
 public:
  BenchOutput(std::ostream& out, std::string format, nlohmann::ordered_json shared);
  /// `record["test"]`: step, generate, load or peak.
  void add(const nlohmann::ordered_json& record);
  void finish();

  static std::vector<std::string> formats() { return {"md", "json", "jsonl", "csv"}; }

 private:
  void add_markdown(const nlohmann::ordered_json& record);
  void add_csv(const nlohmann::ordered_json& record);

  std::ostream& out_;
  std::string format_;
  nlohmann::ordered_json shared_;
  nlohmann::ordered_json all_ = nlohmann::ordered_json::array();
  std::string table_;  ///< the test whose table is open
  bool first_ = true;
};

}  // namespace dllm::app
