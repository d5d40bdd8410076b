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

/// Which file a path leads to, whatever its names.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

/// Follows symbolic links. Errors: kIo.
Expected<FileIdentity> file_identity(const std::string& path);

struct OutputOptions {
  bool replace = true;                      ///< false: a target that exists when the file is complete is an error
  std::vector<FileIdentity> sources{};      ///< what the content is made of: neither replaced nor swept away
  std::function<Expected<void>()> check{};  ///< asked when all bytes are on the disk; its error leaves the target alone
};

/// The one way in which this program leaves a file: readers of the target see the old content or all of the new.
///
/// The bytes go to a temporary file of a name of its own in the target's directory, opened with O_EXCL and O_NOFOLLOW.
/// commit() writes file and directory through to the disk and renames. Whatever ends the write otherwise removes the
/// temporary: an error, the destructor, and a signal whose handler calls remove_temporaries(). Of a process that was
/// killed the temporary stays, but not its lock: the next writer in the directory finds it unlocked and removes it.
///
/// A target that is no regular file (a device, a pipe, a directory, a symbolic link) is refused, never replaced.
class OutputFile {
 public:
  /// Errors: kUsage (the target is no regular file, is a source, or exists and shall not be replaced), kIo.
  static Expected<OutputFile> create(const std::string& target, OutputOptions options = {});

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Errors: kIo.
  Expected<void> append(const void* data, std::size_t size);
  std::uint64_t size() const { return size_; }

  /// Makes the content the target's. To be called once, last. Errors: kIo, kUsage (a target has appeared that shall
  /// not be replaced), and whatever OutputOptions::check gives.
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

/// Options of a file that is made of others: `paths` of files, of which those that exist are its sources.
OutputOptions made_of(std::span<const std::string> paths);

/// The errors that create() would give now, for programs that work long before they write. Creates nothing.
Expected<void> check_output(const std::string& target, const OutputOptions& options = {});

/// A whole file at once. Errors: of OutputFile.
Expected<void> write_file(const std::string& target, std::string_view content, OutputOptions options = {});
Expected<void> write_file(const std::string& target, std::span<const std::byte> content, OutputOptions options = {});

/// Removes the temporaries of this process. Async-signal-safe; for handlers of signals that end the process, as no
/// write can be finished afterwards.
void remove_temporaries() noexcept;

}  // namespace dllm
