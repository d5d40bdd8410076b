#include "serve/lane.h"

#include <optional>
#include <stop_token>

namespace dllm::serve {

Lane::Lane(Limits limits) : limits_(limits) {
  for (int i = 0; i < limits.threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

bool Lane::add(const std::string& client, std::size_t bytes, std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = clients_.try_emplace(client);
  Waiting& waiting = found->second;
  if (!waiting.jobs.empty() && (waiting.jobs.size() >= limits_.jobs || waiting.bytes + bytes > limits_.bytes))
    return false;
  if (fresh) turns_.push_back(client);
  waiting.jobs.emplace_back(bytes, std::move(job));
  waiting.bytes += bytes;
  wake_.notify_one();
  return true;
}

/// The first job of the client whose turn it is.
std::function<void()> Lane::take() {
  const auto found = clients_.find(turns_.front());
  turns_.pop_front();
  auto [bytes, job] = std::move(found->second.jobs.front());
  found->second.jobs.pop_front();
  found->second.bytes -= bytes;
  if (found->second.jobs.empty())
    clients_.erase(found);
  else
    turns_.push_back(found->first);
  return std::move(job);
}

void Lane::work(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!wake_.wait(lock, stop, [this] { return !turns_.empty(); }) || stop.stop_requested()) return;
    const auto job = take();
    lock.unlock();
    job();
  }
}

}  // namespace dllm::serve
