#include "quant/row_quantizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/try.h"
#include "quant/row_sums.h"

namespace dllm {
namespace {

struct NamedMethod {
  std::string_view name;
  QuantMethod method;
};
constexpr NamedMethod kMethods[] = {
    {"rtn", {}},
    {"x-clip", {ScaleChoice::kWeight, false}},
    {"y-clip", {ScaleChoice::kOutput, false}},
    {"gptq", {ScaleChoice::kOwn, true}},
    {"gptq+x-clip", {ScaleChoice::kWeight, true}},
    {"gptq+y-clip", {ScaleChoice::kOutput, true}},
    {"gptq+search", {ScaleChoice::kFinal, true}},
    {"gptq+correct", {ScaleChoice::kOwn, true, true}},
    {"gptq+x-clip+correct", {ScaleChoice::kWeight, true, true}},
    {"gptq+y-clip+correct", {ScaleChoice::kOutput, true, true}},
    {"gptq+search+correct", {ScaleChoice::kFinal, true, true}},
};

}  // namespace

std::optional<QuantMethod> quant_method(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &NamedMethod::name);
  return found == std::end(kMethods) ? std::nullopt : std::optional(found->method);
}

std::vector<std::string> quant_method_names() {
  std::vector<std::string> names;
  for (const NamedMethod& each : kMethods) names.emplace_back(each.name);
  return names;
}

double output_cost(std::span<const double> difference, const double* gram) {
  double cost = 0;
  for (std::size_t i = 0; i < difference.size(); ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < difference.size(); ++k) sum += gram[i * difference.size() + k] * difference[k];
    cost += difference[i] * sum;
  }
  return cost;
}

Expected<RowQuantizer> RowQuantizer::create(const BlockGrid& grid, const QuantMethod& method,
                                            std::optional<Triangle> hessian, double damping, ThreadPool& pool) {
  RowQuantizer result(grid, method);
  if (!method.calibrated()) return result;
  if (method.scale == ScaleChoice::kOutput) result.grams_ = diagonal_blocks(*hessian, grid.elements());
  if (!method.gptq) return result;
  damp(*hessian, damping);
  DLLM_CHECK_OK(invert_factor(*hessian, pool));
  result.inverse_factor_ = std::move(hessian);
  return result;
}

void RowQuantizer::round_nearest(std::span<const double> w, std::uint16_t scale, Block& block) const {
  const Levels levels = grid_.levels(scale);
  block.scale = scale;
  block.codes.resize(w.size());
  block.values.resize(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Levels::Level level = levels.nearest(w[i]);
    block.codes[i] = level.code;
    block.values[i] = level.value;
  }
}

void RowQuantizer::round_block(std::span<const double> w, std::int64_t first, std::uint16_t scale, Block& block) const {
  if (!method_.gptq) return round_nearest(w, scale, block);
  const Levels levels = grid_.levels(scale);
  block.scale = scale;
  block.codes.resize(w.size());
  block.errors.resize(w.size());
  block.values.assign(w.begin(), w.end());  // the current weights, then the rounded ones
  block.cost = 0;
  for (std::size_t j = w.size(); j-- > 0;) {
    const std::span<const float> inverse = inverse_factor_->row(first + static_cast<std::int64_t>(j));
    const Levels::Level level = levels.nearest(block.values[j]);
    const double error = (block.values[j] - level.value) / static_cast<double>(inverse.back());
    for (std::size_t k = 0; k < j; ++k)
      block.values[k] -= error * static_cast<double>(inverse[static_cast<std::size_t>(first) + k]);
    block.codes[j] = level.code;
    block.values[j] = level.value;
    block.errors[j] = error;
    block.cost += error * error;
  }
}

