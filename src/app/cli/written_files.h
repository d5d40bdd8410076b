#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "app/cli/flags.h"
#include "app/cli/verb.h"
#include "base/output_file.h"
#include "dllm/error.h"

/// The files that a verb writes when its work is done (Flag::written).
namespace dllm::app {

/// Whether the named files can be written, before hours of work: errors of check_output(), and kUsage if two results
/// would go to standard output.
Expected<void> check_written(const Flags& flags);

/// check_output() for one of them; - is standard output and always good.
Expected<void> check_result(const std::string& path, const OutputOptions& options = {});

/// Writes a result to `path`, or for - to standard output; the verb's report then goes to standard error. The files of
/// the verb's flags are sources, besides those of `options`. Errors: as write_file().
Expected<void> write_result(Session& session, const std::string& path, std::string_view content,
                            OutputOptions options = {});
Expected<void> write_result(Session& session, const std::string& path, std::span<const std::byte> content,
                            OutputOptions options = {});

}  // namespace dllm::app
