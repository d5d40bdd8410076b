#include "quant/product_quantizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "base/to_size.h"
#include "base/try.h"
#include "numerics/mx_tensor.h"
#include "quant/canvas_math.h"

namespace dllm {
namespace {

constexpr std::int64_t kPieceRows = 16;
constexpr std::int64_t kPanelElements = std::int64_t{1} << 20;  // 8 MB in float64

std::int64_t rows_of(const WeightView& weight) { return element_count(weight.shape) / weight.shape[0]; }

/// Adds x^T ((y - x) w + e) over the rows of a batch to `target`, for row `row` of the matrix.
void add_target(const InputBatch& batch, std::span<const double> w, std::int64_t row, std::span<double> target) {
  const std::size_t n = w.size(), rows = batch.given.size() / n;
  for (std::size_t b = 0; b < rows; ++b) {
    const float *const x = batch.given.data() + b * n, *const y = batch.exact.data() + b * n;
    double lost = 0;
    if (!batch.residual.empty()) {
      const std::size_t at = b * (batch.residual.size() / rows) + to_size(row);
      lost = static_cast<double>(batch.exact_residual[at]) - static_cast<double>(batch.residual[at]);
    }
    double sums[8] = {};
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (std::size_t lane = 0; lane < 8; ++lane)
        sums[lane] += static_cast<double>(y[i + lane] - x[i + lane]) * w[i + lane];
    for (; i < n; ++i) sums[i % 8] += static_cast<double>(y[i] - x[i]) * w[i];
    for (const double sum : sums) lost += sum;
    for (std::size_t k = 0; k < n; ++k) target[k] += lost * static_cast<double>(x[k]);
  }
}

}  // namespace

Corrections::Corrections(const ProductInputs& inputs, std::int64_t outputs, ThreadPool& pool)
    : inputs_(inputs), pool_(pool) {
  if (inputs.has_residual || inputs.width > outputs) return;
  cross_.assign(to_size(inputs.width * inputs.width), 0.0);
  inputs.each([&](const InputBatch& batch) { add_differences(cross_, batch.given, batch.exact, inputs.width, pool_); });
}

void Corrections::targets(std::span<const double> w, std::int64_t first, std::span<double> targets) const {
  const auto n = to_size(inputs_.width);
  const auto rows = static_cast<std::int64_t>(w.size() / n);
  std::ranges::fill(targets, 0.0);
  const auto row_of = [n](auto values, std::int64_t r) { return values.subspan(to_size(r) * n, n); };
  if (cross_.empty()) {
    inputs_.each([&](const InputBatch& batch) {
      parallel(pool_, rows,
               [&](std::int64_t r, int) { add_target(batch, row_of(w, r), first + r, row_of(targets, r)); });
    });
    return;
  }
  parallel(pool_, rows, [&](std::int64_t r, int) {
    const std::span<const double> row = row_of(w, r);
    const std::span<double> target = row_of(targets, r);
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k) sum += cross_[i * n + k] * row[k];
      target[i] = sum;
    }
  });
}

Expected<void> ProductQuantizer::run(std::span<const MatrixJob> jobs, const ProductInputs* inputs) const {
  if (jobs.empty()) return {};
  std::optional<Triangle> hessian;
  std::optional<Corrections> corrections;
  if (method_.calibrated()) {
    hessian.emplace(inputs->width);
    inputs->each([&](const InputBatch& batch) { add_products(*hessian, batch.given, pool_); });
  }
  if (method_.correct) {
    std::int64_t outputs = 0;
    for (const MatrixJob& job : jobs) outputs += rows_of(job.weight);
    corrections.emplace(*inputs, outputs, pool_);
  }
  // Weights of one input usually have one type, and so share the factor.
  std::optional<RowQuantizer> quantizer;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const TensorType type = jobs[j].type;
    if (j == 0 || type != jobs[j - 1].type) {
      const bool last = std::ranges::all_of(jobs.subspan(j), [&](const MatrixJob& job) { return job.type == type; });
      std::optional<Triangle> own = last ? std::move(hessian) : hessian;
      quantizer.reset();
      DLLM_TRY(quantizer, RowQuantizer::create(*BlockGrid::of(type), method_, std::move(own), damping_, pool_));
    }
    DLLM_CHECK_OK(quantize(jobs[j], *quantizer, corrections ? &*corrections : nullptr));
  }
  return {};
}

Expected<void> ProductQuantizer::quantize(const MatrixJob& job, const RowQuantizer& quantizer,
                                          const Corrections* corrections) const {
  const std::int64_t columns = job.weight.shape[0], rows = rows_of(job.weight);
  const std::int64_t row_bytes = codec(job.type).row_bytes(columns);
  const std::int64_t panel = std::max(kPieceRows, kPanelElements / columns / kPieceRows * kPieceRows);
  // Scales in binary16 end at 65504.
  const double most = mx_format_of(job.type) ? HUGE_VAL : 32768.0;
  std::vector<double> w, targets;
  std::vector<std::byte> bytes;
  std::atomic<bool> fits{true};
  for (std::int64_t first = 0; first < rows; first += panel) {
    const std::int64_t count = std::min(panel, rows - first);
    w.resize(to_size(count * columns));
    bytes.assign(to_size(count * row_bytes), std::byte{});
    const auto row_of = [n = to_size(columns)](std::vector<double>& values, std::int64_t r, std::int64_t size = 1) {
      return std::span(values).subspan(to_size(r) * n, to_size(size) * n);
    };
    parallel_pieces(pool_, count, kPieceRows, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<float> row(to_size(columns));
      for (std::int64_t r = begin; r < end; ++r) {
        decode_weight_row(job.weight, first + r, row);
        std::ranges::copy(row, row_of(w, r).begin());
        if (!std::ranges::all_of(row, [&](float x) { return std::fabs(static_cast<double>(x)) < most; }))
          fits.store(false, std::memory_order_relaxed);
      }
    });
    if (!fits)
      return Error{ErrorCode::kInvalidFile, "a weight is not a finite number, or too large for the type", job.name,
                   "--method rtn says which one"};
    if (corrections != nullptr) {
      targets.resize(w.size());
      corrections->targets(w, first, targets);
    }
    parallel_pieces(pool_, count, kPieceRows, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; corrections != nullptr && r < end; ++r)
        quantizer.correct(row_of(w, r), row_of(targets, r));
      quantizer.quantize(row_of(w, begin, end - begin), columns,
                         std::span(bytes).subspan(to_size(begin * row_bytes), to_size((end - begin) * row_bytes)),
                         row_bytes);
    });
    DLLM_CHECK_OK(job.write(bytes));
  }
  return {};
}

}  // namespace dllm