double RowQuantizer::cost(std::span<const double> w, std::int64_t first, std::uint16_t scale, Block& scratch) const {
  if (method_.scale == ScaleChoice::kFinal) {
    round_block(w, first, scale, scratch);
    return scratch.cost;
  }
  round_nearest(w, scale, scratch);
  for (std::size_t i = 0; i < w.size(); ++i) scratch.values[i] = w[i] - scratch.values[i];
  if (method_.scale == ScaleChoice::kOutput)
    return output_cost(scratch.values, grams_.data() + first * grid_.elements());
  double sum = 0;
  for (const double d : scratch.values) sum += d * d;
  return sum;
}

std::uint16_t RowQuantizer::choose_scale(std::span<const double> w, std::int64_t first, Block& scratch) const {
  thread_local std::vector<std::uint16_t> scales;
  grid_.scales(w, scales);
  if (method_.scale == ScaleChoice::kOwn || scales.size() == 1) return scales.front();
  std::uint16_t best = scales.front();
  double least = cost(w, first, best, scratch);
  for (std::size_t i = 1; i < scales.size(); ++i) {
    const double each = cost(w, first, scales[i], scratch);
    if (each < least) {
      least = each;
      best = scales[i];
    }
  }
  return best;
}

void RowQuantizer::correct(std::span<double> w, std::span<const double> t) const {
  // The inverse of the damped Hessian is L^-T L^-1.
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::span<const float> inverse = inverse_factor_->row(static_cast<std::int64_t>(i));
    double sum = 0;
    for (std::size_t k = 0; k <= i; ++k) sum += static_cast<double>(inverse[k]) * t[k];
    const float* const row = inverse.data();
    add_rows(w.data(), std::span(&sum, 1), &row, static_cast<std::int64_t>(i + 1));
  }
}

void RowQuantizer::quantize(std::span<double> w, std::int64_t columns, std::span<std::byte> out,
                            std::int64_t row_bytes) const {
  const std::int64_t rows = static_cast<std::int64_t>(w.size()) / columns, size = grid_.elements();
  const std::int64_t blocks = columns / size, block_bytes = row_bytes / blocks;
  Block block, scratch;
  std::vector<double> errors(method_.gptq ? static_cast<std::size_t>(rows * size) : 0);  // [rows][size]
  // All rows of a block before the next one, so that the factor's rows are read once for all of them.
  for (std::int64_t b = blocks; b-- > 0;) {
    const std::int64_t first = b * size;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::span<double> own(w.data() + r * columns + first, static_cast<std::size_t>(size));
      round_block(own, first, choose_scale(own, first, scratch), block);
      grid_.write(block.codes, block.scale, out.data() + r * row_bytes + b * block_bytes);
      std::ranges::copy(block.values, own.begin());
      if (method_.gptq) std::ranges::copy(block.errors, errors.begin() + r * size);
    }
    if (method_.gptq) distribute(errors, first, columns, w);
  }
}

void RowQuantizer::distribute(std::span<const double> errors, std::int64_t first, std::int64_t columns,
                              std::span<double> w) const {
  // Columns whose part of the factor, 32 rows of it, stays in the first-level cache for all rows of w.
  constexpr std::int64_t kTile = 128;
  const std::int64_t size = grid_.elements(), rows = static_cast<std::int64_t>(errors.size()) / size;
  for (std::int64_t column = 0; column < first; column += kTile) {
    const std::int64_t width = std::min(kTile, first - column);
    for (std::int64_t r = 0; r < rows; ++r) {
      double shares[kSumRows];
      const float* inverse[kSumRows];
      std::size_t count = 0;
      for (std::int64_t j = size; j-- > 0;) {
        if (const double error = errors[static_cast<std::size_t>(r * size + j)]; error != 0) {
          shares[count] = -error;
          inverse[count++] = inverse_factor_->row(first + j).data() + column;
        }
        if (count < kSumRows && j > 0) continue;
        add_rows(w.data() + r * columns + column, std::span(shares).first(count), inverse, width);
        count = 0;
      }
    }
  }
}

}  // namespace dllm
