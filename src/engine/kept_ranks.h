#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "dllm/ranks.h"
#include "engine/turns.h"
#include "ranks/rank_groups.h"

namespace dllm {

/// The ranks of a scheduler's model, which it keeps together; none, if the model runs on one.
class KeptRanks {
 public:
  /// `ranks`: null: none; borrowed. `turns`: of the model.
  KeptRanks(RankGroups* ranks, Turns& turns) : ranks_(ranks), turns_(turns) {}
  ~KeptRanks() {
    if (ranks_ != nullptr) ranks_->keep({});
  }
  KeptRanks(const KeptRanks&) = delete;
  KeptRanks& operator=(const KeptRanks&) = delete;

  /// `tell`: may be null. `wake`: a rank waits for renew().
  void keep(std::function<void(const RanksEvent&)> tell, std::function<void()> wake) {
    if (ranks_ == nullptr) return;
    ranks_->keep([this, told = std::move(tell), woken = std::move(wake)](const RanksEvent& event) {
      if (event.kind == RanksEvent::Kind::kReturned) {
        returned_ = true;
        woken();
      }
      if (told) told(event);
    });
  }
  std::optional<RanksStatus> status() const {
    return ranks_ == nullptr ? std::nullopt : std::optional(ranks_->status());
  }
  /// The group that computes now, or will next. What one has cached is of no use in another.
  std::uint64_t group() const { return ranks_ == nullptr ? 0 : ranks_->status().groups; }
  /// Takes ranks that have returned, when nothing runs; false of `go_on` ends the attempt.
  void renew(const std::function<bool()>& go_on) {
    if (!returned_.exchange(false)) return;
    if (const auto turn = turns_.take()) ranks_->renew(go_on);
  }

 private:
  RankGroups* ranks_;
  Turns& turns_;
  std::atomic<bool> returned_{false};
};

}  // namespace dllm
