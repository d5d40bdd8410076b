#include "npu_compiler/calibrate/piecewise_fit.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/to_size.h"
#include "npu_compiler/calibrate/small_matrix.h"

namespace dllm::npu {
namespace {

using Values = std::vector<double>;
using State = FittedParameter::State;

double form_seconds(const LinearForm& form, const Values& z) {
  double sum = form.constant;
  for (const auto& [p, per_unit] : form.terms) sum += per_unit * z[p];
  return sum;
}

const LinearForm& longest(const std::vector<LinearForm>& forms, const Values& z) {
  const LinearForm* most = &forms.front();
  double seconds = form_seconds(*most, z);
  for (const LinearForm& one : forms)
    if (const double its = form_seconds(one, z); its > seconds) most = &one, seconds = its;
  return *most;
}

/// The longest form, or for a `power` above 0 the norm of that power of all of them, which is smooth; and the
/// derivative by each form.
double blended(const std::vector<LinearForm>& forms, const Values& values, double power, Values& shares) {
  shares.assign(forms.size(), 0);
  const LinearForm& most = longest(forms, values);
  const double seconds = form_seconds(most, values);
  if (power == 0 || seconds <= 0) {
    shares[to_size(&most - forms.data())] = 1;
    return seconds;
  }
  double sum = 0;
  for (std::size_t j = 0; j < forms.size(); ++j) {
    const double relative = std::max(0.0, form_seconds(forms[j], values)) / seconds;
    sum += std::pow(relative, power);
    shares[j] = std::pow(relative, power - 1);
  }
  const double norm = std::pow(sum, 1 / power);
  for (double& share : shares) share *= norm / sum;
  return seconds * norm;
}

/// The problem in values relative to the given ones, with some parameters held.
class Problem {
 public:
  Problem(const std::vector<MeasuredTime>& measured, const Values& given, const std::vector<char>& held)
      : measured_(measured), given_(given), held_(held) {}

  Values absolute(const Values& z) const {
    Values result(z.size());
    for (std::size_t i = 0; i < z.size(); ++i) result[i] = z[i] * given_[i];
    return result;
  }

  /// `power`: of blended().
  double loss(const Values& z, double power = 0) const {
    double sum = 0;
    const Values values = absolute(z);
    Values shares;
    for (const MeasuredTime& one : measured_) {
      double seconds = one.constant;
      for (const auto& [forms, count] : one.operators) seconds += count * blended(forms, values, power, shares);
      const double residual = seconds / one.seconds - 1;
      sum += residual * residual;
    }
    return sum;
  }

  /// Rows of d(model / measured) / dz, and what is left of 1 without them.
  void linearize(const Values& z, double power, std::vector<Values>& rows, Values& rest) const {
    const Values values = absolute(z);
    Values shares;
    rows.clear(), rest.clear();
    for (const MeasuredTime& one : measured_) {
      Values row(z.size(), 0);
      double seconds = one.constant, linear = 0;
      for (const auto& [forms, count] : one.operators) {
        seconds += count * blended(forms, values, power, shares);
        for (std::size_t j = 0; j < forms.size(); ++j)
          for (const auto& [p, per_unit] : forms[j].terms)
            if (!held_[p]) row[p] += count * shares[j] * per_unit * given_[p] / one.seconds;
      }
      for (std::size_t p = 0; p < z.size(); ++p) linear += row[p] * z[p];
      rows.push_back(std::move(row));
      rest.push_back(1 - seconds / one.seconds + linear);
    }
  }

  /// Where the longest forms are chosen wrongly, a descent on them ends early, so it begins on smooth blends.
  Values descend(Values z) const {
    for (const double power : {2.0, 6.0, 20.0, 80.0, 400.0, 0.0}) z = descend(std::move(z), power);
    return z;
  }

  /// Gauss and Newton's method with bounds, with shorter steps where a step crosses into worse pieces.
  Values descend(Values z, double power) const {
    std::vector<Values> rows;
    Values rest;
    double now = loss(z, power);
    for (int round = 0; round < 40; ++round) {
      linearize(z, power, rows, rest);
      SmallMatrix h(z.size());
      Values g(z.size(), 0);
      double largest = 1e-12;
      for (std::size_t m = 0; m < rows.size(); ++m)
        for (std::size_t i = 0; i < z.size(); ++i) {
          g[i] += rows[m][i] * rest[m];
          for (std::size_t j = 0; j < z.size(); ++j) h.at(i, j) += rows[m][i] * rows[m][j];
        }
      for (std::size_t i = 0; i < z.size(); ++i) largest = std::max(largest, h.at(i, i));
      // Towards the present values, by a little: what no measurement depends on stays as it is.
      for (std::size_t i = 0; i < z.size(); ++i) {
        const double pull = largest * 1e-10;
        h.at(i, i) += pull;
        g[i] += pull * z[i];
      }
      const Values target = non_negative(h, g);
      Values next = z;
      double share = 1, best = now;
      for (; share > 1e-4; share /= 2) {
        for (std::size_t i = 0; i < z.size(); ++i) next[i] = held_[i] ? z[i] : z[i] + share * (target[i] - z[i]);
        if (best = loss(next, power); best < now) break;
      }
      if (!(best < now * (1 - 1e-12))) break;
      z = next;
      now = best;
    }
    return z;
  }

