// Calibration of layers of experts: each expert's matrices against GPTQ's definition over the rows that use it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/testing/hf_directory.h"
#include "quant/block_grid.h"
#include "quant/calibrated.h"
#include "quant/canvas_experts.h"
#include "quant/canvas_runner.h"
#include "quant/testing/row_test_data.h"
#include "random_model.h"

namespace dllm {
namespace {

using Matrix = std::vector<std::vector<double>>;

std::vector<CalibrationCanvas> canvases_of(std::int64_t rows) {
  std::vector<CalibrationCanvas> canvases;
  for (std::int64_t first = 0; first < rows; first += 50) {
    CalibrationCanvas& canvas = canvases.emplace_back();
    for (std::int64_t i = first; i < std::min(rows, first + 50); ++i)
      canvas.tokens.push_back(static_cast<TokenId>((31 * i + 7 * (i / 3)) % 80));
    canvas.scored = {0};
    canvas.targets = {1};
  }
  return canvases;
}

CalibrationOptions calibration_over(std::int64_t rows, const std::string& method) {
  CalibrationOptions options;
  options.method = method;
  options.canvases = [rows](const Model&) { return canvases_of(rows); };
  return options;
}

WriteOptions mxint4() {
  WriteOptions options;
  options.type = "mxint4";
  options.threads = 2;
  return options;
}

/// The rows from which an expert is calibrated: those that use it, and evenly spaced ones if they are too few.
std::vector<std::int64_t> rows_of(const ActivationRows& route, std::int64_t expert, std::int64_t columns) {
  std::vector<std::int64_t> rows;
  const auto uses = [&](std::int64_t r) {
    return expert_share({route.row(r), static_cast<std::size_t>(route.width)}, expert) != 0;
  };
  for (std::int64_t r = 0; r < route.rows(); ++r)
    if (uses(r)) rows.push_back(r);
  const std::int64_t missing = columns - static_cast<std::int64_t>(rows.size());
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < missing; ++i) {
    const std::int64_t r = i * route.rows() / missing;
    if (r != last && !uses(r)) rows.push_back(r);
    last = r;
  }
  return rows;
}

/// GPTQ by its definition in float64, with an inverse per column. `x`: [rows][n].
std::vector<float> gptq_by_definition(const WeightView& weight, const std::vector<float>& x) {
  const auto n = static_cast<std::size_t>(weight.shape[0]), outputs = static_cast<std::size_t>(weight.shape[1]);
  Matrix h(n, std::vector<double>(n, 0.0)), w(outputs);
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t r = 0; r < x.size(); r += n)
        h[i][k] += static_cast<double>(x[r + i]) * static_cast<double>(x[r + k]);
    mean += h[i][i] / static_cast<double>(n);
  }
  for (std::size_t i = 0; i < n; ++i) h[i][i] += 0.01 * mean;
  std::vector<float> row(n), result;
  for (std::size_t r = 0; r < outputs; ++r) {
    decode_weight_row(weight, static_cast<std::int64_t>(r), row);
    w[r].assign(row.begin(), row.end());
  }
  const BlockGrid grid = *BlockGrid::of(*tensor_type_from_name("mxint4"));
  std::vector<std::vector<std::uint16_t>> chosen(outputs);
  for (std::size_t j = n; j-- > 0;) {
    const Matrix inverse = test::inverse_of(h, j + 1);
    for (std::size_t r = 0; r < outputs; ++r) {
      if (j % 32 == 31) grid.scales(std::span(w[r]).subspan(j - 31, 32), chosen[r]);
      const double value = grid.levels(chosen[r].front()).nearest(w[r][j]).value;
      const double error = (w[r][j] - value) / inverse[j][j];
      for (std::size_t k = 0; k < j; ++k) w[r][k] -= error * inverse[k][j];
      w[r][j] = value;
    }
  }
  for (const auto& each : w)
    for (const double value : each) result.push_back(static_cast<float>(value));
  return result;
}

std::vector<float> values_of(const WeightView& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.shape[0] * weight.shape[1]));
  for (std::int64_t r = 0; r < weight.shape[1]; ++r)
    decode_weight_row(weight, r,
                      std::span(values).subspan(static_cast<std::size_t>(r * weight.shape[0]),
                                                static_cast<std::size_t>(weight.shape[0])));
  return values;
}

