#include "reference_backend.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "numerics/tensor_type.h"
#include "plan_sight.h"
#include "reference_mixture.h"
#include "reference_rows.h"
#include "reference_score.h"

namespace dllm::test {
namespace {

class Pass {
 public:
  Pass(std::span<const SequenceStep> batch, const ModelDesc& desc, const std::vector<std::vector<double>>& weights)
      : batch_(batch), desc_(desc), weights_(weights) {
    for (const SequenceStep& step : batch) {
      const std::size_t first = rows_.size();
      for (const PlanRow& row : step.plan.rows) rows_.push_back({&step, row});
      for (const ShadowRow& shadow : step.plan.shadows) rows_.push_back({&step, shadow.row, &shadow});
      for (std::int32_t index : step.plan.scored) scored_.push_back(first + static_cast<std::size_t>(index));
      auto& cache = static_cast<ReferenceCache&>(*step.cache);
      cache.record(step.plan.rows);
      cache.k.resize(static_cast<std::size_t>(desc.layers), Matrix(static_cast<std::size_t>(cache.capacity())));
      cache.v.resize(cache.k.size(), Matrix(static_cast<std::size_t>(cache.capacity())));
    }
  }

  StepShape shape() const {
    return {static_cast<std::int64_t>(rows_.size()), static_cast<std::int64_t>(scored_.size())};
  }

  std::vector<Scores> run(const Graph& graph) {
    values_.resize(graph.values.size());
    for (const Op& op : graph.ops) std::visit([this](const auto& o) { apply(o); }, op);
    return scores();
  }

 private:
  const std::vector<double>& weight(WeightId id) const { return weights_[static_cast<std::size_t>(id)]; }
  Matrix& value(ValueId id) { return values_[static_cast<std::size_t>(id)]; }
  bool present(WeightId id) const { return id != kNoId && !weight(id).empty(); }

  void apply(const op::Embed& o) {
    const auto width = static_cast<std::size_t>(desc_.width);
    for (const RowRef& ref : rows_) {
      const auto begin = weight(o.table).begin() + static_cast<std::ptrdiff_t>(ref.row.token) * desc_.width;
      value(o.out).emplace_back(begin, begin + static_cast<std::ptrdiff_t>(width));
      if (o.part == EmbedPart::kMixture) value(o.out).back().assign(width, 0.0);
      for (const RowMixture& mixture : ref.step->plan.mixtures)
        if (o.part != EmbedPart::kToken && ref.shadow == nullptr &&
            ref.step->plan.rows[static_cast<std::size_t>(mixture.row)].position == ref.row.position)
          mix(mixture, weight(o.table), value(o.out).back());
      for (double& x : value(o.out).back()) x *= static_cast<double>(o.scale);
    }
  }

  void apply(const op::RmsNorm& o) {
    for (std::vector<double> row : value(o.x)) {
      const std::vector<double> gain =
          o.gain != kNoId ? weight(o.gain) : std::vector<double>(row.size() / static_cast<std::size_t>(o.groups), 1.0);
      for (std::size_t start = 0; start < row.size(); start += gain.size()) {
        double squares = 0;
        for (std::size_t i = 0; i < gain.size(); ++i) squares += row[start + i] * row[start + i];
        const double scale = 1 / std::sqrt(squares / static_cast<double>(gain.size()) + static_cast<double>(o.eps));
        for (std::size_t i = 0; i < gain.size(); ++i) row[start + i] *= scale * gain[i];
      }
      value(o.out).push_back(std::move(row));
    }
  }

  std::vector<double> product(const std::vector<double>& x, WeightId matrix, WeightId bias) const {
    const std::vector<double>& w = weight(matrix);
    std::vector<double> result(w.size() / x.size());
    for (std::size_t n = 0; n < result.size(); ++n) {
      double sum = present(bias) ? weight(bias)[n] : 0;
      for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * w[n * x.size() + k];
      result[n] = sum;
    }
    return result;
  }

  void apply(const op::LayerNorm& o) {
    for (const std::vector<double>& row : value(o.x))
      value(o.out).push_back(layer_norm_row(row, weight(o.gain), weight(o.bias), static_cast<double>(o.eps)));
  }
  void apply(const op::Linear& o) {
    for (const auto& row : value(o.x)) value(o.out).push_back(product(row, o.weight, o.bias));
  }

