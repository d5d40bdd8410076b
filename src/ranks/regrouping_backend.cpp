#include "ranks/regrouping_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <utility>

#include "backend/failed_pass.h"
#include "base/try.h"

namespace dllm {
namespace {

/// For people who know nothing of the command: what and where.
std::string reason(const Error& error) { return error.where.empty() ? error.what : error.where + ": " + error.what; }

}  // namespace

RegroupingBackend::RegroupingBackend(Group first, Maker maker)
    : desc_(first.backend->desc()),
      shadows_(first.backend->runs_shadows()),
      branches_(first.backend->runs_branches()),
      lead_(first.backend->runs_lead()),
      maker_(std::move(maker)),
      current_(std::move(first.backend)),
      facts_(first.facts) {
  status_.ranks = first.ranks;
  status_.wanted = maker_.wanted;
  status_.groups = 1;
}

RegroupingBackend::~RegroupingBackend() { watch_.reset(); }

RanksStatus RegroupingBackend::status() const {
  const std::lock_guard lock(mutex_);
  RanksStatus now = status_;
  if (now.ranks == 0) {
    const double left = std::chrono::duration<double>(next_try_ - Clock::now()).count();
    now.retry_s = std::max(1, static_cast<std::int32_t>(std::ceil(left)));
  }
  return now;
}

void RegroupingBackend::tell(RanksEvent::Kind kind) {
  if (tell_) tell_({kind, status()});
}

void RegroupingBackend::keep(std::function<void(const RanksEvent&)> tell) {
  if (!maker_.make) return;
  watch_.reset();
  tell_ = std::move(tell);
  {
    const std::lock_guard lock(mutex_);
    kept_ = tell_ != nullptr;
  }
  if (!tell_) return;
  watch_.reset(new std::jthread([this](const std::stop_token& stop) { watch(stop); }));
}

/// In the thread that computes, so that no pass runs meanwhile.
void RegroupingBackend::take_next() {
  const std::lock_guard lock(mutex_);
  if (!next_) return;
  current_ = std::move(next_->backend);
  facts_ = next_->facts;
  next_.reset();
}

/// What became of an attempt. Whether there is a group.
bool RegroupingBackend::offer_next(Expected<Group> made) {
  {
    const std::lock_guard lock(mutex_);
    renewing_ = false;
    if (!made) {
      status_.ranks = 0;
      status_.failure = reason(made.error());
      return false;
    }
    next_ = *std::move(made);
    status_.ranks = next_->ranks;
    status_.failure.clear();
    ++status_.groups;
  }
  tell(RanksEvent::Kind::kMade);
  return true;
}

/// The group is gone: counts it, and has another looked for.
void RegroupingBackend::lose(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    status_.failure = why;
    status_.ranks = 0;
    ++status_.lost;
    returned_ = renewing_ = false;
    lost_at_ = Clock::now();
    next_try_ = lost_at_ + std::chrono::milliseconds(static_cast<int>(1e3 * maker_.first_wait_s));
  }
  wake_.notify_all();
  tell(RanksEvent::Kind::kLost);
}

Error RegroupingBackend::no_group() const {
  const RanksStatus now = status();
  return {ErrorCode::kResource, fmt::format("{}; looking for the ranks again in {} s", now.failure, now.retry_s),
          "ranks", "try again later"};
}

/// What a call's failure is to who asked. If the group is lost, its end begins.
Error RegroupingBackend::error_of(Error failure) {
  bool kept = false;
  {
    const std::lock_guard lock(mutex_);
    kept = kept_;
  }
  if (!kept || !current_->lost()) return failure;
  // The workers' connections and this rank's weights end here, before there are others.
  current_.reset();
  const std::string why = reason(failure);
  lose(why);
  return {ErrorCode::kResource, why, "ranks", "try again later"};
}

Expected<std::unique_ptr<KvCache>> RegroupingBackend::make_cache(Position capacity) {
  take_next();
  if (!current_) return no_group();
  auto made = current_->make_cache(capacity);
  if (!made) return error_of(std::move(made).error());
  return made;
}

Expected<std::vector<Scores>> RegroupingBackend::forward(std::span<const SequenceStep> batch) {
  take_next();
  if (!current_) {
    invalidate_rows(batch);
    return no_group();
  }
  auto scores = current_->forward(batch);
  if (!scores) return error_of(std::move(scores).error());
  return scores;
}

Expected<std::vector<RankTimes>> RegroupingBackend::times() {
  take_next();
  if (!current_) return no_group();
  return current_->times();
}

void RegroupingBackend::renew(const std::function<bool()>& go_on) {
  take_next();  // ranks may also have returned to a group of which nothing was asked
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(returned_, false) || !current_) return;
    renewing_ = true;
  }
  current_.reset();  // the workers leave it, and listen
  const auto make = [&](Absent absent) -> Expected<Group> {
    try {
      return maker_.make(absent, go_on);
    } catch (const std::bad_alloc&) {  // else renewing_ would stay, and nobody look for ranks
      return Error{ErrorCode::kResource, "out of memory", "", ""};
    }
  };
  auto made = make(Absent::kNone);
  if (!made) made = make(Absent::kUnwilling);
  if (!made) return lose(reason(made.error()));
  (void)offer_next(std::move(made));
  take_next();
}

void RegroupingBackend::wait(const std::stop_token& stop, double seconds) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
}

/// One attempt. Whether there is a group.
bool RegroupingBackend::make_next(const std::stop_token& stop, Clock::time_point since) {
  const double lost_for = std::chrono::duration<double>(Clock::now() - since).count();
  const Absent absent = lost_for < maker_.whole_for_s  ? Absent::kNone
                        : lost_for < maker_.busy_for_s ? Absent::kSilent
                                                       : Absent::kUnwilling;
  return offer_next(maker_.make(absent, [&stop] { return !stop.stop_requested(); }));
}

/// Looks for ranks while there is no group, and for those that a group does without.
void RegroupingBackend::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      look(stop);
    } catch (const std::bad_alloc&) {
      wait(stop, maker_.first_wait_s);  // status() promises another look, and memory may be free by then
    }
  }
}

void RegroupingBackend::look(const std::stop_token& stop) {
  const auto group_lost = [this] { return status_.ranks == 0 && !next_ && !renewing_; };
  bool lost = false, looks = false;
  std::uint64_t group = 0;
  Clock::time_point since;
  {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, std::chrono::duration<double>(maker_.look_again_s), group_lost);
    lost = group_lost();
    looks = !lost && !returned_ && !renewing_ && status_.ranks < status_.wanted;
    group = status_.groups;
    since = lost_at_;
  }
  for (double pause = maker_.first_wait_s; lost && !stop.stop_requested();
       pause = std::min(2 * pause, maker_.longest_wait_s)) {
    {
      const std::lock_guard lock(mutex_);
      next_try_ = Clock::now() + std::chrono::milliseconds(static_cast<int>(1e3 * pause));
    }
    wait(stop, pause);
    if (!stop.stop_requested()) lost = !make_next(stop, since);
  }
  const auto go_on = [&stop] { return !stop.stop_requested(); };
  if (!looks || !go_on() || !maker_.any_returned(go_on)) return;
  {
    const std::lock_guard lock(mutex_);
    // Asking took its time: the answer is of a group that may be lost by now.
    if (status_.groups != group || group_lost() || renewing_) return;
    returned_ = true;
  }
  tell(RanksEvent::Kind::kReturned);
}

}  // namespace dllm
