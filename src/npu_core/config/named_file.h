#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/config/embedded_files.h"

namespace dllm::npu {

/// Names of the shipped files of a folder ("devices/"), without folder and ".toml".
std::vector<std::string> shipped_names(EmbeddedFiles files, std::string_view folder);

struct NamedText {
  std::string text;
  std::string file;  ///< for messages
};

/// Resolves a user's name for a shipped file or a file of their own: a name from `shipped`, in `folder`, or a path.
/// `kind` is for messages: "device". Errors: kUsage (neither), with the nearest name or all names as the hint.
Expected<NamedText> read_named(EmbeddedFiles files, std::string_view folder, std::string_view kind,
                               const std::string& name_or_path, const std::vector<std::string>& shipped);

}  // namespace dllm::npu
