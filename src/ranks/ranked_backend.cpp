#include "ranks/ranked_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <variant>

#include "backend/failed_pass.h"
#include "base/forks.h"
#include "base/try.h"
#include "ranks/agree.h"
#include "ranks/command.h"

namespace dllm {

/// What caches need, which may outlive their backend.
class RankedBackend::Others {
 public:
  explicit Others(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)), forks_(fork_count()) {}

  Communicator& ranks() { return *ranks_; }
  bool forked() const { return fork_count() != forks_; }

  /// Sends what waits, then this message. By one thread at a time.
  Expected<void> send(std::vector<std::byte> message) {
    if (forked())
      return Error{ErrorCode::kUsage, "a child process cannot use the other ranks of its parent", "ranks",
                   "load the model after fork()"};
    std::vector<std::vector<std::byte>> changes;
    std::vector<std::uint32_t> ended;
    {
      const std::lock_guard lock(mutex_);
      changes.swap(changes_);
      ended = ended_;
      ended_.clear();  // which keeps its room
      caches_ -= ended.size();
    }
    for (std::vector<std::byte>& change : changes) DLLM_CHECK_OK(broadcast(std::move(change)));
    // No change is of a cache that has ended before, so that those that end go last.
    for (const std::uint32_t number : ended) DLLM_CHECK_OK(broadcast(encode_command(DropCache{number})));
    return broadcast(std::move(message));
  }
  /// Makes room for the end of one more cache, which must not fail.
  void expect_cache() {
    const std::lock_guard lock(mutex_);
    ended_.reserve(caches_ + 1);
    ++caches_;
  }
  /// What was done to caches here; waits for the next send().
  void changed(const Command& change) {
    std::vector<std::byte> message = encode_command(change);
    const std::lock_guard lock(mutex_);
    changes_.push_back(std::move(message));
  }
  void ended(std::uint32_t number) noexcept {
    const std::lock_guard lock(mutex_);
    ended_.push_back(number);
  }

 private:
  Expected<void> broadcast(std::vector<std::byte> message) {
    DLLM_TRY(const std::vector<std::byte> ignored, ranks_->broadcast(std::move(message)));
    return {};
  }

  std::shared_ptr<Communicator> ranks_;
  std::uint32_t forks_;
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> changes_;
  std::vector<std::uint32_t> ended_;
  std::size_t caches_ = 0;  ///< whose end has not been sent
};

/// Here with this rank's part of K and V; a number on the others.
class RankedBackend::Cache final : public KvCache {
 public:
  Cache(std::shared_ptr<Others> others, std::unique_ptr<KvCache> own, std::uint32_t number)
      : KvCache(own->capacity()), others_(std::move(others)), own_(std::move(own)), number_(number) {}
  ~Cache() override { others_->ended(number_); }

  std::int64_t bytes() const override { return own_->bytes(); }
  void copy(const KvCache& from, PositionRange rows, Position to) override {
    const auto& other = static_cast<const Cache&>(from);
    if (!is_known(other)) return;
    own_->copy(*other.own_, rows, to);
    std::vector<PlanRow> written;
    for (Position p = rows.begin; p < rows.end; ++p) written.push_back({to + p - rows.begin, from.token_of(p)});
    record(written);
    others_->changed(CopyRows{other.number_, number_, rows, to});
  }

  void copy_rows(const KvCache& from, std::span<const Position> positions) override {
    const auto& other = static_cast<const Cache&>(from);
    if (!is_known(other)) return;
    own_->copy_rows(*other.own_, positions);
    std::vector<PlanRow> written;
    for (const Position p : positions) written.push_back({p, from.token_of(p)});
    record(written);
    others_->changed(CopyPositions{other.number_, number_, {positions.begin(), positions.end()}});
  }

  using KvCache::record;
  KvCache& own() { return *own_; }
  std::uint32_t number() const { return number_; }
  /// Whether these ranks hold its rows: those of another group cannot be copied.
  bool is_of(const std::shared_ptr<Others>& others) const { return others_ == others && !strange_; }

 protected:
  void followed(const KvCache& parent, std::span<const PlanRow> pending) override {
    const auto& other = static_cast<const Cache&>(parent);
    strange_ = false;  // it has no rows of its own any more
    if (!is_known(other)) return;
    own_->follow(*other.own_, pending);
    others_->changed(FollowCache{number_, other.number_, {pending.begin(), pending.end()}});
  }
  bool take(const KvCache& branch, std::span<const PositionRange>) override {
    const auto& other = static_cast<const Cache&>(branch);
    if (!is_known(other)) return false;
    own_->adopt(*other.own_);
    others_->changed(AdoptRows{number_, other.number_});
    return true;
  }

 private:
  /// Whether the same ranks hold the other's rows; if not, this cache is strange from now on.
  bool is_known(const Cache& other) {
    strange_ = strange_ || other.strange_ || other.others_ != others_;
    return !strange_;
  }

