#pragma once

#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dllm::app {

/// Prints records as they arrive: Markdown tables (one per kind of test), JSON lines, CSV; or one JSON array at the
/// end. `shared` (host, build, command, …) becomes part of every record; Markdown prints it once, above the tables.
class BenchOutput {
 public:
  BenchOutput(std::ostream& out, std::string format, const nlohmann::ordered_json& shared);
  ~BenchOutput();
  /// `record["test"]`: step, generate, load or peak.
  void add(const nlohmann::ordered_json& record);
  void finish();

  static std::vector<std::string> formats() { return {"md", "json", "jsonl", "csv"}; }

 private:
  void add_markdown(const nlohmann::ordered_json& record);
  void add_csv(const nlohmann::ordered_json& record);

  std::ostream& out_;
  std::string format_;
  std::unique_ptr<const nlohmann::ordered_json> shared_;
  std::unique_ptr<nlohmann::ordered_json> all_;  ///< the records of an array
  std::string table_;                            ///< the test whose table is open
  bool first_ = true;
};

}  // namespace dllm::app
