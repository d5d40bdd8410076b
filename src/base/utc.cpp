#include "base/utc.h"

#include <fmt/format.h>

#include <ctime>

namespace dllm {
namespace {

/// Without the zone.
std::string date_and_time(std::time_t seconds) {
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

std::string utc_text(std::int64_t seconds) { return date_and_time(static_cast<std::time_t>(seconds)) + "Z"; }

std::string utc_text(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time - whole).count();
  return fmt::format("{}.{:03}Z", date_and_time(std::chrono::system_clock::to_time_t(whole)), ms);
}

}  // namespace dllm