 private:
  const std::vector<MeasuredTime>& measured_;
  const Values& given_;
  std::vector<char> held_;
};

struct Found {
  Values z;
  double loss = 0;
};

/// Points of a grid of factors, the best first.
std::vector<Found> grid(const Problem& problem, const Values& from, const std::vector<char>& held) {
  constexpr double kFactors[] = {0.05, 0.15, 0.4, 0.7, 1, 1.4, 2.5, 7, 20};
  std::vector<std::size_t> free;
  for (std::size_t p = 0; p < held.size(); ++p)
    if (!held[p]) free.push_back(p);
  std::vector<Found> points;
  std::vector<std::size_t> digits(free.size(), 0);
  // More free parameters than this would be too many points: the last ones begin with what they are.
  const std::size_t varied = std::min<std::size_t>(free.size(), 4);
  for (bool more = true; more;) {
    Values z = from;
    for (std::size_t i = 0; i < varied; ++i) z[free[i]] = kFactors[digits[i]];
    const double loss = problem.loss(z);
    points.push_back({std::move(z), loss});
    more = false;
    for (std::size_t i = 0; i < varied && !more; ++i) {
      digits[i] = (digits[i] + 1) % std::size(kFactors);
      more = digits[i] != 0;
    }
  }
  std::ranges::stable_sort(points, {}, &Found::loss);
  return points;
}

/// Descents from the best points, then from the best result with one value at other places, until none helps.
Found best_of_starts(const Problem& problem, const Values& from, const std::vector<char>& held) {
  constexpr std::size_t kStarts = 30;
  constexpr double kEnough = 1e-20;
  Found best{problem.descend(from), 0};
  best.loss = problem.loss(best.z);
  const auto attempt = [&](Values z) {
    if (best.loss < kEnough) return false;
    z = problem.descend(std::move(z));
    const double loss = problem.loss(z);
    if (!(loss < best.loss * (1 - 1e-6))) return false;
    best = {std::move(z), loss};
    return true;
  };
  const std::vector<Found> points = grid(problem, from, held);
  for (std::size_t i = 0; i < std::min(kStarts, points.size()); ++i) attempt(points[i].z);
  bool better = true;
  for (int round = 0; better && round < 5; ++round) {
    better = false;
    for (std::size_t p = 0; p < held.size(); ++p)
      for (const double value : {0.03, 0.3, 0.7, 1.4, 3.0, 30.0}) {
        if (held[p]) continue;
        Values z = best.z;
        z[p] = value;
        better = attempt(std::move(z)) || better;
      }
  }
  return best;
}

/// Sets the states of parameters that are not held, and their errors.
void judge(const Problem& problem, const Values& z, const std::vector<char>& held, std::vector<FittedParameter>& all) {
  std::vector<Values> rows;
  Values rest;
  problem.linearize(z, 0, rows, rest);
  std::vector<std::size_t> used;
  Values lengths;
  for (std::size_t p = 0; p < z.size(); ++p) {
    if (held[p]) continue;
    double square = 0;
    for (const Values& row : rows) square += row[p] * row[p] * z[p] * z[p];
    all[p].state = State::kFitted;
    if (square < 1e-12) {
      all[p].state = State::kUnused;
      continue;
    }
    used.push_back(p);
    lengths.push_back(std::sqrt(square));
  }
  SmallMatrix c(used.size());
  for (std::size_t i = 0; i < used.size(); ++i)
    for (std::size_t j = 0; j < used.size(); ++j)
      for (const Values& row : rows)
        c.at(i, j) += row[used[i]] * z[used[i]] * row[used[j]] * z[used[j]] / (lengths[i] * lengths[j]);
  const Eigen e = eigen(c);
  const auto freedom = static_cast<double>(rows.size()) - static_cast<double>(used.size());
  const double variance = freedom > 0 ? problem.loss(z) / freedom : 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    double inverse = 0;
    for (std::size_t k = 0; k < used.size(); ++k)
      inverse += e.vectors.at(i, k) * e.vectors.at(i, k) / std::max(e.values[k], 1e-15);
    FittedParameter& one = all[used[i]];
    one.error = std::sqrt(variance * inverse) / lengths[i];
    if (one.error > 0.5) one.state = State::kVague;
  }
  for (std::size_t k = 0; k < used.size(); ++k) {
    if (e.values[k] > 1e-7) continue;
    std::vector<std::size_t> group;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (std::abs(e.vectors.at(i, k)) > 0.1) group.push_back(used[i]);
    for (const std::size_t p : group) {
      all[p].state = State::kInseparable;
      all[p].with = group;
      std::erase(all[p].with, p);
    }
  }
}

/// The most that a loss may be without contradicting the measurements: two standard errors of a parameter.
double as_good_as(double loss, std::size_t measured, std::size_t parameters) {
  const auto count = static_cast<double>(measured);
  return loss + std::max(4 * loss / std::max(1.0, count - static_cast<double>(parameters)), 1e-10 * count);
}

/// Whether the measurements are explained as well without a fitted parameter, by ones that were unused: then nothing
/// says which of them limits.
void find_alternatives(const std::vector<MeasuredTime>& measured, const Values& given, const Found& best,
                       const std::vector<char>& held, std::vector<FittedParameter>& all) {
  const double enough = as_good_as(best.loss, measured.size(), given.size());
  std::vector<char> used(given.size(), 0);
  for (const MeasuredTime& one : measured)
    for (const auto& [forms, count] : one.operators)
      for (const LinearForm& form : forms)
        for (const auto& [p, per_unit] : form.terms) used[p] = 1;
  for (std::size_t p = 0; p < given.size(); ++p) {
    if (all[p].state != State::kFitted || held[p]) continue;
    for (std::size_t q = 0; q < given.size(); ++q) {
      if (all[q].state != State::kUnused || !used[q]) continue;
      // The others as they are: only the two change places.
      std::vector<char> fixed(given.size(), 1);
      fixed[q] = 0;
      Values z = best.z;
      z[p] = 1e-9;
      z[q] = 1;
      const Problem problem(measured, given, fixed);
      if (best_of_starts(problem, z, fixed).loss <= enough) all[p].with.push_back(q);
    }
  }
}

/// Unused parameters get their given values back, or the nearest ones that limit nothing.
void keep_unused(const Problem& problem, std::size_t measured, Found& best, std::vector<FittedParameter>& all) {
  const double enough = as_good_as(best.loss, measured, all.size());
  for (std::size_t p = 0; p < all.size(); ++p) {
    if (all[p].state != State::kUnused) continue;
    Values z = best.z;
    double free = z[p], limits = 1;
    z[p] = 1;
    if (problem.loss(z) > enough) {
      all[p].state = State::kBounded;
      for (int i = 0; i < 60; ++i) {
        z[p] = (free + limits) / 2;
        (problem.loss(z) > enough ? limits : free) = z[p];
      }
      z[p] = free;
    }
    best.z = z;
  }
}

}  // namespace

