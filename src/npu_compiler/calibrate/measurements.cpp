#include "npu_compiler/calibrate/measurements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/parse_text.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

/// Operations of the largest product still fit into 64 bits.
std::int64_t most_of(std::string_view column) { return std::int64_t{1} << (column == "bytes" ? 40 : 20); }

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const std::size_t comma = line.find(',');
    std::string_view cell = line.substr(0, comma);
    while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
    while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t' || cell.back() == '\r')) cell.remove_suffix(1);
    cells.push_back(cell);
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

/// Rows of sizes with what was measured at the end, in the order of `columns`.
struct SizedRow {
  std::vector<std::int64_t> sizes;
  double measured = 0;
};

class MeasurementTable {
 public:
  /// `other`: a name that the last column may have instead.
  MeasurementTable(std::string file, std::vector<std::string_view> columns, std::string_view other = {})
      : file_(std::move(file)), columns_(std::move(columns)), other_(other) {}

  /// Whether it had that name.
  bool other() const { return !other_.empty() && columns_.back() == other_; }

  Expected<std::vector<SizedRow>> read(std::string_view text) {
    std::vector<SizedRow> rows;
    // What spreadsheets put before the first cell.
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
      return Error{ErrorCode::kInvalidFile, "the text is UTF-16", file_, "save it as UTF-8"};
    while (!text.empty()) {
      ++line_;
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      line = line.substr(0, line.find('#'));
      const auto cells = cells_of(line);
      if (cells.size() == 1 && cells.front().empty()) continue;
      if (order_.empty()) {
        DLLM_CHECK_OK(read_header(cells));
        continue;
      }
      DLLM_TRY(SizedRow row, read_row(cells));
      rows.push_back(std::move(row));
    }
    if (rows.empty()) return error("no measurements");
    return rows;
  }

 private:
  Error error(std::string what) const {
    return {ErrorCode::kInvalidFile, std::move(what), fmt::format("{}, line {}", file_, line_),
            fmt::format("columns: {}", fmt::join(columns_, ","))};
  }

  Expected<void> read_header(const std::vector<std::string_view>& cells) {
    if (!other_.empty() && std::ranges::find(cells, other_) != cells.end()) columns_.back() = other_;
    std::vector<std::string_view> given = cells, wanted = columns_;
    std::ranges::sort(given), std::ranges::sort(wanted);
    if (given != wanted) return error(fmt::format("the columns are {}", fmt::join(cells, ",")));
    for (const std::string_view column : columns_)
      order_.push_back(to_size(std::ranges::find(cells, column) - cells.begin()));
    return {};
  }

  Expected<SizedRow> read_row(const std::vector<std::string_view>& cells) const {
    if (cells.size() != columns_.size()) return error(fmt::format("{} cells", cells.size()));
    SizedRow row;
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
      const std::string_view cell = cells[order_[i]];
      const auto size = parse_number<std::int64_t>(cell);
      if (!size || *size < 1 || *size > most_of(columns_[i]))
        return error(
            fmt::format("'{}' in {} is not a whole number from 1 to {}", cell, columns_[i], most_of(columns_[i])));
      row.sizes.push_back(*size);
    }
    const std::string_view cell = cells[order_.back()];
    const auto measured = parse_number<double>(cell);
    if (!measured || !std::isfinite(*measured) || *measured <= 0)
      return error(fmt::format("'{}' in {} is not a number above 0", cell, columns_.back()));
    row.measured = *measured;
    return row;
  }

  std::string file_;
  std::vector<std::string_view> columns_;
  std::string_view other_;
  std::vector<std::size_t> order_;  ///< cell of each column
  std::size_t line_ = 0;
};

}  // namespace

Expected<std::vector<Measurements::Gemm>> parse_gemms(std::string_view text, const std::string& file) {
  DLLM_TRY(const auto rows, MeasurementTable(file, {"rows", "outputs", "inputs", "us"}).read(text));
  std::vector<Measurements::Gemm> result;
  for (const SizedRow& row : rows) result.push_back({row.sizes[0], row.sizes[1], row.sizes[2], row.measured});
  return result;
}

Expected<std::vector<Measurements::MeasuredStep>> parse_steps(std::string_view text, const std::string& file) {
  DLLM_TRY(const auto rows, MeasurementTable(file, {"rows", "keys", "us"}).read(text));
  std::vector<Measurements::MeasuredStep> result;
  for (const SizedRow& row : rows) result.push_back({row.sizes[0], row.sizes[1], row.measured});
  return result;
}

Expected<std::vector<Measurements::Mapping>> parse_mappings(std::string_view text, const std::string& file) {
  DLLM_TRY(const auto rows, MeasurementTable(file, {"bytes", "us"}).read(text));
  std::vector<Measurements::Mapping> result;
  for (const SizedRow& row : rows) result.push_back({row.sizes[0], row.measured});
  return result;
}

Expected<std::vector<Measurements::Shared>> parse_shared_steps(std::string_view text, const std::string& file) {
  DLLM_TRY(const auto rows, MeasurementTable(file, {"rows", "keys", "host_rows", "host_keys", "us"}).read(text));
  std::vector<Measurements::Shared> result;
  for (const SizedRow& row : rows)
    result.push_back({row.sizes[0], row.sizes[1], row.sizes[2], row.sizes[3], row.measured});
  return result;
}

Expected<std::vector<Measurements::GemmEnergy>> parse_gemm_energies(std::string_view text, const std::string& file) {
  MeasurementTable table(file, {"rows", "outputs", "inputs", "joules"}, "watts");
  DLLM_TRY(const auto rows, table.read(text));
  std::vector<Measurements::GemmEnergy> result;
  for (const SizedRow& row : rows)
    result.push_back({{row.sizes[0], row.sizes[1], row.sizes[2], 0}, {row.measured, table.other()}});
  return result;
}

Expected<std::vector<Measurements::StepEnergy>> parse_step_energies(std::string_view text, const std::string& file) {
  MeasurementTable table(file, {"rows", "keys", "joules"}, "watts");
  DLLM_TRY(const auto rows, table.read(text));
  std::vector<Measurements::StepEnergy> result;
  for (const SizedRow& row : rows) result.push_back({row.sizes[0], row.sizes[1], {row.measured, table.other()}});
  return result;
}

}  // namespace dllm::npu
