#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/forks.h"
#include "ranks/rank_groups.h"
#include "ranks/ranked_backend.h"
#include "ranks/tcp.h"

namespace dllm {

/// A backend over groups of ranks: when one is lost, and keep() was called, another one takes its place. What ran on it
/// ends with an error; caches of it are of no use in the next one (RankedBackend::forward()).
class RegroupingBackend final : public Backend, public RankGroups {
 public:
  struct Group {
    std::unique_ptr<RankedBackend> backend;
    std::int32_t ranks = 0;
    GroupFacts facts{};
    std::string isa{}, arithmetic{};  ///< of this rank, for people
    std::int32_t threads = 0;
  };
  /// How groups are made, and how long is waited.
  struct Maker {
    /// Makes a group; false of `go_on` ends it. Called by one thread at a time.
    std::function<Expected<Group>(Absent absent, const std::function<bool()>& go_on)> make{};
    /// Whether some worker listens that the group in use does without; false of `go_on` ends it. May take seconds.
    std::function<bool(const std::function<bool()>& go_on)> any_returned{};
    std::int32_t wanted = 0;
    double first_wait_s = 0.25, longest_wait_s = 8;  ///< between attempts, each twice as long as the one before
    double whole_for_s = 3;                          ///< so long after a loss, all must take part
    double busy_for_s = 30;                          ///< so long after a loss, busy ones are waited for
    double look_again_s = 5;                         ///< for those that a group does without
  };

  RegroupingBackend(Group first, Maker maker);
  ~RegroupingBackend() override;

  const ModelDesc& desc() const override { return desc_; }
  bool runs_shadows() const override { return shadows_; }
  bool runs_branches() const override { return branches_; }
  bool runs_lead() const override { return lead_; }
  /// Errors: those of RankedBackend; kResource (there is no group now).
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;

  RanksStatus status() const override;
  GroupFacts facts() const override { return facts_; }
  Expected<std::vector<RankTimes>> times() override;
  void keep(std::function<void(const RanksEvent&)> tell) override;
  void renew(const std::function<bool()>& go_on) override;

 private:
  using Clock = std::chrono::steady_clock;

  void take_next();
  bool offer_next(Expected<Group> made);
  Error error_of(Error failure);
  Error no_group() const;
  void tell(RanksEvent::Kind kind);
  void lose(const std::string& why);
  void watch(const std::stop_token& stop);
  void look(const std::stop_token& stop);
  bool make_next(const std::stop_token& stop, Clock::time_point since);
  void wait(const std::stop_token& stop, double seconds);

  const ModelDesc desc_;
  const bool shadows_, branches_, lead_;
  Maker maker_;
  std::unique_ptr<RankedBackend> current_;  ///< by the thread whose turn it is
  GroupFacts facts_;                        ///< likewise

  mutable std::mutex mutex_;  ///< of this paragraph
  std::condition_variable_any wake_;
  RanksStatus status_;
  std::optional<Group> next_;                 ///< made, and not yet taken
  Clock::time_point next_try_{}, lost_at_{};  ///< without a group
  bool kept_ = false, returned_ = false, renewing_ = false;

  std::function<void(const RanksEvent&)> tell_;
  OfThisProcess<std::jthread> watch_;  ///< last: it uses the others
};

}  // namespace dllm
