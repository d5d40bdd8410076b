#include "quant/stage_inputs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "quant/canvas_experts.h"

namespace dllm {
namespace {

constexpr std::size_t kBatchRows = 128;  // of an expert, which are copied

}  // namespace

ProductInputs StageInputs::all() const {
  ProductInputs inputs;
  inputs.has_residual = stage_.residual != kNoId;
  if (file_.chunks() > 0) inputs.width = file_.rows(0, stage_.input).width;
  inputs.each = [this](const std::function<void(const InputBatch&)>& visit) {
    for (std::size_t c = 0; c < file_.chunks(); c += step_) {
      InputBatch batch;
      batch.given = file_.rows(c, stage_.input).values;
      if (step_ > 1) {
        batch.exact = file_.rows(c + 1, stage_.input).values;
        if (stage_.residual != kNoId) {
          batch.residual = file_.rows(c, stage_.residual).values;
          batch.exact_residual = file_.rows(c + 1, stage_.residual).values;
        }
      }
      visit(batch);
      for (std::size_t i = 0; i < step_; ++i) file_.drop(c + i);
    }
  };
  return inputs;
}

std::int64_t StageInputs::count() const {
  std::int64_t rows = 0;
  for (std::size_t c = 0; c < file_.chunks(); c += step_) rows += file_.rows(c, stage_.input).rows();
  return rows;
}

std::vector<std::vector<StageInputs::RowId>> StageInputs::routed(std::int64_t experts) const {
  std::vector<std::vector<RowId>> rows(static_cast<std::size_t>(experts));
  for (std::size_t c = 0; c < file_.chunks(); c += step_) {
    const StoredRows& route = file_.rows(c, stage_.experts->route);
    for (std::int64_t r = 0; r < route.rows(); ++r) {
      const std::span<const float> choice = route.row(r);
      for (std::size_t j = 0; j < choice.size() / 2; ++j)
        if (choice[choice.size() / 2 + j] != 0)
          rows[static_cast<std::size_t>(choice[j])].push_back(
              {static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(r)});
    }
  }
  return rows;
}

std::vector<StageInputs::RowId> StageInputs::enough(const std::vector<RowId>& routed, std::int64_t width) const {
  const std::int64_t missing = width - static_cast<std::int64_t>(routed.size()), total = count();
  if (missing <= 0) return routed;
  std::set<std::pair<std::uint32_t, std::uint32_t>> taken;
  for (const RowId& id : routed) taken.insert({id.chunk, id.row});
  std::vector<RowId> rows = routed;
  std::int64_t index = 0, next = 0;  // the next of `missing` evenly spaced rows
  for (std::size_t c = 0; c < file_.chunks(); c += step_)
    for (std::int64_t r = 0; r < file_.rows(c, stage_.input).rows(); ++r, ++index) {
      if (next >= missing || index < next * total / missing) continue;
      while (next < missing && next * total / missing <= index) ++next;
      const RowId id{static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(r)};
      if (!taken.contains({id.chunk, id.row})) rows.push_back(id);
    }
  return rows;
}

std::vector<float> StageInputs::gather(std::span<const RowId> rows, bool exact) const {
  std::vector<float> values;
  for (const RowId& id : rows) {
    const std::span<const float> row = file_.rows(id.chunk + (exact ? 1 : 0), stage_.input).row(id.row);
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

ProductInputs StageInputs::expert(const std::vector<RowId>& rows) const {
  ProductInputs inputs;
  inputs.width = file_.rows(0, stage_.input).width;
  inputs.each = [this, &rows](const std::function<void(const InputBatch&)>& visit) {
    for (std::size_t first = 0; first < rows.size(); first += kBatchRows) {
      const auto some = std::span(rows).subspan(first, std::min(kBatchRows, rows.size() - first));
      const std::vector<float> given = gather(some, false);
      const std::vector<float> exact = step_ > 1 ? gather(some, true) : std::vector<float>();
      visit({.given = given, .exact = exact, .residual = {}, .exact_residual = {}});
    }
  };
  return inputs;
}

ProductInputs StageInputs::expert_down(const std::vector<RowId>& rows, const ExpertMatrices& given,
                                       const ExpertMatrices& exact) const {
  ProductInputs inputs;
  inputs.width = given.gate.shape[1];
  inputs.each = [this, before = expert(rows), given, exact](const std::function<void(const InputBatch&)>& visit) {
    before.each([&](const InputBatch& batch) {
      const std::vector<float> inner = expert_inner(*stage_.experts, given.gate, given.up, batch.given, pool_);
      const std::vector<float> right =
          step_ > 1 ? expert_inner(*stage_.experts, exact.gate, exact.up, batch.exact, pool_) : std::vector<float>();
      visit({.given = inner, .exact = right, .residual = {}, .exact_residual = {}});
    });
  };
  return inputs;
}

}  // namespace dllm