/// 400 rows are enough for all experts; 60 are too few for gate and up; of 2, most experts see none.
TEST(ExpertCalibration, EveryExpertEqualsGptqsDefinition) {
  const ModelSource source = test::random_source({.architecture = "llada-moe", .layers = 1});
  const auto original = *Model::load(source);
  for (const std::int64_t rows : {400, 60, 2}) {
    const test::TempDirectory directory;
    WriteOptions options = mxint4();
    options.recipe.token_embedding_type = TensorType::kF32;
    const auto report = write_quantized(source, options, calibration_over(rows, "gptq"), directory.file("q.gguf"));
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_TRUE(report->warnings.empty());
    // What comes before the experts is quantized when they are calibrated, but for the embedding, which stays here.
    const auto written = *Model::load(*open_source(directory.file("q.gguf")));
    const Graph graph = written->build({1, 1});
    const auto at = std::ranges::find_if(graph.ops, [](const Op& o) { return std::holds_alternative<op::Experts>(o); });
    ASSERT_NE(at, graph.ops.end());
    const auto& o = std::get<op::Experts>(*at);
    ThreadPool pool(1);
    const auto canvases = canvases_of(rows);
    CanvasChunk chunk(canvases);
    CanvasRunner(graph, written->weights(), 0, pool).run(chunk, 0, at - graph.ops.begin());
    const ActivationRows &x = chunk.values.at(o.x), &route = chunk.values.at(o.route);
    const auto gathered = [&](std::int64_t expert, std::int64_t columns) {
      std::vector<float> values;
      for (const std::int64_t r : rows_of(route, expert, columns))
        values.insert(values.end(), x.row(r), x.row(r) + x.width);
      return values;
    };
    const auto old = [&](WeightId id, std::int64_t e) {
      return expert_matrix(original->weights()[static_cast<std::size_t>(id)], e);
    };
    const auto now = [&](WeightId id, std::int64_t e) {
      return expert_matrix(written->weights()[static_cast<std::size_t>(id)], e);
    };
    for (std::int64_t e = 0; e < 8; ++e) {
      const std::vector<float> outer = gathered(e, 64);
      for (const WeightId id : {o.gate, o.up})
        EXPECT_EQ(values_of(now(id, e)), gptq_by_definition(old(id, e), outer)) << rows << " rows, expert " << e;
      const std::vector<float> inner = expert_inner(o, now(o.gate, e), now(o.up, e), gathered(e, 32), pool);
      EXPECT_EQ(values_of(now(o.down, e)), gptq_by_definition(old(o.down, e), inner)) << rows << " rows, expert " << e;
    }
  }
}

/// What the head reads, over some canvases.
std::vector<float> head_input(const Model& model) {
  const Graph graph = model.build({1, 1});
  ThreadPool pool(2);
  const auto canvases = canvases_of(400);
  CanvasChunk chunk(canvases);
  const auto last = static_cast<std::int64_t>(graph.ops.size()) - 1;
  CanvasRunner(graph, model.weights(), model.desc().causal_block, pool).run(chunk, 0, last);
  return chunk.values.at(std::get<op::ScoreHead>(graph.ops.back()).x).values;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}

class ExpertModels : public testing::TestWithParam<const char*> {};

TEST_P(ExpertModels, EachMethodLessensTheError) {
  const ModelSource source = test::random_source(
      {.architecture = GetParam(), .kv_heads = 2, .experts = {.count = 8, .used = 3, .width = 32, .shared_width = 32}});
  const std::vector<float> exact = head_input(**Model::load(source));
  const auto error = [&](const char* method) {
    const test::TempDirectory directory;
    const auto report = write_quantized(source, mxint4(), calibration_over(400, method), directory.file("q.gguf"));
    if (!report) ADD_FAILURE() << report.error().message();
    return report ? distance(exact, head_input(**Model::load(*open_source(directory.file("q.gguf"))))) : 0;
  };
  const double nearest = error("rtn"), gptq = error("gptq"), corrected = error("gptq+search+correct");
  EXPECT_LT(gptq, nearest);
  EXPECT_LT(corrected, gptq);
}

// A softmax over all experts; sigmoids with a bias and experts that every row uses; a mask of blocks.
INSTANTIATE_TEST_SUITE_P(Architectures, ExpertModels, testing::Values("llada-moe", "llada2", "sdar-moe"));

TEST(ExpertCalibration, ContinuesAfterAnInterruptionBetweenExperts) {
  const ModelSource source = test::random_source({.architecture = "llada-moe"});
  const test::TempDirectory directory;
  const auto whole = write_quantized(source, mxint4(), calibration_over(60, "gptq+correct"), directory.file("whole"));
  ASSERT_TRUE(whole) << whole.error().message();
  WriteOptions stopping = mxint4();
  for (std::size_t budget = 5;; budget += 3) {
    stopping.cancelled = [budget, used = std::size_t{0}]() mutable { return ++used > budget; };
    const auto report = write_quantized(source, stopping, calibration_over(60, "gptq+correct"), directory.file("x"));
    if (report) break;
    ASSERT_EQ(report.error().code, ErrorCode::kCancelled);
    ASSERT_FALSE(std::filesystem::exists(directory.file("x")));
    ASSERT_LT(budget, 200u);
  }
  EXPECT_EQ(test::read_text(directory.file("x")), test::read_text(directory.file("whole")));
}

}  // namespace
}  // namespace dllm
