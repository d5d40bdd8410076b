#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "dllm/error.h"
#include "hub/config.h"

namespace dllm::hub {

struct PullRequest {
  ModelName name;
  std::string revision = "main";  ///< branch, tag or commit
  std::string file;               ///< this file of the repository; empty: see select_files()
};

enum class PullPhase { kDownload, kCheck };

struct PullProgress {
  PullPhase phase = PullPhase::kDownload;
  std::string_view file;
  std::uint64_t done = 0, total = 0;  ///< bytes of all files; or of the file being verified. total 0: unknown
  std::uint64_t fetched = 0;          ///< bytes received over the network
};

struct PullListener {
  std::function<bool(const PullProgress&)> progress{};  ///< false cancels (kCancelled); received bytes are kept
  /// Before bytes are downloaded: those of all files, and of the ones that are missing.
  std::function<void(const std::string& file, std::uint64_t total, std::uint64_t missing)> begin{};
  Log log{};
};

struct Pulled {
  std::string path;  ///< the GGUF file, or the folder of a checkpoint
  std::string commit;
  std::uint64_t bytes = 0;    ///< of the model's files
  std::uint64_t fetched = 0;  ///< of these, received over the network now
  bool asked = true;          ///< false: answered from the cache alone
};

/// Downloads a model from the hub into the cache, and returns its path. An interrupted download continues where it
/// stopped, at once and in later calls; a file appears only after its digest was verified. Without a connection, uses
/// the result of an earlier call, with a warning; with Config::offline, does not contact the hub at all. Errors: kUsage
/// (no such model, an ambiguous choice of files, not in the cache), kIo, kMismatch (a wrong digest: the file is
/// removed), kResource (disk full), kCancelled, kUnsupported.
Expected<Pulled> pull(const Config& config, const PullRequest& request, const PullListener& listener);

}  // namespace dllm::hub
