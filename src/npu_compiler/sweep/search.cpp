// NSGA-II over the indices of a sweep's axes, with neighbours of the front mixed into every generation.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <unordered_map>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/sweep/run.h"

namespace dllm::npu {
namespace {

using Genes = std::vector<std::uint32_t>;

struct Individual {
  Genes genes;
  std::int64_t point = 0;
  double cost[2] = {0, 0};  ///< smaller is better
  bool feasible = false;
  int rank = 0;
  double crowding = 0;
};

bool dominates(const Individual& a, const Individual& b) {
  if (a.feasible != b.feasible) return a.feasible;
  if (!a.feasible) return false;
  return a.cost[0] <= b.cost[0] && a.cost[1] <= b.cost[1] && (a.cost[0] < b.cost[0] || a.cost[1] < b.cost[1]);
}

/// Ranks and crowding distances of a population, best first.
void rank(std::vector<Individual>& all) {
  std::vector<std::size_t> left(all.size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
  for (int level = 0; !left.empty(); ++level) {
    std::vector<std::size_t> front, rest;
    for (const std::size_t i : left)
      (std::none_of(left.begin(), left.end(), [&](std::size_t j) { return dominates(all[j], all[i]); }) ? front : rest)
          .push_back(i);
    for (const std::size_t i : front) all[i].rank = level, all[i].crowding = 0;
    for (const int axis : {0, 1}) {
      std::sort(front.begin(), front.end(),
                [&](std::size_t a, std::size_t b) { return all[a].cost[axis] < all[b].cost[axis]; });
      const double span = all[front.back()].cost[axis] - all[front.front()].cost[axis];
      all[front.front()].crowding = all[front.back()].crowding = std::numeric_limits<double>::infinity();
      for (std::size_t k = 1; k + 1 < front.size() && span > 0; ++k)
        all[front[k]].crowding += (all[front[k + 1]].cost[axis] - all[front[k - 1]].cost[axis]) / span;
    }
    left = std::move(rest);
  }
  std::stable_sort(all.begin(), all.end(), [](const Individual& a, const Individual& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.crowding > b.crowding;
  });
}

class Search {
 public:
  Search(const SweepSpec& spec, SweepRunner& runner, const SearchOptions& options)
      : spec_(spec),
        runner_(runner),
        random_(options.seed),
        budget_(options.budget),
        x_(metric_index(spec.plot_x)),
        y_(metric_index(spec.plot_y)) {
    size_ = std::clamp<std::size_t>(to_size(budget_) / 10, 16, 100);
  }

  Expected<void> run(const SweepProgress& progress) {
    std::vector<Genes> first;
    // Corners of the space, then random points.
    Genes low(spec_.axes.size(), 0), high = low;
    for (std::size_t a = 0; a < high.size(); ++a) high[a] = last(a);
    for (const Genes& corner : {low, high}) propose(corner, first);
    for (int tries = 0; first.size() < size_ && tries < 1000; ++tries) propose(random_genes(), first);
    DLLM_CHECK_OK(generation(first));
    while (left() > 0) {
      std::vector<Genes> next;
      neighbours(next);
      for (int tries = 0; next.size() < size_ && tries < 1000; ++tries) propose(offspring(), next);
      if (next.empty()) break;
      DLLM_CHECK_OK(generation(next));
      if (progress && !progress(static_cast<std::int64_t>(report.rows.size()), budget_)) break;
    }
    std::sort(report.rows.begin(), report.rows.end(),
              [](const SweepRow& a, const SweepRow& b) { return a.point < b.point; });
    finish_sweep(spec_, report);
    return {};
  }

  SweepReport report;

 private:
  std::uint32_t last(std::size_t axis) const { return static_cast<std::uint32_t>(spec_.axes[axis].values.size() - 1); }
  std::int64_t left() const { return budget_ - static_cast<std::int64_t>(report.rows.size()); }
  std::uint32_t draw(std::uint32_t most) { return static_cast<std::uint32_t>(random_() % (std::uint64_t{most} + 1)); }
  Genes random_genes() {
    Genes genes(spec_.axes.size());
    for (std::size_t a = 0; a < genes.size(); ++a) genes[a] = draw(last(a));
    return genes;
  }

  /// Takes a point that has not been evaluated, while the budget lasts.
  void propose(const Genes& genes, std::vector<Genes>& into) {
    if (static_cast<std::int64_t>(into.size()) >= left()) return;
    if (looked_at_.insert(spec_.point(genes)).second) into.push_back(genes);
  }

  /// Neighbours of the front, one step along one axis, that have not been evaluated, the least crowded first.
  void neighbours(std::vector<Genes>& into) {
    for (Individual& one : population_) {
      if (one.rank > 0 || !one.feasible || into.size() >= size_) break;
      for (std::size_t a = 0; a < one.genes.size() && into.size() < size_; ++a)
        for (const int step : {-1, 1}) {
          if ((step < 0 && one.genes[a] == 0) || (step > 0 && one.genes[a] == last(a))) continue;
          Genes near = one.genes;
          near[a] = step < 0 ? near[a] - 1 : near[a] + 1;
          propose(near, into);
        }
    }
    // At least half of a generation comes from crossover and mutation.
    if (into.size() > (size_ + 1) / 2 && random_() % 2 == 0) {
      for (std::size_t i = (size_ + 1) / 2; i < into.size(); ++i) looked_at_.erase(spec_.point(into[i]));
      into.resize((size_ + 1) / 2);
    }
  }

  const Individual& tournament() {
    const auto pick = [this]() -> const Individual& {
      return population_[random_() % std::min(population_.size(), size_)];
    };
    const Individual &a = pick(), &b = pick();
    return a.rank != b.rank ? (a.rank < b.rank ? a : b) : (a.crowding > b.crowding ? a : b);
  }

  Genes offspring() {
    Genes child = tournament().genes;
    const Genes& other = tournament().genes;
    bool changed = false;
    for (std::size_t a = 0; a < child.size(); ++a) {
      if (random_() % 2 == 0) child[a] = other[a];
      if (random_() % child.size() != 0 || last(a) == 0) continue;
      changed = true;
      if (random_() % 2 == 0) {
        child[a] = draw(last(a));
      } else {
        child[a] = random_() % 2 == 0 ? std::min(child[a] + 1, last(a)) : child[a] - (child[a] > 0 ? 1 : 0);
      }
    }
    if (!changed && !child.empty()) {
      const std::size_t a = random_() % child.size();
      child[a] = draw(last(a));
    }
    return child;
  }

  Expected<void> generation(const std::vector<Genes>& genes) {
    const std::size_t begin = report.rows.size();
    for (const Genes& one : genes) {
      SweepRow row;
      row.point = spec_.point(one);
      report.rows.push_back(row);
    }
    DLLM_CHECK_OK(runner_.evaluate(report.rows.data() + begin, genes.size(), report));
    for (std::size_t i = 0; i < genes.size(); ++i) {
      const SweepRow& row = report.rows[begin + i];
      Individual one;
      one.genes = genes[i];
      one.point = row.point;
      one.feasible = row.error == 0 && over_limit(spec_, row) < 0;
      one.cost[0] = sweep_metrics()[x_].larger_is_better ? -row.metrics[x_] : row.metrics[x_];
      one.cost[1] = sweep_metrics()[y_].larger_is_better ? -row.metrics[y_] : row.metrics[y_];
      population_.push_back(std::move(one));
    }
    rank(population_);
    // The whole front survives, however long it is, because all its neighbours are to be evaluated.
    std::size_t keep = size_;
    while (keep < population_.size() && population_[keep].rank == 0) ++keep;
    population_.resize(std::min(population_.size(), keep));
    return {};
  }

  const SweepSpec& spec_;
  SweepRunner& runner_;
  std::mt19937_64 random_;
  std::int64_t budget_;
  std::size_t x_, y_, size_ = 0;
  std::vector<Individual> population_;  ///< best first
  std::set<std::int64_t> looked_at_;
};

}  // namespace

Expected<SweepReport> search_sweep(const SweepSpec& spec, SweepStore& store, int threads, const SearchOptions& options,
                                   const SweepProgress& progress) {
  SearchOptions chosen = options;
  if (chosen.budget == 0) chosen.budget = std::max<std::int64_t>(64, spec.points() / 20);
  chosen.budget = std::min(chosen.budget, spec.points());
  DLLM_TRY(SweepRunner runner, SweepRunner::create(spec, store, threads));
  Search search(spec, runner, chosen);
  DLLM_CHECK_OK(search.run(progress));
  return std::move(search.report);
}

}  // namespace dllm::npu
