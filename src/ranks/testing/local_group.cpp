#include "ranks/testing/local_group.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "base/try.h"

namespace dllm::test {
namespace {

/// Where the threads meet: before they read what the others brought, and after it, when bytes may be reused.
class Meeting {
 public:
  explicit Meeting(int ranks) : brought_(static_cast<std::size_t>(ranks)) {}

  int size() const { return static_cast<int>(brought_.size()); }

  /// take(bytes by rank) is called when all ranks are here; their bytes are valid during the call.
  template <class Take>
  Expected<void> meet(int rank, std::span<const std::byte> own, const Take& take) {
    std::unique_lock lock(mutex_);
    brought_[static_cast<std::size_t>(rank)] = own;
    if (auto failed = arrive(lock, /*leaves=*/true)) return *std::move(failed);
    lock.unlock();
    Expected<void> taken = take(brought_);
    lock.lock();
    if (!taken && !failed_) fail(taken.error());
    auto failed = arrive(lock, /*leaves=*/false);
    return failed ? Expected<void>(*std::move(failed)) : Expected<void>();
  }

  bool failed() {
    const std::lock_guard lock(mutex_);
    return failed_.has_value();
  }
  void abort(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!failed_) fail({ErrorCode::kCancelled, why, "ranks", ""});
  }

 private:
  /// The failure of this meeting. One that comes after all have met, before all have woken, is the next meeting's.
  /// `leaves`: at a failure, without waiting for the others. Not while they may read what this rank brought; then all
  /// are on their way here.
  std::optional<Error> arrive(std::unique_lock<std::mutex>& lock, bool leaves) {
    if (++here_ == brought_.size()) {
      here_ = 0;
      ++generation_;
      met_ = failed_;
      changed_.notify_all();
      return met_;
    }
    const std::uint64_t now = generation_;
    changed_.wait(lock, [&] { return (leaves && failed_) || generation_ != now; });
    return generation_ != now ? met_ : failed_;
  }
  void fail(Error error) {
    failed_ = std::move(error);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::span<const std::byte>> brought_;
  std::size_t here_ = 0;
  std::uint64_t generation_ = 0;
  std::optional<Error> failed_, met_;  ///< met_: when all were here last
};

class LocalRank final : public Communicator {
 public:
  LocalRank(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }

  Expected<void> all_gather(std::span<const std::byte> own, std::span<const std::size_t> sizes,
                            std::span<std::byte> all) override {
    return meeting_->meet(rank_, own, [&](const auto& brought) -> Expected<void> {
      std::size_t at = 0;
      for (std::size_t r = 0; r < brought.size(); ++r) {
        if (brought[r].size() != sizes[r] || at + sizes[r] > all.size())
          return Error{ErrorCode::kIo,
                       fmt::format("rank {} sent {} bytes, rank {} expected {}", r, brought[r].size(), rank_, sizes[r]),
                       "ranks", "all ranks must make the same calls"};
        if (sizes[r] > 0) std::memcpy(all.data() + at, brought[r].data(), sizes[r]);
        at += sizes[r];
      }
      return {};
    });
  }

  Expected<std::vector<std::byte>> broadcast(std::vector<std::byte> message) override {
    std::vector<std::byte> got;
    if (auto met = meeting_->meet(rank_, message,
                                  [&](const auto& brought) -> Expected<void> {
                                    got.assign(brought[0].begin(), brought[0].end());
                                    return {};
                                  });
        !met)
      return std::move(met).error();
    return got;
  }

  Expected<std::vector<std::byte>> scatter(std::vector<std::vector<std::byte>> parts, std::uint64_t most) override {
    std::vector<std::byte> bytes;
    for (const auto& part : parts) {
      const std::uint64_t size = part.size();
      const auto* const at = reinterpret_cast<const std::byte*>(&size);
      bytes.insert(bytes.end(), at, at + sizeof size);
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    DLLM_TRY(bytes, broadcast(std::move(bytes)));
    std::uint64_t size = 0;
    std::size_t at = 0;
    for (int r = 0; at + sizeof size <= bytes.size(); ++r, at += static_cast<std::size_t>(size)) {
      std::memcpy(&size, bytes.data() + at, sizeof size);
      at += sizeof size;
      if (size > bytes.size() - at) break;
      if (r == rank_ && size <= most)
        return std::vector<std::byte>(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
    }
    return Error{ErrorCode::kIo, "rank 0 has nothing of that size for this rank", "ranks", ""};
  }

  bool lost() const override { return meeting_->failed(); }
  void abort(const std::string& why) override { meeting_->abort(why); }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> local_group(int ranks) {
  const auto meeting = std::make_shared<Meeting>(ranks);
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < ranks; ++rank) group.push_back(std::make_unique<LocalRank>(meeting, rank));
  return group;
}

}  // namespace dllm::test
