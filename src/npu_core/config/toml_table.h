#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dllm/error.h"

namespace dllm::npu {

/// A strict view of one TOML table: every key must be read, so an unknown key is an error with its line.
///
///   DLLM_TRY(TomlTable root, TomlTable::parse(text, "mine.toml"));
///   DLLM_TRY(const double hz, root.number("clock_ghz"));
///   DLLM_CHECK_OK(root.finish());
///
/// Copies share the record of which keys were read. Errors are kInvalidFile: "mine.toml:12: ...".
class TomlTable {
 public:
  /// Errors: what TOML's grammar forbids, with the line.
  static Expected<TomlTable> parse(std::string_view text, const std::string& file);

  bool contains(std::string_view key) const;
  /// Keys in the order of the file.
  std::vector<std::string> keys() const;
  /// "mine.toml:12", the line of the key if it is present, else of the table.
  std::string where(std::string_view key = "") const;
  /// The dotted path of a key from the root: "sram.vector_rows".
  std::string path(std::string_view key = "") const;

  // Each reads a required key and marks it as known. Errors: missing; of another type.
  Expected<std::string> text(std::string_view key);
  Expected<std::int64_t> integer(std::string_view key);
  Expected<double> number(std::string_view key);  ///< an integer or a float
  Expected<bool> boolean(std::string_view key);
  Expected<TomlTable> table(std::string_view key);
  Expected<std::vector<std::string>> texts(std::string_view key);
  Expected<std::vector<TomlTable>> tables(std::string_view key);

  // Marks the key as known and returns nullopt if it is absent.
  Expected<std::optional<std::string>> optional_text(std::string_view key);
  Expected<std::optional<std::int64_t>> optional_integer(std::string_view key);
  Expected<std::optional<double>> optional_number(std::string_view key);
  Expected<std::optional<bool>> optional_boolean(std::string_view key);
  Expected<std::optional<TomlTable>> optional_table(std::string_view key);

  /// Any scalar, or each scalar of an array, as TOML text ("4", "2.5", "'open'", "true"): for --set and sweeps.
  Expected<std::vector<std::string>> scalar_texts(std::string_view key);

  /// Errors: the first key of this table that was never read, with the nearest of those that were.
  Expected<void> finish() const;

  /// An error at a key of this table.
  Error error(std::string_view key, std::string what, std::string hint = "") const;

 private:
  struct State;
  explicit TomlTable(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// `text` with the value at a dotted key replaced or added; `value` is TOML ("16", "true", "open": a bare word is taken
/// as a string). Errors: a malformed path or value; a path through a non-table.
Expected<std::string> with_override(std::string_view text, const std::string& file, std::string_view key,
                                    std::string_view value);

}  // namespace dllm::npu