  std::shared_ptr<Others> others_;
  std::unique_ptr<KvCache> own_;
  std::uint32_t number_;
  bool strange_ = false;  ///< rows of another group should be in it
};

RankedBackend::RankedBackend(std::unique_ptr<Backend> own, std::shared_ptr<Communicator> ranks, Log log)
    : others_(std::make_shared<Others>(std::move(ranks))), own_(std::move(own)), log_(std::move(log)) {}

/// What waits need not be sent: the others' caches end with them.
RankedBackend::~RankedBackend() {
  try {
    if (!others_->forked()) (void)others_->ranks().broadcast(encode_command(Leave{}));
  } catch (const std::bad_alloc&) {
    // The connections end anyway.
  }
}

namespace {

/// What every rank has counted in its passes.
Expected<std::vector<RankTimes>> gather_times(Communicator& ranks, const RankTimes& own) {
  std::vector<RankTimes> all(static_cast<std::size_t>(ranks.size()));
  const std::vector<std::size_t> sizes(all.size(), sizeof own);
  DLLM_CHECK_OK(ranks.all_gather(std::as_bytes(std::span(&own, 1)), sizes, std::as_writable_bytes(std::span(all))));
  return all;
}

/// work(), whose time and exchanges are those of a pass. Exchanges between passes, gather_times() itself among them,
/// are not counted: a rank that waits there waits for the next command, not for another rank's work.
template <class Work>
auto counted(RankTimes& passes, const Communicator& ranks, const Work& work) {
  const RankTimes before = ranks.times();
  const auto start = std::chrono::steady_clock::now();
  auto result = work();
  passes.pass_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const RankTimes after = ranks.times();
  passes.gathers += after.gathers - before.gathers;
  passes.bytes += after.bytes - before.bytes;
  passes.wait_s += after.wait_s - before.wait_s;
  passes.move_s += after.move_s - before.move_s;
  ++passes.passes;
  return result;
}

}  // namespace

Expected<std::vector<RankTimes>> RankedBackend::times() {
  DLLM_CHECK_OK(others_->send(encode_command(Report{})));
  return gather_times(others_->ranks(), passes_);
}

bool RankedBackend::lost() const { return others_->ranks().lost(); }

Expected<std::unique_ptr<KvCache>> RankedBackend::make_cache(Position capacity) {
  const std::uint32_t number = next_++;
  DLLM_CHECK_OK(others_->send(encode_command(MakeCache{number, capacity})));
  auto own = own_->make_cache(capacity);
  others_->expect_cache();
  auto agreed = agree(others_->ranks(), own ? Expected<void>() : Expected<void>(own.error()));
  if (agreed) return std::unique_ptr<KvCache>(new Cache(others_, *std::move(own), number));
  others_->ended(number);
  return std::move(agreed).error();
}

Expected<std::vector<Scores>> RankedBackend::forward(std::span<const SequenceStep> batch) {
  std::vector<SequenceStep> steps(batch.begin(), batch.end());
  std::vector<std::uint32_t> numbers;
  for (SequenceStep& step : steps) {
    auto& cache = static_cast<Cache&>(*step.cache);
    if (!cache.is_of(others_)) {
      invalidate_rows(batch);
      return Error{ErrorCode::kResource, "the ranks that had K and V of this answer have changed", "ranks",
                   "ask again"};
    }
    numbers.push_back(cache.number());
    step.cache = &cache.own();
  }
  const std::vector<double> waits = others_->ranks().waits();
  const auto start = std::chrono::steady_clock::now();
  auto scores = [&]() -> Expected<std::vector<Scores>> {
    try {
      DLLM_CHECK_OK(others_->send(encode_steps(numbers, batch)));
      return counted(passes_, others_->ranks(), [&] { return own_->forward(steps); });
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::kResource, "out of memory in a forward pass", "", "use fewer rows per step"};
    }
  }();
  // The others wait for this rank in the middle of the pass, unless the communicator knows of it.
  if (!scores && scores.error().code == ErrorCode::kResource) others_->ranks().abort("a rank is out of memory");
  if (scores) name_slow_rank(waits, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  for (const SequenceStep& step : batch)
    if (step.plan.region != Region::kDraft) static_cast<Cache&>(*step.cache).record(step.plan.rows);
  if (!scores) invalidate_rows(batch);
  return scores;
}

/// Once for each rank: of a step that people notice, most was spent waiting for it.
void RankedBackend::name_slow_rank(const std::vector<double>& before, double seconds) {
  constexpr double kNoticed = 0.5, kMost = 0.5;
  const std::vector<double> now = others_->ranks().waits();
  for (std::size_t r = 0; r < before.size(); ++r) {
    const double waited = now[r] - before[r];
    if (seconds < kNoticed || waited < kMost * seconds || !slow_.insert(static_cast<int>(r)).second) continue;
    log_.warning("{} is slow: others waited {:.1f} of {:.1f} s of a step for it",
                 others_->ranks().name(static_cast<int>(r)), waited, seconds);
  }
}

namespace {

/// A rank's caches, and what it does with a command.
class Follower {
 public:
  Follower(Backend& own, Communicator& ranks) : own_(own), ranks_(ranks) {}

