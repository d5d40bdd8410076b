#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "model/model.h"
#include "ranks/tcp.h"

namespace dllm {

/// The secret in a file: its first line that is not empty. No path: no key. Errors: kUsage (no line, a file that others
/// may read), kIo.
Expected<RanksKey> read_ranks_key(const std::string& path);

/// What a worker is started with.
struct RankWorker {
  std::string model_path{};  ///< of its own model; empty: none
  std::string listen;        ///< "host:port"
  std::string key_file;      ///< empty: none
  bool stay = false;         ///< for the next rank 0, when one has left
  std::int32_t threads = 0;  ///< as LoadOptions
  std::string isa;
  std::string cache;              ///< folder for weights that ranks 0 send; empty: none
  std::uint64_t cache_bytes = 0;  ///< of that folder, at most
  std::function<void(int port)> ready{};
  std::function<void(const std::string&)> tell{};  ///< what people may want to know
};

/// Serves ranks 0 with `model`, one after the other; null: with the weights that each sends. Errors: kUsage, and those
/// of the last rank 0 without `stay`.
Expected<void> run_rank_worker(std::shared_ptr<const Model> model, const RankWorker& worker, const Log& log);

}  // namespace dllm
