#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dllm::serve {

/// Threads that do one kind of work for clients, each client in its turn: many long jobs of one delay only its own.
/// Jobs that have not begun are dropped with the lane.
class Lane {
 public:
  struct Limits {
    int threads = 1;
    std::size_t jobs = 64;                     ///< of one client, waiting
    std::size_t bytes = std::size_t{1} << 26;  ///< of these jobs, together; one job is accepted whatever its size
  };

  explicit Lane(Limits limits);
  /// False: the client has too much waiting.
  bool add(const std::string& client, std::size_t bytes, std::function<void()> job);

 private:
  struct Waiting {
    std::deque<std::pair<std::size_t, std::function<void()>>> jobs{};
    std::size_t bytes = 0;
  };

  void work(const std::stop_token& stop);
  std::function<void()> take();

  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::map<std::string, Waiting> clients_;  ///< those with waiting jobs
  std::deque<std::string> turns_;           ///< each of them once
  std::vector<std::jthread> threads_;       ///< last: they use the other members
};

}  // namespace dllm::serve
