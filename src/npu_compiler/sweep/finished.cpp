#include "npu_compiler/sweep/finished.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

constexpr std::size_t kPartRows = 65536;

/// A row in a part. Written and read on one machine, in its byte order.
struct PackedRow {
  SweepMetrics metrics;
  std::uint64_t error;
};
static_assert(sizeof(PackedRow) == (kSweepMetrics + 1) * sizeof(double));

/// The first part; the texts of the errors follow, each closed by a 0.
struct PackedHead {
  std::uint64_t rows = 0, errors = 0;
  std::int64_t duplicates = 0, invalid = 0;
  std::uint64_t sum = 0;  ///< of this part, with 0 here, and of the other parts
};

std::uint64_t sum_of_front(PackedHead head, std::string_view errors) {
  head.sum = 0;
  return Fnv1a().add(std::string_view(reinterpret_cast<const char*>(&head), sizeof head)).add(errors).value();
}

/// `sum` continued by a part of rows, eight bytes at a time: Fnv1a would take longer than the rest of reading.
std::uint64_t sum_of(const std::string& part, std::uint64_t sum) {
  for (std::size_t i = 0; i + 8 <= part.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, part.data() + i, sizeof word);
    sum = std::rotl(sum, 5) ^ (word * kGolden64);
  }
  return sum;
}

std::optional<PackedHead> read_head(const std::string& part, std::vector<std::string>& errors) {
  PackedHead head;
  if (part.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, part.data(), sizeof head);
  for (std::size_t at = sizeof head; at < part.size();) {
    const std::size_t end = part.find('\0', at);
    if (end == std::string::npos) return std::nullopt;
    errors.push_back(part.substr(at, end - at));
    at = end + 1;
  }
  if (errors.size() != head.errors) return std::nullopt;
  return head;
}

}  // namespace

Expected<void> keep_finished_sweep(const SweepSpec& spec, SweepStore& store, const SweepReport& report) {
  DLLM_TRY(const std::unique_ptr<SweepSpace> space, SweepSpace::create(spec));
  PackedHead head{report.rows.size(), report.errors.size(), report.duplicates, report.invalid};
  std::string errors;
  for (const std::string& error : report.errors) errors.append(error).push_back('\0');
  head.sum = sum_of_front(head, errors);
  std::vector<std::string> parts(1);
  for (std::size_t begin = 0; begin < report.rows.size(); begin += kPartRows) {
    std::string part;
    const std::size_t end = std::min(begin + kPartRows, report.rows.size());
    part.reserve((end - begin) * sizeof(PackedRow));
    for (std::size_t i = begin; i < end; ++i) {
      const PackedRow row{report.rows[i].metrics, report.rows[i].error};
      part.append(reinterpret_cast<const char*>(&row), sizeof row);
    }
    head.sum = sum_of(part, head.sum);
    parts.push_back(std::move(part));
  }
  parts.front().assign(reinterpret_cast<const char*>(&head), sizeof head).append(errors);
  return store.keep_finished(space->points_hash(), parts);
}

Expected<std::optional<SweepReport>> finished_sweep(const SweepSpec& spec, const SweepStore& store, int threads) {
  DLLM_TRY(const std::unique_ptr<SweepSpace> space, SweepSpace::create(spec));
  DLLM_TRY(const auto parts, store.finished(space->points_hash()));
  std::optional<SweepReport> none;
  if (!parts) return none;
  SweepReport report;
  const std::optional<PackedHead> head = read_head(parts->front(), report.errors);
  const auto count = to_size(spec.points());
  if (!head || head->errors == 0 || head->rows != count || parts->size() != 1 + (count + kPartRows - 1) / kPartRows)
    return none;
  std::uint64_t sum = sum_of_front(*head, std::string_view(parts->front()).substr(sizeof *head));
  for (std::size_t p = 1; p < parts->size(); ++p) {
    if ((*parts)[p].size() != std::min(kPartRows, count - (p - 1) * kPartRows) * sizeof(PackedRow)) return none;
    sum = sum_of((*parts)[p], sum);
  }
  if (sum != head->sum) return none;
  report.rows.resize(count);
  ThreadPool pool(threads);
  pool.parallel_ranges(static_cast<std::int64_t>(count), 8192, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = to_size(i);
      PackedRow packed;
      std::memcpy(&packed, (*parts)[1 + at / kPartRows].data() + at % kPartRows * sizeof packed, sizeof packed);
      SweepRow& row = report.rows[at];
      row.point = i;
      row.hash = space->hash(spec.indices(i));
      row.metrics = packed.metrics;
      row.error = static_cast<std::uint32_t>(std::min<std::uint64_t>(packed.error, head->errors - 1));
    }
  });
  report.duplicates = head->duplicates, report.invalid = head->invalid;
  report.reused = static_cast<std::int64_t>(count) - head->duplicates - head->invalid;
  finish_sweep(spec, report);
  return std::optional(std::move(report));
}

}  // namespace dllm::npu
