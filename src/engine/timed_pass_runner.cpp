#include "engine/second_path_runner.h"
#include "npu_backend/timed/timed_backend.h"

namespace dllm {

std::future<Expected<std::vector<Scores>>> TimedPassRunner::start(SequenceStep step) {
  return backend_.launch(std::move(step));
}

void TimedPassRunner::wait_for(const KvCache& cache) { backend_.wait_for(cache); }

void TimedPassRunner::drop(const KvCache& cache) { backend_.drop(cache); }

}  // namespace dllm
