// The pass of a calibration against the CPU backend.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <span>
#include <utility>

#include "cpu/cpu_backend.h"
#include "model/model.h"
#include "quant/canvas_runner.h"
#include "quant/importance_maker.h"
#include "quant/stages.h"
#include "random_model.h"

namespace dllm {
namespace {

std::vector<float> cpu_logits(const std::shared_ptr<const Model>& model, const CalibrationCanvas& canvas) {
  CpuOptions options;
  options.threads = 1;
  const auto backend = *CpuBackend::create(
      model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), options);
  const auto size = static_cast<Position>(canvas.tokens.size());
  const auto cache = *backend->make_cache(size);
  SequenceStep step;
  step.cache = cache.get();
  for (Position p = 0; p < size; ++p) step.plan.rows.push_back({p, canvas.tokens[static_cast<std::size_t>(p)]});
  step.plan.visible = {{0, size}};
  step.plan.causal_block = model->desc().causal_block;
  step.plan.scored = canvas.scored;
  step.request.logits = true;
  return (*backend->forward({&step, 1})).front().logits;
}

/// Stage by stage, as a calibration does, with only what a stage leaves to the next.
ActivationRows head_input(const Model& model, const std::vector<CalibrationCanvas>& canvases, const Weights& weights) {
  const Graph graph = model.build({1, 1});
  EXPECT_TRUE(CanvasRunner::check(graph));
  ThreadPool pool(2);
  const CanvasRunner runner(graph, weights, model.desc().causal_block, pool);
  std::map<ValueId, ActivationRows> kept;
  ValueId last = kNoId;
  const auto stages = calibration_stages(graph);
  for (const CalibrationStage& stage : *stages) {
    CanvasChunk chunk(canvases);
    chunk.values = std::move(kept);
    runner.run(chunk, stage.first, stage.end);
    kept.clear();
    for (const ValueId id : stage.live) kept[id] = chunk.values.at(id);
    last = stage.input;
  }
  return kept.at(last);
}

class CalibrationPass : public testing::TestWithParam<const char*> {};

TEST_P(CalibrationPass, ComputesTheModelsLogits) {
  const std::shared_ptr<const Model> model =
      *Model::load(test::random_source({.architecture = GetParam(), .kv_heads = 2}));
  std::vector<CalibrationCanvas> canvases(2);
  for (TokenId i = 0; i < 40; ++i) canvases[0].tokens.push_back((7 * i + 3) % 80);
  for (TokenId i = 0; i < 9; ++i) canvases[1].tokens.push_back((5 * i + 1) % 80);
  canvases[0].scored = {0, 5, 6, 39};
  canvases[1].scored = {8};
  const Weights& weights = model->weights();
  const ActivationRows x = head_input(*model, canvases, weights);
  ASSERT_EQ(x.rows(), 5);
  const Graph graph = model->build({1, 1});
  const auto* head = std::get_if<op::ScoreHead>(&graph.ops.back());
  ASSERT_NE(head, nullptr);
  const WeightView& matrix = weights[static_cast<std::size_t>(head->weight)];
  std::vector<float> row(static_cast<std::size_t>(x.width));
  std::int64_t first = 0;
  for (const CalibrationCanvas& canvas : canvases) {
    const std::vector<float> expected = cpu_logits(model, canvas);
    for (std::int64_t token = 0; token < model->desc().vocab; ++token) {
      decode_weight_row(matrix, token, row);
      for (std::size_t s = 0; s < canvas.scored.size(); ++s) {
        double sum = 0;
        for (std::size_t i = 0; i < row.size(); ++i)
          sum += static_cast<double>(row[i]) * static_cast<double>(x.row(first + static_cast<std::int64_t>(s))[i]);
        ASSERT_NEAR(sum, expected[s * static_cast<std::size_t>(model->desc().vocab) + static_cast<std::size_t>(token)],
                    2e-4)
            << GetParam() << " row " << s << " token " << token;
      }
    }
    first += static_cast<std::int64_t>(canvas.scored.size());
  }
}

// Plain, with biases of Q, K and V, with norms of heads and a mask of blocks, with experts.
INSTANTIATE_TEST_SUITE_P(Architectures, CalibrationPass,
                         testing::Values("llada", "dream", "sdar", "llada-moe", "llada2", "sdar-moe", "rnd1"));

/// Powers of two, so that both models compute the same floats.
TEST(CalibrationPass, ScalesOfMatricesAreThoseOfTheWholeMatrices) {
  ModelSource scaled = test::random_source({}), whole = scaled;
  std::deque<std::vector<float>> storage;
  const auto keep = [&storage](std::vector<float> values) {
    return std::as_bytes(std::span(storage.emplace_back(std::move(values))));
  };
  for (const auto& [base, by] : {std::pair("blk.0.attn_q", 4.f), {"blk.0.ffn_gate", 0.5f}, {"blk.1.ffn_down", 8.f}}) {
    scaled.tensors.push_back({std::string(base) + ".scale", TensorType::kF32, {1}, keep({by}), 0});
    for (SourceTensor& tensor : whole.tensors) {
      if (tensor.name != std::string(base) + ".weight") continue;
      std::vector<float> values(tensor.data.size() / sizeof(float));
      std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
      for (float& value : values) value *= by;
      tensor.data = keep(std::move(values));
    }
  }
  const auto one = *Model::load(scaled), other = *Model::load(whole);
  std::vector<CalibrationCanvas> canvases(2);
  for (TokenId i = 0; i < 20; ++i) canvases[static_cast<std::size_t>(i % 2)].tokens.push_back((7 * i + 3) % 80);
  for (CalibrationCanvas& canvas : canvases) canvas.scored = {1, 3};
  const ActivationRows found = head_input(*one, canvases, one->weights());
  EXPECT_EQ(found.values, head_input(*other, canvases, other->weights()).values);
  const auto plain = *Model::load(test::random_source({}));
  EXPECT_NE(found.values, head_input(*plain, canvases, plain->weights()).values);
  const auto sums = column_sums(*one, canvases, {}), unscaled = column_sums(*other, canvases, {});
  ASSERT_TRUE(sums) << sums.error().message();
  for (std::size_t i = 0; i < sums->size(); ++i) {
    const auto& [name, own] = (*sums)[i];
    ASSERT_EQ(name, (*unscaled)[i].first);
    const double by = name == "blk.0.attn_q.weight"     ? 4
                      : name == "blk.0.ffn_gate.weight" ? 0.5
                      : name == "blk.1.ffn_down.weight" ? 8
                                                        : 1;
    for (std::size_t c = 0; c < own.squares.size(); ++c)
      EXPECT_EQ(own.squares[c], by * by * (*unscaled)[i].second.squares[c]) << name << ", column " << c;
  }
}

TEST(CalibrationPass, WindowsAreRefused) {
  const auto model = *Model::load(test::random_source({.architecture = "diffusion-gemma", .kv_heads = 2}));
  const auto checked = CanvasRunner::check(model->build({1, 1}));
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace dllm
