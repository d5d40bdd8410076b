#include "ranks/ranked_backend.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "base/try.h"
#include "ranks/command.h"

namespace dllm {

Expected<void> agree(Communicator& ranks, const Expected<void>& own) {
  const std::string text =
      own ? "" : own.error().what + (own.error().hint.empty() ? "" : " (" + own.error().hint + ")");
  const std::uint64_t size = text.size();
  std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks.size()), sizeof size);
  std::vector<std::uint64_t> lengths(sizes.size());
  DLLM_CHECK_OK(
      ranks.all_gather(std::as_bytes(std::span(&size, 1)), sizes, std::as_writable_bytes(std::span(lengths))));
  std::size_t all = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (lengths[r] > 65536)
      return Error{ErrorCode::kIo, fmt::format("rank {} sent something else than its state", r), "ranks", ""};
    all += sizes[r] = static_cast<std::size_t>(lengths[r]);
  }
  std::string texts(all, ' ');
  DLLM_CHECK_OK(ranks.all_gather(std::as_bytes(std::span(text)), sizes, std::as_writable_bytes(std::span(texts))));
  std::size_t at = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (sizes[r] > 0 && static_cast<int>(r) != ranks.rank())
      return Error{ErrorCode::kResource, texts.substr(at, sizes[r]), fmt::format("rank {}", r), ""};
    at += sizes[r];
  }
  return own;
}

/// Here with this rank's part of K and V; a number on the others.
class RankedBackend::Cache final : public KvCache {
 public:
  Cache(std::shared_ptr<Others> others, std::unique_ptr<KvCache> own, std::uint32_t number)
      : KvCache(own->capacity()), others_(std::move(others)), own_(std::move(own)), number_(number) {}
  ~Cache() override { (void)others_->send(encode_command(DropCache{number_})); }

  std::int64_t bytes() const override { return own_->bytes(); }
  void copy(const KvCache& from, PositionRange rows, Position to) override {
    const auto& other = static_cast<const Cache&>(from);
    own_->copy(*other.own_, rows, to);
    std::vector<PlanRow> written;
    for (Position p = rows.begin; p < rows.end; ++p) written.push_back({to + p - rows.begin, from.token_of(p)});
    record(written);
    // What fails now, fails again at the next step, whose error is seen.
    (void)others_->send(encode_command(CopyRows{other.number_, number_, rows, to}));
  }

  using KvCache::record;
  KvCache& own() { return *own_; }
  std::uint32_t number() const { return number_; }

 private:
  std::shared_ptr<Others> others_;
  std::unique_ptr<KvCache> own_;
  std::uint32_t number_;
};

RankedBackend::~RankedBackend() {
  (void)others_->send(encode_command(Leave{}));
  others_->left = true;
}

Expected<void> RankedBackend::Others::send(std::vector<std::byte> message) {
  if (left) return {};
  DLLM_TRY(const std::vector<std::byte> ignored, ranks->broadcast(std::move(message)));
  return {};
}

Expected<std::unique_ptr<KvCache>> RankedBackend::make_cache(Position capacity) {
  const std::uint32_t number = next_++;
  DLLM_CHECK_OK(others_->send(encode_command(MakeCache{number, capacity})));
  auto own = own_->make_cache(capacity);
  auto agreed = agree(*others_->ranks, own ? Expected<void>() : Expected<void>(own.error()));
  if (!agreed) {
    (void)others_->send(encode_command(DropCache{number}));
    return std::move(agreed).error();
  }
  return std::unique_ptr<KvCache>(new Cache(others_, *std::move(own), number));
}

Expected<std::vector<Scores>> RankedBackend::forward(std::span<const SequenceStep> batch) {
  std::vector<SequenceStep> steps(batch.begin(), batch.end());
  std::vector<std::uint32_t> numbers;
  for (SequenceStep& step : steps) {
    auto& cache = static_cast<Cache&>(*step.cache);
    numbers.push_back(cache.number());
    step.cache = &cache.own();
  }
  const std::vector<double> waits = others_->ranks->waits();
  const auto start = std::chrono::steady_clock::now();
  DLLM_CHECK_OK(others_->send(encode_steps(numbers, batch)));
  auto scores = own_->forward(steps);
  if (scores) name_slow_rank(waits, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  for (const SequenceStep& step : batch) {
    auto& cache = static_cast<Cache&>(*step.cache);
    cache.record(step.plan.rows);
    if (scores) continue;
    for (const PlanRow& row : step.plan.rows) cache.invalidate({row.position, row.position + 1});
  }
  return scores;
}

/// Once for each rank: of a step that people notice, most was spent waiting for it.
void RankedBackend::name_slow_rank(const std::vector<double>& before, double seconds) {
  constexpr double kNoticed = 0.5, kMost = 0.5;
  const std::vector<double> now = others_->ranks->waits();
  for (std::size_t r = 0; r < before.size(); ++r) {
    const double waited = now[r] - before[r];
    if (seconds < kNoticed || waited < kMost * seconds || !slow_.insert(static_cast<int>(r)).second) continue;
    log_.warning("{} is slow: others waited {:.1f} of {:.1f} s of a step for it",
                 others_->ranks->name(static_cast<int>(r)), waited, seconds);
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
    if (auto agreed = agree(ranks_, state); !agreed && agreed.error().code != ErrorCode::kResource) return agreed;
    return {};
  }
  Expected<void> follow(const DropCache& command) {
    caches_.erase(command.cache);
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
  Expected<void> follow(RunSteps& command) {
    for (std::size_t i = 0; i < command.steps.size(); ++i) {
      const auto cache = caches_.find(command.caches[i]);
      if (cache == caches_.end() || !fits_cache(command.steps[i].plan, *cache->second)) return misfit();
      command.steps[i].cache = cache->second.get();
    }
    DLLM_TRY(const std::vector<Scores> ignored, own_.forward(command.steps));
    return {};
  }
  Expected<void> follow(const Leave&) { return {}; }
  static Error misfit() {
    return {ErrorCode::kIo, "the first rank asked for a step that does not fit the caches", "ranks", ""};
  }

  Backend& own_;
  Communicator& ranks_;
  std::map<std::uint32_t, std::unique_ptr<KvCache>> caches_;
};

}  // namespace

Expected<void> follow_ranks(Backend& own, Communicator& ranks) {
  auto followed = Follower(own, ranks).run();
  if (!followed) ranks.abort(followed.error().message());
  return followed;
}

}  // namespace dllm
