#include "base/log.h"

#include <cstdio>

namespace dllm {

Log::Log()
    : sink_([](LogLevel level, const std::string& line) {
        if (level >= LogLevel::kWarning)
          std::fprintf(stderr, "%s: %s\n", level == LogLevel::kError ? "error" : "warning", line.c_str());
      }) {}

}  // namespace dllm