  Expected<void> run() {
    for (;;) {
      DLLM_TRY(const std::vector<std::byte> message, ranks_.broadcast({}));
      DLLM_TRY(Command command, decode_command(message, own_.desc().vocab));
      if (std::holds_alternative<Leave>(command)) return {};
      DLLM_CHECK_OK(std::visit([this](auto& one) { return follow(one); }, command));
    }
  }

 private:
  Expected<void> follow(const MakeCache& command) {
    auto made = own_.make_cache(command.capacity);
    const Expected<void> state = made ? Expected<void>() : Expected<void>(made.error());
    if (made) caches_[command.cache] = *std::move(made);
    // Another rank's error is rank 0's to report.
    DLLM_TRY(const std::optional<Error> ignored, first_failure(ranks_, state));
    return {};
  }
  /// With its branches, which would show rows that are not there any more.
  Expected<void> follow(const DropCache& command) {
    std::vector<std::uint32_t> ending = {command.cache};
    while (!ending.empty()) {
      const auto found = caches_.find(ending.back());
      ending.pop_back();
      if (found == caches_.end()) continue;
      const std::unique_ptr<KvCache> cache = std::move(found->second);
      caches_.erase(found);
      for (const auto& [number, other] : caches_)
        if (other->parent() == cache.get()) ending.push_back(number);
    }
    return {};
  }
  Expected<void> follow(const CopyRows& command) {
    const auto from = caches_.find(command.from), to = caches_.find(command.to);
    if (from == caches_.end() || to == caches_.end() || from == to || !from->second->holds(command.rows) ||
        command.rows.end > from->second->capacity() || command.at > to->second->capacity() - command.rows.size())
      return misfit();
    to->second->copy(*from->second, command.rows, command.at);
    return {};
  }
  Expected<void> follow(const CopyPositions& command) {
    const auto from = caches_.find(command.from), to = caches_.find(command.to);
    if (from == caches_.end() || to == caches_.end() || from == to) return misfit();
    const Position capacity = from->second->capacity();
    const auto held = [&](Position p) { return p < capacity && from->second->holds(p); };
    if (to->second->capacity() != capacity || !std::ranges::all_of(command.positions, held)) return misfit();
    to->second->copy_rows(*from->second, command.positions);
    return {};
  }
  Expected<void> follow(const FollowCache& command) {
    const auto cache = caches_.find(command.cache), parent = caches_.find(command.parent);
    if (!own_.runs_branches() || cache == caches_.end() || parent == caches_.end()) return misfit();
    const KvCache* above = parent->second.get();
    const Position capacity = above->capacity();
    const bool fits = command.pending.empty() || command.pending.back().position < capacity;
    if (!fits || cache->second->capacity() != capacity) return misfit();
    for (; above != nullptr; above = above->parent())
      if (above == cache->second.get()) return misfit();
    cache->second->follow(*parent->second, command.pending);
    return {};
  }
  Expected<void> follow(const AdoptRows& command) {
    const auto cache = caches_.find(command.cache), branch = caches_.find(command.branch);
    if (cache == caches_.end() || branch == caches_.end() || !cache->second->can_adopt(*branch->second))
      return misfit();
    cache->second->adopt(*branch->second);
    return {};
  }
  Expected<void> follow(RunSteps& command) {
    for (std::size_t i = 0; i < command.steps.size(); ++i) {
      const auto cache = caches_.find(command.caches[i]);
      if (cache == caches_.end() || !fits_cache(command.steps[i].plan, *cache->second) ||
          !fits_drafter(command.steps[i], own_.desc().drafted.block))
        return misfit();
      std::int32_t depth = 0;
      for (const KvCache* at = cache->second->parent(); at != nullptr; at = at->parent()) ++depth;
      if (depth > Backend::kMostBranchDepth) return misfit();
      command.steps[i].cache = cache->second.get();
    }
    DLLM_TRY(const std::vector<Scores> ignored, counted(passes_, ranks_, [&] { return own_.forward(command.steps); }));
    return {};
  }
  Expected<void> follow(const Report&) {
    DLLM_TRY(const std::vector<RankTimes> ignored, gather_times(ranks_, passes_));
    return {};
  }
  Expected<void> follow(const Leave&) { return {}; }
  static Error misfit() {
    return {ErrorCode::kIo, "the first rank asked for a step that does not fit the caches", "ranks",
            "start all ranks with the same version"};
  }

  Backend& own_;
  Communicator& ranks_;
  RankTimes passes_;
  std::map<std::uint32_t, std::unique_ptr<KvCache>> caches_;
};

}  // namespace

Expected<void> follow_ranks(Backend& own, Communicator& ranks) {
  auto followed = [&]() -> Expected<void> {
    try {
      return Follower(own, ranks).run();
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::kResource, "a rank is out of memory", "", ""};
    }
  }();
  if (!followed) ranks.abort(followed.error().message());
  return followed;
}

}  // namespace dllm
