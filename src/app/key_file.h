#pragma once

#include <string>
#include <vector>

#include "dllm/error.h"

namespace dllm::app {

struct KeyFile {
  std::vector<std::string> keys;
  std::vector<std::string> warnings;
};

/// Reads API keys, one a line. Blanks around a key, empty lines and lines that begin with # do not count: a blank at
/// the end of a line is not seen, and no client can send one. Warns if others can read the file. Errors: kUsage (no
/// key, a blank or a control character inside one, a file that others can write), kIo.
Expected<KeyFile> read_key_file(const std::string& path);

}  // namespace dllm::app