  /// Of a pair, in radians per position: YaRN's formulas (arXiv 2309.00071, section 3.2) in float64.
  static double frequency(const op::Rope& o, int j) {
    const double theta = static_cast<double>(o.theta), plain = std::pow(theta, -2.0 * j / o.dims);
    if (o.yarn.factor == 1.f) return plain;
    const auto pair_of = [&](float turns) {
      return o.dims * std::log(static_cast<double>(o.yarn.original_context) / (2 * M_PI * static_cast<double>(turns))) /
             (2 * std::log(theta));
    };
    const double low = std::max(std::floor(pair_of(o.yarn.beta_fast)), 0.0);
    const double high = std::min(std::ceil(pair_of(o.yarn.beta_slow)), o.dims - 1.0);
    const double slow = std::clamp((j - low) / (high == low ? 0.001 : high - low), 0.0, 1.0);
    return plain * (1 - slow) + plain / static_cast<double>(o.yarn.factor) * slow;
  }

  static double magnitude(const op::Rope& o, Position position) {
    const double own = static_cast<double>(o.yarn.magnitude), beta = static_cast<double>(o.growth.beta);
    return beta == 0 ? own : own * (1 + beta * std::log1p(std::floor(position / static_cast<double>(o.growth.length))));
  }

  void apply(const op::Rope& o) {
    value(o.out) = value(o.x);
    const int half = o.dims / 2;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      for (int head = 0; head < o.heads; ++head)
        for (int j = 0; j < half; ++j) {
          double angle = static_cast<double>(o.scale) * rows_[r].row.position * frequency(o, j);
          const double size = magnitude(o, rows_[r].row.position);
          if (present(o.factors)) angle /= weight(o.factors)[static_cast<std::size_t>(j)];
          const bool neighbours = o.layout == RopeLayout::kInterleaved;
          const auto first = static_cast<std::size_t>(head * o.head_dim + (neighbours ? 2 * j : j));
          const std::size_t second = first + static_cast<std::size_t>(neighbours ? 1 : half);
          double& a = value(o.out)[r][first];
          double& b = value(o.out)[r][second];
          const double rotated = a * std::cos(angle) - b * std::sin(angle);
          b = size * (a * std::sin(angle) + b * std::cos(angle));
          a = size * rotated;
        }
  }

  void apply(const op::Hadamard& o) {
    value(o.out) = value(o.x);
    for (std::vector<double>& row : value(o.out)) transform(row, o.order);
  }

