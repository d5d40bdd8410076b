// What ranks send each other over TCP, once they have met.
#include "ranks/tcp_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/try.h"

namespace dllm {
namespace {

/// The calls of both sides: an error stays.
class TcpRank : public Communicator {
 public:
  TcpRank(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  bool lost() const override { return failed_.has_value(); }

 protected:
  template <class Work>
  auto guarded(const Work& work) -> decltype(work()) {
    if (failed_) return *failed_;
    auto result = work();
    if (!result) fail(result.error());
    return result;
  }
  virtual void tell_others(const std::string& why) = 0;
  void fail(const Error& error) {
    if (failed_) return;
    failed_ = error;
    tell_others(error.message());
  }

 private:
  int rank_, ranks_;
  std::optional<Error> failed_;
};

/// A peer's bytes of a gather, with the time until they began to come and the rest.
Expected<std::vector<std::byte>> timed_message(Link& link, std::size_t most, RankTimes& times) {
  const auto start = std::chrono::steady_clock::now();
  double waited = 0;
  auto bytes = link.receive_message(most, &waited);
  times.wait_s += waited;
  times.move_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() - waited;
  if (bytes) times.bytes += bytes->size();
  return bytes;
}

/// Rank 0: gets what each worker sends, and sends all of it to each.
class LeaderRank final : public TcpRank {
 public:
  LeaderRank(std::unique_ptr<ZmqContext> context, std::vector<std::unique_ptr<Link>> links)
      : TcpRank(0, static_cast<int>(links.size()) + 1),
        context_(std::move(context)),
        links_(std::move(links)),
        waits_(links_.size() + 1, 0.0) {}

  std::vector<double> waits() const override { return waits_; }
  RankTimes times() const override { return times_; }
  std::string name(int rank) const override {
    return rank == 0 ? "rank 0" : links_[static_cast<std::size_t>(rank) - 1]->name();
  }

  Expected<void> all_gather(std::span<const std::byte> own, std::span<const std::size_t> sizes,
                            std::span<std::byte> all) override {
    return guarded([&]() -> Expected<void> {
      // At once, while theirs are under way: with two ranks, that is all.
      const auto begin = std::chrono::steady_clock::now();
      for (const auto& link : links_) DLLM_CHECK_OK(link->send_message(own));
      times_.move_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (!own.empty()) std::memcpy(all.data(), own.data(), own.size());
      std::size_t at = own.size();
      for (std::size_t r = 1; r < sizes.size(); ++r) {
        const double before = times_.wait_s + times_.move_s;
        DLLM_TRY(const std::vector<std::byte> bytes, timed_message(*links_[r - 1], sizes[r], times_));
        waits_[r] += times_.wait_s + times_.move_s - before;
        if (bytes.size() != sizes[r])
          return Error{ErrorCode::kIo, fmt::format("sent {} bytes instead of {}", bytes.size(), sizes[r]),
                       links_[r - 1]->name(), "start all ranks with the same version and model"};
        if (!bytes.empty()) std::memcpy(all.data() + at, bytes.data(), bytes.size());
        at += sizes[r];
      }
      const auto start = std::chrono::steady_clock::now();
      at = own.size();
      if (sizes.size() > 2)
        for (std::size_t r = 1; r < sizes.size(); at += sizes[r++])  // each gets what it has not got
          DLLM_CHECK_OK(links_[r - 1]->send_message(all.first(at).subspan(own.size()), all.subspan(at + sizes[r])));
      times_.move_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      ++times_.gathers;
      return {};
    });
  }

  Expected<std::vector<std::byte>> broadcast(std::vector<std::byte> message) override {
    return guarded([&]() -> Expected<std::vector<std::byte>> {
      for (const auto& link : links_) DLLM_CHECK_OK(link->send_message(message));
      return std::move(message);
    });
  }

  Expected<std::vector<std::byte>> scatter(std::vector<std::vector<std::byte>> parts, std::uint64_t most) override {
    (void)most;
    return guarded([&]() -> Expected<std::vector<std::byte>> {
      for (std::size_t i = 0; i < links_.size(); ++i) DLLM_CHECK_OK(links_[i]->send_message(parts[i + 1]));
      return std::vector<std::byte>();
    });
  }

  void abort(const std::string& why) override { fail({ErrorCode::kCancelled, why, "ranks", ""}); }

 private:
  void tell_others(const std::string& why) override {
    for (const auto& link : links_) (void)link->send(FrameKind::kAbort, std::as_bytes(std::span(why)));
  }

  std::unique_ptr<ZmqContext> context_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<double> waits_;
  RankTimes times_;
};

class WorkerRank final : public TcpRank {
 public:
  WorkerRank(int rank, int ranks, std::unique_ptr<Link> link) : TcpRank(rank, ranks), link_(std::move(link)) {}

  Expected<void> all_gather(std::span<const std::byte> own, std::span<const std::size_t> sizes,
                            std::span<std::byte> all) override {
    return guarded([&]() -> Expected<void> {
      DLLM_CHECK_OK(link_->send_message(own));
      DLLM_CHECK_OK(take(sizes[0], all));
      std::size_t before = 0;  // of those between rank 0 and this one
      for (int r = 1; r < rank(); ++r) before += sizes[static_cast<std::size_t>(r)];
      const std::span<std::byte> rest = all.subspan(sizes[0]);
      std::ranges::copy(own, rest.begin() + static_cast<std::ptrdiff_t>(before));
      ++times_.gathers;
      if (sizes.size() == 2) return {};
      others_.resize(rest.size() - own.size());
      DLLM_CHECK_OK(take(others_.size(), others_));
      std::copy_n(others_.begin(), before, rest.begin());
      std::copy(others_.begin() + static_cast<std::ptrdiff_t>(before), others_.end(),
                rest.begin() + static_cast<std::ptrdiff_t>(before + own.size()));
      return {};
    });
  }

  Expected<std::vector<std::byte>> broadcast(std::vector<std::byte>) override {
    return guarded([&] { return link_->receive_message(kMostMessageBytes); });
  }
  Expected<std::vector<std::byte>> scatter(std::vector<std::vector<std::byte>>, std::uint64_t most) override {
    return guarded([&] { return link_->receive_message(most); });
  }
  RankTimes times() const override { return times_; }

  void abort(const std::string& why) override { fail({ErrorCode::kCancelled, why, "ranks", ""}); }

 private:
  void tell_others(const std::string& why) override {
    (void)link_->send(FrameKind::kAbort, std::as_bytes(std::span(why)));
  }

  /// A message of so many bytes.
  Expected<void> take(std::size_t size, std::span<std::byte> to) {
    DLLM_TRY(const std::vector<std::byte> bytes, timed_message(*link_, size, times_));
    if (bytes.size() != size)
      return Error{ErrorCode::kIo, fmt::format("sent {} bytes instead of {}", bytes.size(), size), link_->name(),
                   "start all ranks with the same version and model"};
    std::ranges::copy(bytes, to.begin());
    return {};
  }

  std::unique_ptr<Link> link_;
  std::vector<std::byte> others_;
  RankTimes times_;
};

}  // namespace

std::shared_ptr<Communicator> leader_rank(std::unique_ptr<ZmqContext> context,
                                          std::vector<std::unique_ptr<Link>> links) {
  return std::make_shared<LeaderRank>(std::move(context), std::move(links));
}

std::unique_ptr<Communicator> worker_rank(int rank, int ranks, std::unique_ptr<Link> link) {
  return std::make_unique<WorkerRank>(rank, ranks, std::move(link));
}

}  // namespace dllm
