#include "npu_compiler/runtime/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/human_bytes.h"
#include "base/integers.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

/// Limit of the search: runs of the timeline, times operators: about a second.
constexpr std::size_t kMostRuns = 100000, kMostOperators = 60'000'000;
/// Up to this many tensors, all placements are tried.
constexpr std::size_t kFew = 10;
/// Restarts from a perturbed best placement. Small programs need them: capacity permits few single exchanges there.
constexpr int kKicks = 24;

struct Score {
  double seconds = 0, transfer = 0;
  bool better_than(const Score& other) const {
    // Sums of the same times in another order differ in their last bits.
    const double nearly = 1e-12 * other.seconds;
    if (seconds < other.seconds - nearly) return true;
    return seconds <= other.seconds + nearly && transfer < other.transfer * (1 - 1e-12);
  }
};

struct Choice {
  std::vector<char> staged;
  Score score;
};

class PlacementSearch {
 public:
  PlacementSearch(const MemoryProgram& program, const std::vector<std::int32_t>& lasting,
                  const StagingTimeline& timeline, const ResidentRoom& room)
      : program_(program), lasting_(lasting), timeline_(timeline), room_(room) {
    for (const std::int32_t t : lasting)
      if (timeline.can_stage(to_size(t))) movable_.push_back(t);
    for (const MemoryOp& op : program.ops) compute_ += op.seconds;
    most_runs_ = std::clamp<std::size_t>(kMostOperators / (program.ops.size() + 1), 100, kMostRuns);
  }

  PackedMappings pack(const std::vector<char>& staged) const {
    std::vector<std::int32_t> resident;
    for (const std::int32_t t : lasting_)
      if (!staged[to_size(t)]) resident.push_back(t);
    return pack_mappings(program_, resident, room_);
  }

  std::vector<char> all_staged() const {
    std::vector<char> staged(program_.tensors.size());
    for (const std::int32_t t : movable_) staged[to_size(t)] = true;
    return staged;
  }

  /// Errors: what cannot be staged does not fit.
  Expected<void> check_room() const {
    const PackedMappings least = pack(all_staged());
    if (least.fits) return {};
    return Error{ErrorCode::kResource,
                 fmt::format("what cannot be staged takes {} in {} mappings, and there is room for {}{}",
                             human_bytes(static_cast<double>(least.total)), least.bytes.size(),
                             human_bytes(static_cast<double>(room_.bytes)),
                             room_.mappings > 0 ? fmt::format(" in {} mappings", room_.mappings) : ""),
                 "the window of addresses",
                 "a larger window (window.bytes), a larger staging buffer (window.staging_bytes) so that more can be "
                 "staged, a shorter context or fewer rows"};
  }

  Choice best() {
    if (movable_.size() <= kFew) return best_of_all();
    Choice best = improved(scored(spread()));
    if (Choice other = improved(scored(greedy())); other.score.better_than(best.score)) best = std::move(other);
    for (int kick = 0; kick < kKicks && more() && !all_hidden(best); ++kick)
      if (Choice other = improved(scored(disturbed(best.staged))); other.score.better_than(best.score))
        best = std::move(other);
    return best;
  }

  /// Makes small tensors resident, since each would cost a mapping, and as many others as fit, spread over the program.
  std::vector<char> spread() const {
    std::vector<char> staged = all_staged();
    double low = 0, high = 1;  // fraction of the bytes that is staged
    for (int i = 0; i < 30; ++i) {
      const double share = (low + high) / 2;
      std::vector<char> tried(program_.tensors.size());
      double owed = 0;
      for (const std::int32_t t : movable_) {
        const auto bytes = static_cast<double>(program_.tensors[to_size(t)].bytes);
        owed += share * bytes;
        if (owed < bytes) continue;
        owed -= bytes;
        tried[to_size(t)] = true;
      }
      if (fits(tried)) {
        high = share;
        staged = std::move(tried);
      } else {
        low = share;
      }
    }
    fill(staged);
    return staged;
  }

 private:
  bool more() const { return runs_ < most_runs_; }
  /// No placement is faster, but another may transfer less; the search for that is short.
  bool all_hidden(const Choice& choice) const { return choice.score.seconds <= compute_ * (1 + 1e-12); }
  bool fits(const std::vector<char>& staged) const { return pack(staged).fits; }

  Choice best_of_all() {
    Choice best = scored(all_staged());
    for (unsigned set = 0; set < 1u << movable_.size(); ++set) {
      std::vector<char> tried(program_.tensors.size());
      for (std::size_t i = 0; i < movable_.size(); ++i) tried[to_size(movable_[i])] = (set >> i & 1u) != 0;
      accept(best, tried);
    }
    return best;
  }

  Choice scored(std::vector<char> staged) {
    ++runs_;
    const StagingTimeline::Times times = timeline_.run(staged);
    return {std::move(staged), {times.seconds, times.transfer}};
  }

  /// Makes tensors resident while they fit, those with the largest transfer time per byte first.
  void fill(std::vector<char>& staged) const {
    std::vector<std::int32_t> order = movable_;
    const auto density = [&](std::int32_t t) {
      return timeline_.transfer_seconds(to_size(t)) / static_cast<double>(program_.tensors[to_size(t)].bytes);
    };
    std::ranges::stable_sort(order, std::greater(), density);
    for (const std::int32_t t : order) {
      char& place = staged[to_size(t)];
      if (!place) continue;
      place = false;
      if (!fits(staged)) place = true;
    }
  }

