#pragma once

#include <cstdint>
#include <future>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "decode/canvas.h"
#include "dllm/error.h"

namespace dllm {

/// Runs single forward passes concurrently with others.
class PassRunner {
 public:
  virtual ~PassRunner() = default;
  /// Starts a pass. Until the future is ready, nothing else may use the step's cache. Scores as for Backend::forward().
  virtual std::future<Expected<std::vector<Scores>>> start(SequenceStep step) = 0;
  /// Called before the future of the pass that uses this cache is waited for, and before it is given up. For runners
  /// whose passes end when a simulated clock says so.
  virtual void wait_for(const KvCache& cache) { (void)cache; }
  virtual void drop(const KvCache& cache) { (void)cache; }
  /// Copies K/V rows that `from` holds, with the tokens they were computed from, as a pass that writes them would. Both
  /// caches belong to this runner's kind of backend and have the same capacity.
  virtual void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> rows) = 0;
};

struct SecondPathConfig {
  PassRunner* runner = nullptr;  ///< borrowed; nullptr: there is no second path
  KvCache* cache = nullptr;      ///< borrowed; the side buffer, of the sequence's capacity
  std::int32_t delay = 1;        ///< steps from the launch to the boundary at which results are merged
  bool when_ready = false;       ///< merge at the first boundary at which results are ready instead
};

/// The second path of progressive revision (llada.cpp, arXiv 2606.13740): a refresh of a few rows runs concurrently
/// with the dense passes, on its own K/V, and is merged between two steps.
///
/// A launch copies the sequence's K/V as of the last pass (only rows written since the previous copy), so no other
/// thread writes what the pass reads: its result depends only on when it was launched, not on speed. With a fixed delay
/// the whole generation is therefore the same for any number of threads on either path. Only one pass runs at a time;
/// until it ends, nothing is launched.
class SecondPath {
 public:
  explicit SecondPath(const SecondPathConfig& config) : config_(config) {}
  ~SecondPath();
  SecondPath(const SecondPath&) = delete;
  SecondPath& operator=(const SecondPath&) = delete;

  /// Whether there is a second path and it is idle.
  bool idle() const { return config_.runner != nullptr && !running_.valid(); }
  bool busy() const { return running_.valid(); }
  std::int32_t delay() const { return config_.when_ready ? 1 : config_.delay; }

  /// `step` without a cache; `wanted[i]` is the position that scored row of_row[i] predicts. `now`: steps made so far.
  struct Launch {
    SequenceStep step;
    std::vector<Position> wanted;
    std::vector<std::int32_t> of_row;
  };
  void launch(Launch launch, const Canvas& canvas, const KvCache& main, std::int64_t now);

  /// Whether the pass is to be merged at the boundary before step `now`.
  bool due(std::int64_t now) const;

  struct Result {
    Launch launch;
    Scores scores;
    std::vector<bool> current;  ///< by wanted: its token is still that of the launch
  };
  /// Waits for the pass. Copies to `main` those of its K/V rows that show the canvas's token and that no edit or pass
  /// has replaced since. Errors: those of the pass.
  Expected<Result> collect(const Canvas& canvas, KvCache& main);

 private:
  void snapshot(const KvCache& main);

  SecondPathConfig config_;
  std::future<Expected<std::vector<Scores>>> running_;
  Launch launched_;
  std::int64_t launched_at_ = 0;
  std::uint32_t copied_ = 0;           ///< epoch of the sequence's cache at the last copy
  std::vector<std::uint32_t> epochs_;  ///< of the launched rows in the sequence's cache
  std::vector<TokenId> tokens_;        ///< of the whole canvas at the launch
};

}  // namespace dllm
