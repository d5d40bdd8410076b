#include "npu_compiler/sweep/store.h"

#include <fmt/format.h>

#include <sqlite3.h>
#include <algorithm>
#include <filesystem>

#include "base/output_file.h"
#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/sweep/spec.h"

namespace dllm::npu {
namespace {

namespace fs = std::filesystem;

/// A prepared statement; steps do not throw and return SQLite's codes.
class Statement {
 public:
  Statement(sqlite3* database, const std::string& sql) {
    if (sqlite3_prepare_v2(database, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK) statement_ = nullptr;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  explicit operator bool() const { return statement_ != nullptr; }
  void bind(int index, const std::string& text) {
    sqlite3_bind_text(statement_, index, text.c_str(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void bind_bytes(int index, const std::string& bytes) {
    sqlite3_bind_blob64(statement_, index, bytes.data(), bytes.size(), SQLITE_STATIC);
  }
  std::string bytes(int column) const {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    return data == nullptr ? "" : std::string(data, to_size(sqlite3_column_bytes(statement_, column)));
  }
  void bind(int index, double value) { sqlite3_bind_double(statement_, index, value); }
  void bind(int index, std::int64_t value) { sqlite3_bind_int64(statement_, index, value); }
  int step() { return sqlite3_step(statement_); }
  void reset() { sqlite3_reset(statement_); }
  std::string text(int column) const {
    const unsigned char* value = sqlite3_column_text(statement_, column);
    return value == nullptr ? "" : reinterpret_cast<const char*>(value);
  }
  double number(int column) const { return sqlite3_column_double(statement_, column); }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

std::string metric_columns(std::string_view suffix) {
  std::string text;
  for (const Metric& metric : sweep_metrics()) text += fmt::format(", {}{}", metric.name, suffix);
  return text;
}

}  // namespace

void SweepStore::Close::operator()(sqlite3* database) const { sqlite3_close(database); }

Error SweepStore::error(const std::string& what) const {
  return {ErrorCode::kIo, fmt::format("{}: {}", what, sqlite3_errmsg(database_.get())), "results database",
          "is it a file of dllm npu sweep, and writable?"};
}

Expected<SweepStore> SweepStore::open(const std::string& path) {
  std::error_code ignored;
  const bool existed = fs::is_regular_file(path, ignored);
  // SQLite follows links and would create what a dangling one names.
  if (!existed) DLLM_CHECK_OK(check_output(path));
  auto store = open_tables(path);
  // Nothing but an empty file can be in it.
  if (!store && !existed) fs::remove(path, ignored);
  return store;
}

Expected<SweepStore> SweepStore::open_tables(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open(path.c_str(), &raw);
  SweepStore store{std::unique_ptr<sqlite3, Close>(raw)};
  if (code != SQLITE_OK) return Error{ErrorCode::kIo, "cannot open the results database", path, ""};
  sqlite3_busy_timeout(raw, 10000);
  // A batch lost in a power failure is evaluated again; syncing the disk after each would cost more.
  sqlite3_exec(raw, "PRAGMA synchronous = OFF", nullptr, nullptr, nullptr);
  const std::string create = fmt::format(
      "CREATE TABLE IF NOT EXISTS points (hash INTEGER PRIMARY KEY, error TEXT NOT NULL{})", metric_columns(" REAL"));
  constexpr const char* kFinished =
      "CREATE TABLE IF NOT EXISTS finished (sweep INTEGER, part INTEGER, bytes BLOB NOT NULL, "
      "PRIMARY KEY (sweep, part))";
  if (sqlite3_exec(raw, create.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK ||
      sqlite3_exec(raw, kFinished, nullptr, nullptr, nullptr) != SQLITE_OK)
    return store.error("cannot create the table in " + path);
  if (!Statement(raw, fmt::format("SELECT hash, error{} FROM points", metric_columns(""))))
    return store.error("the table in " + path + " has other columns");
  return store;
}

Expected<std::vector<SweepResult>> SweepStore::all() const {
  Statement select(database_.get(), fmt::format("SELECT hash, error{} FROM points", metric_columns("")));
  if (!select) return error("cannot read");
  std::vector<SweepResult> results;
  int code = select.step();
  for (; code == SQLITE_ROW; code = select.step()) {
    SweepResult result{static_cast<std::uint64_t>(select.integer(0)), {}, select.text(1)};
    for (std::size_t i = 0; i < kSweepMetrics; ++i) result.metrics[i] = select.number(2 + static_cast<int>(i));
    results.push_back(std::move(result));
  }
  if (code != SQLITE_DONE) return error("cannot read");
  std::sort(results.begin(), results.end(), [](const SweepResult& a, const SweepResult& b) { return a.hash < b.hash; });
  return results;
}

Expected<void> SweepStore::add(const std::vector<SweepResult>& results) {
  if (sqlite3_exec(database_.get(), "BEGIN", nullptr, nullptr, nullptr) != SQLITE_OK) return error("cannot write");
  std::string marks;
  for (std::size_t i = 0; i < kSweepMetrics; ++i) marks += ", ?";
  Statement insert(database_.get(), fmt::format("INSERT OR IGNORE INTO points (hash, error{}) VALUES (?, ?{})",
                                                metric_columns(""), marks));
  bool ok = static_cast<bool>(insert);
  for (std::size_t r = 0; ok && r < results.size(); ++r) {
    const SweepResult& result = results[r];
    insert.reset();
    insert.bind(1, static_cast<std::int64_t>(result.hash));
    insert.bind(2, result.error);
    for (std::size_t i = 0; i < kSweepMetrics; ++i) insert.bind(3 + static_cast<int>(i), result.metrics[i]);
    ok = insert.step() == SQLITE_DONE;
  }
  return commit(ok);
}

Expected<void> SweepStore::commit(bool ok) {
  if (ok && sqlite3_exec(database_.get(), "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  const Error failure = error("cannot write");
  sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  return failure;
}

Expected<void> SweepStore::keep_finished(std::uint64_t sweep, const std::vector<std::string>& parts) {
  if (sqlite3_exec(database_.get(), "BEGIN; DELETE FROM finished", nullptr, nullptr, nullptr) != SQLITE_OK)
    return error("cannot write");
  Statement insert(database_.get(), "INSERT INTO finished (sweep, part, bytes) VALUES (?, ?, ?)");
  bool ok = static_cast<bool>(insert);
  for (std::size_t i = 0; ok && i < parts.size(); ++i) {
    insert.reset();
    insert.bind(1, static_cast<std::int64_t>(sweep));
    insert.bind(2, static_cast<std::int64_t>(i));
    insert.bind_bytes(3, parts[i]);
    ok = insert.step() == SQLITE_DONE;
  }
  return commit(ok);
}

Expected<std::optional<std::vector<std::string>>> SweepStore::finished(std::uint64_t sweep) const {
  Statement select(database_.get(), "SELECT bytes FROM finished WHERE sweep = ? ORDER BY part");
  if (!select) return error("cannot read");
  select.bind(1, static_cast<std::int64_t>(sweep));
  std::vector<std::string> parts;
  int code = select.step();
  for (; code == SQLITE_ROW; code = select.step()) parts.push_back(select.bytes(0));
  if (code != SQLITE_DONE) return error("cannot read");
  if (parts.empty()) return std::optional<std::vector<std::string>>();
  return std::optional(std::move(parts));
}

}  // namespace dllm::npu