  void apply(const op::StoreKv& o) {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].shadow != nullptr) continue;
      auto& cache = static_cast<ReferenceCache&>(*rows_[r].step->cache);
      const auto layer = static_cast<std::size_t>(o.layer), position = static_cast<std::size_t>(rows_[r].row.position);
      cache.k[layer][position] = value(o.k)[r];
      cache.v[layer][position] = value(o.v)[r];
    }
  }

  static bool sees(const RowRef& ref, Position j) {
    return plan_shows(ref.step->plan, ref.row.position, ref.shadow, j);
  }

  /// The first position that a row's window includes.
  static Position window_begin(const StepPlan& plan, Position i, const op::Attention& o) {
    if (o.window == 0) return 0;
    if (o.view != op::RowView::kPlan) return i - o.window + 1;
    const Position first = plan.causal_block > 0 ? i - i % plan.causal_block : plan.rows[0].position;
    return first - o.window + 1;
  }

  static double gate(double x, Activation activation) {
    if (activation == Activation::kSilu) return x / (1 + std::exp(-x));
    if (activation == Activation::kTanh || activation == Activation::kRelu)
      return activation == Activation::kTanh ? std::tanh(x) : std::max(x, 0.0);
    if (activation == Activation::kGelu) return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  }

  void apply(const op::Attention& o) {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      auto& cache = static_cast<ReferenceCache&>(*rows_[r].step->cache);
      const Matrix& keys = cache.k[static_cast<std::size_t>(o.layer)];
      const Matrix& vals = cache.v[static_cast<std::size_t>(o.layer)];
      const std::vector<double>& q = value(o.q)[r];
      std::vector<double> mixed(q.size(), 0.0);
      for (int head = 0; head < o.heads; ++head) {
        const auto q0 = static_cast<std::size_t>(head * o.head_dim);
        const auto k0 = static_cast<std::size_t>(head / (o.heads / o.kv_heads) * o.head_dim);
        std::vector<std::pair<std::size_t, double>> weights;
        double largest = -std::numeric_limits<double>::infinity();
        for (Position j = 0; j < cache.capacity(); ++j) {
          if (!sees(rows_[r], j)) continue;
          if (j < window_begin(rows_[r].step->plan, rows_[r].row.position, o)) continue;
          if (o.view == op::RowView::kCausal && j > rows_[r].row.position) continue;
          double dot = 0;
          for (std::size_t d = 0; d < static_cast<std::size_t>(o.head_dim); ++d)
            dot += q[q0 + d] * keys[static_cast<std::size_t>(j)][k0 + d];
          weights.emplace_back(static_cast<std::size_t>(j), dot * static_cast<double>(o.scale));
          largest = std::max(largest, weights.back().second);
        }
        double total = 0;
        for (auto& [j, w] : weights) total += w = std::exp(w - largest);
        for (const auto& [j, w] : weights)
          for (std::size_t d = 0; d < static_cast<std::size_t>(o.head_dim); ++d)
            mixed[q0 + d] += w / total * vals[j][k0 + d];
      }
      value(o.out).push_back(std::move(mixed));
    }
  }

  void apply(const op::Glu& o) {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      std::vector<double> row = value(o.gate)[r];
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = gate(row[i], o.activation) * (o.up == kNoId ? 1 : value(o.up)[r][i]);
      value(o.out).push_back(std::move(row));
    }
  }

  void apply(const op::Add& o) {
    value(o.out) = value(o.a);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      for (std::size_t i = 0; i < value(o.out)[r].size(); ++i) value(o.out)[r][i] += value(o.b)[r][i];
  }

  void apply(const op::Scale& o) {
    value(o.out) = value(o.x);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const WeightId own = rows_[r].step->plan.region == Region::kCanvas ? o.canvas : o.context;
      for (double& x : value(o.out)[r]) x *= static_cast<double>(o.factor) * (present(own) ? weight(own)[0] : 1);
    }
  }

  void apply(const op::Select& o) {
    for (std::size_t r = 0; r < rows_.size(); ++r)
      value(o.out).push_back(value(rows_[r].step->plan.region == Region::kCanvas ? o.canvas : o.context)[r]);
  }

  /// Indices of the `count` largest, lower index first among equals.
  static std::vector<std::size_t> largest(const std::vector<double>& keys, std::int32_t count) {
    std::vector<std::size_t> order(keys.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
    order.resize(static_cast<std::size_t>(count));
    return order;
  }

  /// Sets keys of the experts excluded by a group limit or a block's pool to -inf.
  void limit(const op::Route& o, const Matrix& keys, std::size_t r, std::vector<double>& own) const {
    std::vector<bool> allowed(own.size(), o.groups <= 1 && o.capacity == 0);
    if (o.groups > 1) {
      const std::size_t size = own.size() / static_cast<std::size_t>(o.groups);
      std::vector<double> sums;
      for (std::size_t g = 0; g < own.size(); g += size) {
        std::vector<double> group(own.begin() + static_cast<std::ptrdiff_t>(g),
                                  own.begin() + static_cast<std::ptrdiff_t>(g + size));
        std::sort(group.rbegin(), group.rend());
        sums.push_back(group[0] + (size > 1 ? group[1] : 0));
      }
      for (const std::size_t g : largest(sums, o.groups_used))
        for (std::size_t i = 0; i < size; ++i) allowed[g * size + i] = true;
    }
    if (o.capacity > 0) {
      std::vector<double> pool(own.size(), -std::numeric_limits<double>::infinity());
      for (std::size_t other = 0; other < rows_.size(); ++other)
        if (rows_[other].step == rows_[r].step && (rows_[other].shadow == nullptr) == (rows_[r].shadow == nullptr) &&
            rows_[other].row.position / o.block == rows_[r].row.position / o.block)
          for (std::size_t e = 0; e < pool.size(); ++e) pool[e] = std::max(pool[e], keys[other][e]);
      for (const std::size_t e : largest(pool, o.capacity)) allowed[e] = true;
    }
    for (std::size_t e = 0; e < own.size(); ++e)
      if (!allowed[e]) own[e] = -std::numeric_limits<double>::infinity();
  }

  void apply(const op::Route& o) {
    Matrix scores = value(o.logits);
    for (std::vector<double>& row : scores) {
      double total = 0;
      const double top = *std::max_element(row.begin(), row.end());
      for (double& s : row) total += s = o.score == GateScore::kSoftmax ? std::exp(s - top) : 1 / (1 + std::exp(-s));
      if (o.score == GateScore::kSoftmax)
        for (double& s : row) s /= total;
    }
    Matrix keys = scores;
    if (present(o.bias))
      for (std::vector<double>& row : keys)
        for (std::size_t e = 0; e < row.size(); ++e) row[e] += weight(o.bias)[e];
    for (std::size_t r = 0; r < keys.size(); ++r) {
      std::vector<double> own = keys[r];
      limit(o, keys, r, own);
      std::vector<std::size_t> chosen = largest(own, o.used);
      std::sort(chosen.begin(), chosen.end());
      double sum = 0;
      std::vector<double> out;
      for (const std::size_t e : chosen) {
        out.push_back(static_cast<double>(e));
        sum += scores[r][e];
      }
      for (const std::size_t e : chosen)
        out.push_back(static_cast<double>(o.scale) * scores[r][e] / (o.normalize ? sum + 1e-20 : 1) *
                      (present(o.expert_scale) ? weight(o.expert_scale)[e] : 1));
      value(o.out).push_back(std::move(out));
    }
  }

  /// Matrix `expert` of a stack, times x.
  std::vector<double> expert_product(const std::vector<double>& x, WeightId stack, std::size_t expert,
                                     std::size_t outputs) const {
    const std::vector<double>& w = weight(stack);
    std::vector<double> result(outputs);
    for (std::size_t n = 0; n < outputs; ++n)
      for (std::size_t k = 0; k < x.size(); ++k) result[n] += x[k] * w[(expert * outputs + n) * x.size() + k];
    return result;
  }

  void apply(const op::Experts& o) {
    const std::size_t inner = static_cast<std::size_t>(desc_.experts.width), used = value(o.route)[0].size() / 2;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const std::vector<double>& x = value(o.x)[r];
      std::vector<double> out(x.size(), 0.0);
      for (std::size_t j = 0; j < used; ++j) {
        const auto expert = static_cast<std::size_t>(value(o.route)[r][j]);
        std::vector<double> act = expert_product(x, o.gate, expert, inner);
        const std::vector<double> up = expert_product(x, o.up, expert, inner);
        for (std::size_t i = 0; i < inner; ++i) act[i] = gate(act[i], o.activation) * up[i];
        if (o.hadamard != 0) transform(act, o.hadamard);
        const std::vector<double> down = expert_product(act, o.down, expert, out.size());
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += value(o.route)[r][used + j] * down[i];
      }
      value(o.out).push_back(std::move(out));
    }
  }

  void apply(const auto& o) { throw std::logic_error(std::string(op_name(o))); }  // of drafters: see drafter_test.cpp
  void apply(const op::GatherScored& o) {
    for (std::size_t index : scored_) value(o.out).push_back(value(o.x)[index]);
  }

  void apply(const op::ScoreHead& o) {
    for (const auto& row : value(o.x)) {
      logits_.push_back(product(row, o.weight, o.bias));
      const auto cap = static_cast<double>(o.softcap);
      if (cap != 0)
        for (double& z : logits_.back()) z = cap * std::tanh(z / cap);
    }
  }

  std::vector<Scores> scores() {
    std::vector<Scores> result(batch_.size());
    std::vector<std::size_t> first(batch_.size() + 1, 0);
    for (std::size_t s = 0; s < batch_.size(); ++s) first[s + 1] = first[s] + batch_[s].plan.scored.size();
    for (std::size_t s = 0; s < batch_.size(); ++s) {
      const bool partner = std::any_of(batch_.begin(), batch_.end(), [s](const SequenceStep& other) {
        return other.guidance && other.guidance->unconditional == static_cast<std::int32_t>(s);
      });
      if (partner) continue;
      for (std::size_t i = first[s]; i < first[s + 1]; ++i) {
        std::vector<double> z = logits_[i];
        if (const auto& guidance = batch_[s].guidance) {
          const auto& u = logits_[first[static_cast<std::size_t>(guidance->unconditional)] + i - first[s]];
          for (std::size_t t = 0; t < z.size(); ++t)
            z[t] = u[t] + (static_cast<double>(guidance->scale) + 1) * (z[t] - u[t]);
        }
        if (batch_[s].request.logits)
          for (double logit : z) result[s].logits.push_back(static_cast<float>(logit));
        for (const LogitQuery& query : batch_[s].request.queries)
          if (static_cast<std::size_t>(query.scored) == i - first[s])
            result[s].queried.push_back(static_cast<float>(z[static_cast<std::size_t>(query.token)]));
        result[s].rows.push_back(reference_score(z, rows_[scored_[i]].row.position, batch_[s].request));
      }
    }
    return result;
  }

  std::span<const SequenceStep> batch_;
  const ModelDesc& desc_;
  const std::vector<std::vector<double>>& weights_;
  std::vector<RowRef> rows_;
  std::vector<std::size_t> scored_;
  std::vector<Matrix> values_;
  Matrix logits_;
};

}  // namespace

ReferenceBackend::ReferenceBackend(const ModelDesc& desc, std::function<Graph(StepShape)> build, const Weights& weights)
    : desc_(desc), build_(std::move(build)) {
  for (const WeightView& view : weights) {
    if (!view.present()) {
      weights_.emplace_back();
      continue;
    }
    std::vector<float> values(static_cast<std::size_t>(element_count(view.shape)));
    codec(view.type).dequantize(view.data.data(), values.data(), static_cast<std::int64_t>(values.size()));
    weights_.emplace_back(values.begin(), values.end());
  }
}

Expected<std::unique_ptr<KvCache>> ReferenceBackend::make_cache(Position capacity) {
  return std::unique_ptr<KvCache>(std::make_unique<ReferenceCache>(capacity));
}

Expected<std::vector<Scores>> ReferenceBackend::forward(std::span<const SequenceStep> batch) {
  Pass pass(batch, desc_, weights_);
  return pass.run(build_(pass.shape()));
}

}  // namespace dllm::test