  /// Makes one tensor after the other resident: the one that saves the most time per byte, or transfer per byte if none
  /// saves time.
  std::vector<char> greedy() {
    Choice now = scored(all_staged());
    const std::size_t affordable = most_runs_ / 3;
    while (runs_ < affordable) {
      Choice next;
      std::pair<double, double> most = {-1, -1};
      for (const std::int32_t t : movable_) {
        if (!now.staged[to_size(t)]) continue;
        std::vector<char> tried = now.staged;
        tried[to_size(t)] = false;
        if (!fits(tried)) continue;
        Choice choice = scored(std::move(tried));
        const auto bytes = static_cast<double>(program_.tensors[to_size(t)].bytes);
        const std::pair<double, double> gain = {(now.score.seconds - choice.score.seconds) / bytes,
                                                (now.score.transfer - choice.score.transfer) / bytes};
        if (gain <= most) continue;
        most = gain;
        next = std::move(choice);
      }
      if (next.staged.empty()) return now.staged;
      now = std::move(next);
    }
    fill(now.staged);
    return now.staged;
  }

  /// The placement with about a quarter of its tensors switched, and the remaining room filled.
  std::vector<char> disturbed(std::vector<char> staged) {
    for (const std::int32_t t : movable_)
      if (random_() % 4 == 0) staged[to_size(t)] ^= 1;
    for (std::size_t i = 0; !fits(staged) && i < 64 * movable_.size(); ++i)
      staged[to_size(movable_[random_() % movable_.size()])] = true;
    if (!fits(staged)) return all_staged();
    fill(staged);
    return staged;
  }

  /// Exchanges until none helps: one tensor becomes resident, and none, one or two others become staged.
  Choice improved(Choice now) {
    std::vector<std::int32_t> order = movable_;
    bool changed = true;
    while (changed && more()) {
      changed = false;
      std::ranges::shuffle(order, random_);
      for (const std::int32_t in : order) {
        if (!now.staged[to_size(in)]) continue;
        if (all_hidden(now) || !more()) return now;
        if (try_resident(now, in, order)) changed = true;
      }
    }
    return now;
  }

  bool try_resident(Choice& now, std::int32_t in, const std::vector<std::int32_t>& order) {
    std::vector<char> tried = now.staged;
    tried[to_size(in)] = false;
    if (accept(now, tried)) return true;
    for (std::size_t i = 0; i < order.size() && more(); ++i) {
      const auto out = to_size(order[i]);
      if (order[i] == in || now.staged[out]) continue;
      tried[out] = true;
      if (accept(now, tried)) return true;
      // Two for one: only if there are not too many pairs.
      for (std::size_t k = i + 1; order.size() <= 24 && k < order.size() && more(); ++k) {
        const auto second = to_size(order[k]);
        if (order[k] == in || now.staged[second]) continue;
        tried[second] = true;
        if (accept(now, tried)) return true;
        tried[second] = false;
      }
      tried[out] = false;
    }
    return false;
  }

  bool accept(Choice& now, const std::vector<char>& staged) {
    if (!fits(staged)) return false;
    Choice choice = scored(staged);
    if (!choice.score.better_than(now.score)) return false;
    now = std::move(choice);
    return true;
  }

  const MemoryProgram& program_;
  const std::vector<std::int32_t>& lasting_;
  const StagingTimeline& timeline_;
  const ResidentRoom& room_;
  std::vector<std::int32_t> movable_;
  double compute_ = 0;
  std::size_t runs_ = 0, most_runs_ = 0;
  std::mt19937 random_{1};
};

}  // namespace

PackedMappings pack_mappings(const MemoryProgram& program, const std::vector<std::int32_t>& tensors,
                             const ResidentRoom& room) {
  PackedMappings packed;
  bool each_fits = true;
  std::int64_t end = 0;  // of the last mapping's contents
  for (const std::int32_t t : tensors) {
    const std::int64_t bytes = program.tensors[to_size(t)].bytes;
    if (room.mapping_bytes > 0 && round_up(bytes, room.page_bytes) > room.mapping_bytes) each_fits = false;
    std::int64_t offset = round_up(end, room.alignment);
    const bool opens = packed.bytes.empty() || (room.mapping_bytes > 0 && offset + bytes > room.mapping_bytes);
    if (opens) {
      offset = 0;
      packed.bytes.push_back(0);
    }
    end = offset + bytes;
    packed.bytes.back() = round_up(end, room.page_bytes);
    packed.places.push_back({static_cast<std::int32_t>(packed.bytes.size()) - 1, offset});
  }
  for (const std::int64_t bytes : packed.bytes) packed.total += bytes;
  packed.fits = each_fits && packed.total <= room.bytes &&
                (room.mappings == 0 || static_cast<std::int64_t>(packed.bytes.size()) <= room.mappings);
  return packed;
}

Expected<std::vector<char>> choose_staged(const MemoryProgram& program, const std::vector<std::int32_t>& lasting,
                                          const StagingTimeline& timeline, const ResidentRoom& room) {
  PlacementSearch search(program, lasting, timeline, room);
  DLLM_CHECK_OK(search.check_room());
  return search.best().staged;
}

Expected<std::vector<char>> spread_staged(const MemoryProgram& program, const std::vector<std::int32_t>& lasting,
                                          const StagingTimeline& timeline, const ResidentRoom& room) {
  const PlacementSearch search(program, lasting, timeline, room);
  DLLM_CHECK_OK(search.check_room());
  return search.spread();
}

}  // namespace dllm::npu
