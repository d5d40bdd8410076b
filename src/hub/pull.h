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
  std::uint64_t done = 0, total = 0;  ///< bytes of all files; of the one that is checked. total 0: not known
  std::uint64_t fetched = 0;          ///< bytes that came over the network
};

struct PullListener {
  std::function<bool(const PullProgress&)> progress{};  ///< false stops (kCancelled); what has come is kept
  Log log{};
};

struct Pulled {
  std::string path;  ///< the GGUF file, or the folder of a checkpoint
  std::string commit;
  std::uint64_t bytes = 0;    ///< of the model's files
  std::uint64_t fetched = 0;  ///< of them over the network now
  bool asked = true;          ///< false: answered from the cache alone
};

/// Brings a model from the hub into the cache, and says where it is. A download that breaks off goes on where it was,
/// at once and in later calls; a file is in place only when its digest is right. Without a connection, what an earlier
/// call brought is found, with a warning; with Config::offline, the hub is not asked at all. Errors: kUsage (no such
/// model, a choice of files is open, not in the cache), kIo, kMismatch (a digest is wrong: the file is removed),
/// kResource (the disk is too small), kCancelled, kUnsupported.
Expected<Pulled> pull(const Config& config, const PullRequest& request, const PullListener& listener);

}  // namespace dllm::hub
