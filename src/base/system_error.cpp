#include "base/system_error.h"

#include <cerrno>
#include <system_error>

namespace dllm {
namespace {

std::string hint_of(int code) {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      return "check the path";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions";
    case ENOSPC:
    case EDQUOT:
      return "free some space on this file system";
    case EFBIG:
      return "the file would exceed a limit; see ulimit -f";
    case EMFILE:
      return "too many open files; see ulimit -n";
    default:
      return "";
  }
}

}  // namespace

Error system_error(std::string_view action, int code, const std::string& where) {
  const bool resource = code == ENOMEM || code == EMFILE || code == ENFILE || code == EAGAIN;
  return {resource ? ErrorCode::kResource : ErrorCode::kIo,
          std::string(action) + ": " + std::generic_category().message(code), where, hint_of(code)};
}

}  // namespace dllm
