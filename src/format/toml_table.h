#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strict_object.h"
#include "dllm/error.h"

namespace dllm {

/// One TOML table, read strictly (base/strict_object.h): an unknown key is an error with its line.
///
///   DLLM_TRY(TomlTable root, TomlTable::parse(text, "mine.toml"));
///   DLLM_TRY(const double hz, root.number("clock_ghz"));
///   DLLM_CHECK_OK(root.finish());
///
/// Copies share the parsed file. Errors are kInvalidFile: "mine.toml:12: ...".
class TomlTable : public StrictObject {
 public:
  /// Errors: what TOML's grammar forbids, with the line.
  static Expected<TomlTable> parse(std::string_view text, const std::string& file);

  /// Keys in the order of the file.
  std::vector<std::string> keys() const override;
  /// "mine.toml:12", the line of the key if it is present, else of the table.
  std::string where(std::string_view key = "") const;
  /// The dotted path of a key from the root: "sram.vector_rows".
  std::string path(std::string_view key) const override;

  // Required keys. Errors: missing; of another type.
  Expected<TomlTable> table(std::string_view key);
  Expected<std::vector<TomlTable>> tables(std::string_view key);
  /// nullopt if it is absent.
  Expected<std::optional<TomlTable>> optional_table(std::string_view key);

  /// Any scalar, or each scalar of an array, as TOML text ("4", "2.5", "'open'", "true"): for --set and sweeps.
  Expected<std::vector<std::string>> scalar_texts(std::string_view key);

  Error error(std::string_view key, std::string what, std::string hint = "") const override;

 protected:
  Value value(std::string_view key) const override;
  bool visit_list(std::string_view key, const std::function<bool(Value)>& visit) const override;

 private:
  struct State;
  explicit TomlTable(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// `text` with the value at a dotted key replaced or added; `value` is TOML ("16", "true", "open": a bare word is taken
/// as a string). Errors: a malformed path or value; a path through a non-table.
Expected<std::string> with_override(std::string_view text, const std::string& file, std::string_view key,
                                    std::string_view value);

}  // namespace dllm
