#include "app/cli/written_files.h"

#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "base/try.h"

namespace dllm::app {

Expected<void> check_result(const std::string& path, const OutputOptions& options) {
  if (path == "-") return {};
  auto checked = check_output(path, options);
  if (checked || !(path.starts_with("/dev/") || path.starts_with("/proc/"))) return checked;
  Error error = std::move(checked).error();
  error.hint = "- is standard output";
  return error;
}

Expected<void> check_written(const Flags& flags) {
  const std::vector<std::string> targets = flags.paths(/*written=*/true);
  if (targets.empty()) return {};
  if (std::ranges::count(targets, "-") > 1)
    return Error{ErrorCode::kUsage, "two results cannot both go to standard output", "-", "name a file for one"};
  const OutputOptions sources = made_of(flags.paths(/*written=*/false));
  for (const std::string& target : targets) DLLM_CHECK_OK(check_result(target, sources));
  return {};
}

Expected<void> write_result(Session& session, const std::string& path, std::string_view content,
                            OutputOptions options) {
  if (path != "-") {
    options.sources.insert(options.sources.end(), session.sources.begin(), session.sources.end());
    return write_file(path, content, std::move(options));
  }
  session.results->write(content.data(), static_cast<std::streamsize>(content.size())).flush();
  if (*session.results) return {};
  return Error{ErrorCode::kIo, "cannot write", "standard output", "is the disk full, or the reader gone?"};
}

Expected<void> write_result(Session& session, const std::string& path, std::span<const std::byte> content,
                            OutputOptions options) {
  return write_result(session, path, std::string_view(reinterpret_cast<const char*>(content.data()), content.size()),
                      std::move(options));
}

}  // namespace dllm::app
