#include "app/key_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "base/input_file.h"
#include "base/try.h"

namespace dllm::app {
namespace {

/// Not of pipes and terminals, whose content is nobody else's.
Expected<void> check_mode(const std::string& path, KeyFile& file) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const std::string command = fmt::format("chmod 600 {}", path);
  const std::string mode = fmt::format("its mode is {:04o}", status.st_mode & 07777U);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{ErrorCode::kUsage, "others could add keys to the file: " + mode, path, command};
  if ((status.st_mode & S_IROTH) != 0)
    file.warnings.push_back(
        fmt::format("{}: everyone on this machine can read the keys: {} ({})", path, mode, command));
  return {};
}

}  // namespace

Expected<KeyFile> read_key_file(const std::string& path) {
  KeyFile file;
  DLLM_CHECK_OK(check_mode(path, file));
  DLLM_TRY(const std::string text, read_input(path, 1U << 20U));
  constexpr std::string_view kBlanks = " \t\r", kByteOrderMark = "\xef\xbb\xbf";
  int line = 0;
  // Editors on Windows begin a file with a mark that nobody sees, and no client would send.
  for (std::size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view key = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++line;
    key.remove_prefix(std::min(key.find_first_not_of(kBlanks), key.size()));
    key = key.substr(0, key.find_last_not_of(kBlanks) + 1);
    if (key.empty() || key.front() == '#') continue;
    if (std::ranges::any_of(key, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; }))
      return Error{ErrorCode::kUsage, "a key holds no blanks or control characters",
                   fmt::format("{}, line {}", path, line), "one key a line; comments have lines of their own, with #"};
    file.keys.emplace_back(key);
  }
  if (file.keys.empty()) return Error{ErrorCode::kUsage, "the file holds no key", path, "one key a line"};
  return file;
}

}  // namespace dllm::app
