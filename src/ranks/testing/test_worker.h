#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "ranks/tcp.h"

namespace dllm::test {

/// A worker on a thread: accepts one offer, then calls work(its communicator).
class TestWorker {
 public:
  template <class Work>
  TestWorker(const std::string& key, const Work& work) : listener_(*RankListener::open("127.0.0.1:0", {key})) {
    thread_ = std::thread([this, work] {
      for (int i = 0; i < 1200 && !stop_; ++i) {  // a minute
        RankListener::Offer offer;
        const auto came = listener_->wait(50, offer);
        ASSERT_TRUE(came) << came.error().message();
        if (!*came) continue;
        offer_.set_value(std::move(offer));
        const auto ranks = listener_->accept();
        ASSERT_TRUE(ranks) << ranks.error().message();
        work(**ranks);
        return;
      }
    });
  }
  ~TestWorker() {
    stop_ = true;
    thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(listener_->port()); }

  /// What came; waits for it. To be called once.
  RankListener::Offer offer() { return offer_.get_future().get(); }

 private:
  std::promise<RankListener::Offer> offer_;
  std::unique_ptr<RankListener> listener_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace dllm::test