double model_seconds(const MeasuredTime& measured, const Values& values) {
  double sum = measured.constant;
  for (const auto& [forms, count] : measured.operators) sum += count * form_seconds(longest(forms, values), values);
  return sum;
}

PiecewiseFit fit_piecewise(const std::vector<MeasuredTime>& measured, const Values& given) {
  PiecewiseFit fit;
  fit.parameters.resize(given.size());
  std::vector<char> held(given.size(), 1);
  for (FittedParameter& one : fit.parameters) one.state = State::kUnused;
  for (const MeasuredTime& one : measured)
    for (const auto& [forms, count] : one.operators)
      for (const LinearForm& form : forms)
        for (const auto& [p, per_unit] : form.terms) held[p] = 0;
  const Values ones(given.size(), 1);
  Found best;
  for (bool more = true; more;) {
    const Problem problem(measured, given, held);
    best = best_of_starts(problem, ones, held);
    judge(problem, best.z, held, fit.parameters);
    // What is unused at the optimum does not disturb the others; it is not held, but it keeps its value below.
    more = false;
    for (std::size_t p = 0; p < given.size(); ++p) {
      const State state = fit.parameters[p].state;
      if (!held[p] && (state == State::kInseparable || state == State::kVague)) held[p] = 1, more = true;
    }
    // In their place, unused ones would explain what these are not told apart for.
    for (std::size_t p = 0; more && p < given.size(); ++p)
      if (fit.parameters[p].state == State::kUnused) held[p] = 1;
  }
  find_alternatives(measured, given, best, held, fit.parameters);
  keep_unused(Problem(measured, given, held), measured.size(), best, fit.parameters);
  Values values(given.size());
  for (std::size_t p = 0; p < given.size(); ++p) values[p] = fit.parameters[p].value = best.z[p] * given[p];
  for (const MeasuredTime& one : measured) {
    fit.seconds.push_back(model_seconds(one, values));
    const double residual = fit.seconds.back() / one.seconds - 1;
    fit.rms += residual * residual;
    fit.worst = std::max(fit.worst, std::abs(residual));
  }
  if (!measured.empty()) fit.rms = std::sqrt(fit.rms / static_cast<double>(measured.size()));
  return fit;
}

}  // namespace dllm::npu
