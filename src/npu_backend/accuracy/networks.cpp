// Operators of networks from outside; the order of operations is that of the compiled programs.

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "npu_backend/accuracy/executor.h"
#include "npu_backend/functional/mixed_row.h"
#include "npu_compiler/analytic/activation.h"

namespace dllm::npu::accuracy {
namespace {

/// Instructions of the vector unit on the lanes of a row, each rounded once.
class LaneRow {
 public:
  LaneRow(VectorPrecision precision, const float* x, std::int64_t n)
      : precision_(precision), lanes_(x, x + static_cast<std::size_t>(n)) {}

  template <class Change>
  LaneRow& each(Change change) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i] = change(lanes_[i], i);
    round_lanes(precision_, lanes_);
    return *this;
  }
  LaneRow& times(float f) {
    return each([f](float x, std::size_t) { return x * f; });
  }
  LaneRow& plus(float f) {
    return each([f](float x, std::size_t) { return x + f; });
  }
  LaneRow& times(const float* other) {
    return each([other](float x, std::size_t i) { return x * other[i]; });
  }
  /// 1 / (1 + e^x)
  LaneRow& falling() {
    exp_lanes(precision_, lanes_);
    plus(1.0f);
    reciprocal_lanes(precision_, lanes_);
    return *this;
  }
  LaneRow& negate() {
    return each([](float x, std::size_t) { return 0.0f - x; });
  }
  const float* data() const { return lanes_.data(); }
  std::span<const float> lanes() const { return lanes_; }

 private:
  VectorPrecision precision_;
  std::vector<float> lanes_;
};

}  // namespace

void Executor::activation_row(Activation activation, const float* gate, const float* up, std::int64_t n,
                              float* out) const {
  LaneRow u(profile_.vector, gate, n);
  switch (activation) {
    case Activation::kRelu:
      u.each([](float x, std::size_t) { return vector_max(x, 0.0f); });
      break;
    case Activation::kTanh:
      u.times(-2.0f).falling().times(2.0f).plus(-1.0f);
      break;
    case Activation::kSilu:
      u.negate().falling().times(gate);
      break;
    case Activation::kGeluTanh:
      u.times(gate).times(round(kTanhForm1)).plus(round(kTanhForm0)).times(gate).negate().falling().times(gate);
      break;
    case Activation::kGelu: {
      LaneRow t = u.times(gate).each(
          [most = round(kErfFormMost)](float x, std::size_t) { return most < x || x != x ? most : x; });
      u = t;
      u.times(round(kErfForm2)).plus(round(kErfForm1)).times(t.data()).plus(round(kErfForm0)).times(gate);
      u.negate().falling().times(gate);
    }
  }
  if (up != nullptr) u.times(up);
  std::copy_n(u.data(), n, out);
}

void Executor::run(const op::LayerNorm& o) {
  const std::vector<float>&gain = vector(o.gain), &bias = vector(o.bias);
  const std::int64_t n = map(o.x).width, vlen = layout_.machine.vlen;
  const float shrink = norm_shrink(profile_.vector == VectorPrecision::kF16 ? LaneFormat::kF16 : LaneFormat::kBf16);
  const float inverse = round(1.0f / (shrink * static_cast<float>(n))), eps = round(o.eps);
  const auto mean_of = [&](const LaneRow& row) {
    float running = 0;
    for (std::int64_t at = 0; at < n; at += vlen)
      running = sum_tree(
          row.lanes().subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(std::min(vlen, n - at))), running);
    return round(round(running) * inverse);
  };
  parallel_items(pool_, value(o.x).rows, 16 * n, [&](std::int64_t r, int) {
    LaneRow row(profile_.vector, value(o.x).row(r), n), scaled = row;
    const float mean = mean_of(scaled.times(shrink));
    row.plus(-mean);
    LaneRow squares = row;
    const float variance = mean_of(squares.times(shrink).times(row.data()));
    row.times(vector_reciprocal(profile_.vector, vector_sqrt(profile_.vector, round(variance + eps))));
    row.times(gain.data()).each([&bias](float x, std::size_t i) { return x + bias[i]; });
    std::copy_n(row.data(), n, value(o.out).row(r));
  });
}

void Executor::run(const op::HiddenIn& o) {
  const LaneMap& lanes_of = map(o.out);
  std::int64_t r = 0;
  for (const SequenceStep& step : batch_) {
    const std::vector<float>& hidden = step.plan.hidden;
    const std::size_t columns = hidden.size() / std::max<std::size_t>(1, step.plan.rows.size());
    for (std::size_t i = 0; i < step.plan.rows.size(); ++i, ++r)
      for (std::int64_t c = 0; c < lanes_of.width; ++c)
        value(o.out).row(r)[lanes_of.lane(c)] = round(hidden[i * columns + static_cast<std::size_t>(o.first + c)]);
  }
}

void Executor::run(const op::HiddenOut& o) {
  const LaneMap& lanes_of = map(o.x);
  const std::int64_t rows = value(o.x).rows;
  hidden_.resize(static_cast<std::size_t>(rows * hidden_columns_));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < lanes_of.width; ++c)
      hidden_[static_cast<std::size_t>(r * hidden_columns_ + o.first + c)] = value(o.x).row(r)[lanes_of.lane(c)];
}

void Executor::run(const op::Scale& o) {
  for (std::int64_t r = 0; r < value(o.x).rows; ++r) {
    const WeightId number = on_canvas(r) ? o.canvas : o.context;
    LaneRow row(profile_.vector, value(o.x).row(r), map(o.x).width);
    if (number != kNoId) row.times(vector(number).front());
    if (number == kNoId || o.factor != 1.f) row.times(round(o.factor));
    std::ranges::copy(row.lanes(), value(o.out).row(r));
  }
}

void Executor::run(const op::Select& o) {
  for (std::int64_t r = 0; r < value(o.out).rows; ++r)
    std::ranges::copy(value(on_canvas(r) ? o.canvas : o.context).lanes(r), value(o.out).row(r));
}

void Executor::run_mixture(const op::Embed& o) {
  std::int64_t first = 0;
  value(o.out).clear();
  for (const SequenceStep& step : batch_) {
    for (const RowMixture& mixture : step.plan.mixtures) {
      const std::vector<float> row = mixed_row(mixture, o.scale, [&](TokenId token) {
        std::vector<float> own = weight_row(weight(o.table), token);
        round_lanes(profile_.vector, own);
        return own;
      });
      std::ranges::transform(row, value(o.out).row(first + mixture.row), [this](float x) { return round(x); });
    }
    first += step.plan.row_count();
  }
}

void Executor::cap(float softcap) {
  LaneRow z(profile_.vector, logits_.data(), static_cast<std::int64_t>(logits_.size()));
  z.times(round(-2.0f / softcap)).falling().times(2.0f).plus(-1.0f).times(round(softcap));
  std::ranges::copy(z.lanes(), logits_.begin());
}

}  // namespace dllm::npu::accuracy
