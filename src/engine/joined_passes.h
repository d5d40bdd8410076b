#pragma once

#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "decode/loop/second_path.h"

namespace dllm {

/// A backend whose second path has no processor of its own: a pass that is started waits for the next one, and runs in
/// its batch. Results are those of a pass alone, because a batch has the bits of its sequences one by one. For backends
/// of which only one pass runs at a time, and whose caches have copy_rows(). Thread-safe.
class JoinedPasses final : public Backend {
 public:
  explicit JoinedPasses(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  const ModelDesc& desc() const override { return backend_->desc(); }
  bool runs_shadows() const override { return backend_->runs_shadows(); }
  bool runs_branches() const override { return backend_->runs_branches(); }
  bool runs_lead() const override { return backend_->runs_lead(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

  /// Must not outlive this backend.
  std::unique_ptr<PassRunner> second_path();

 private:
  class Runner;
  struct Waiting {
    SequenceStep step;
    std::promise<Expected<std::vector<Scores>>> promise;
  };
  std::deque<Waiting> take_waiting();
  Expected<std::vector<Scores>> run(std::span<const SequenceStep> batch, std::deque<Waiting> waiting);
  void run_for(const KvCache& cache);

  std::unique_ptr<Backend> backend_;
  std::mutex passes_;  ///< one at a time
  std::mutex mutex_;   ///< of waiting_
  std::deque<Waiting> waiting_;
};

}  // namespace dllm
