#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// Identifies the file that a path leads to, whatever its names.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

/// Follows symbolic links. Errors: kIo.
Expected<FileIdentity> file_identity(const std::string& path);

struct OutputOptions {
  bool replace = true;                      ///< false: a target that exists when the file is complete is an error
  std::vector<FileIdentity> sources{};      ///< files that the content is derived from: neither replaced nor swept
  std::function<Expected<void>()> check{};  ///< called when all bytes are on disk; if it fails, the target is unchanged
};

/// The only way in which this program writes files: readers of the target see the old content or all of the new.
///
/// The bytes go to a temporary file with its own name in the target's directory, opened with O_EXCL and O_NOFOLLOW.
/// commit() synchronises file and directory and renames. If the write ends in any other way, the temporary is removed:
/// by an error, the destructor, or a signal whose handler calls remove_temporaries(). If the process is killed, the
/// temporary stays, but not its lock: the next writer in the directory finds it unlocked and removes it.
///
/// A target that is not a regular file (a device, a pipe, a directory, a symbolic link) is refused, never replaced.
class OutputFile {
 public:
  /// Errors: kUsage (the target is not a regular file, is a source, or exists and must not be replaced), kIo.
  static Expected<OutputFile> create(const std::string& target, OutputOptions options = {});

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Errors: kIo.
  Expected<void> append(const void* data, std::size_t size);
  std::uint64_t size() const { return size_; }

  /// Moves the content to the target. Call it once, last. Errors: kIo, kUsage (a target has appeared that must not be
  /// replaced), and those of OutputOptions::check.
  Expected<void> commit();

 private:
  struct Temporary;
  OutputFile(std::string target, OutputOptions options, std::unique_ptr<Temporary> temporary);
  Expected<void> write(std::string_view bytes);
  Expected<void> flush();
  Expected<void> rename_to_target();

  std::string target_;
  OutputOptions options_;
  std::unique_ptr<Temporary> temporary_;
  std::string buffer_;
  std::uint64_t size_ = 0;
};

/// Options of a file derived from others: those of `paths` that exist are its sources.
OutputOptions made_of(std::span<const std::string> paths);

/// The errors that create() would give now, for programs that compute for long before they write. Creates nothing.
Expected<void> check_output(const std::string& target, const OutputOptions& options = {});

/// Writes a whole file at once. Errors: as OutputFile.
Expected<void> write_file(const std::string& target, std::string_view content, OutputOptions options = {});
Expected<void> write_file(const std::string& target, std::span<const std::byte> content, OutputOptions options = {});

/// Removes the temporaries of this process. Async-signal-safe; for handlers of signals that end the process, as no
/// write can be completed afterwards.
void remove_temporaries() noexcept;

}  // namespace dllm
