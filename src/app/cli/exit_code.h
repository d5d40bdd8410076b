#pragma once

#include "dllm/error.h"

namespace dllm::app {

/// The process's exit codes; documented in the help of `dllm`.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,  ///< anything without its own code
  kExitUsage = 2,
  kExitInvalidFile = 3,  ///< a model or another file is missing, damaged, of an unknown kind or cannot be written
  kExitResource = 4,     ///< out of memory or another bounded resource
  kExitMismatch = 5,
  kExitTimeout = 124,
  kExitInterrupted = 130,
};

inline ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return kExitUsage;
    case ErrorCode::kInvalidFile:
    case ErrorCode::kUnsupported:
    case ErrorCode::kIo:
      return kExitInvalidFile;
    case ErrorCode::kResource:
      return kExitResource;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    case ErrorCode::kMismatch:
      return kExitMismatch;
  }
  return kExitFailure;
}

}  // namespace dllm::app
