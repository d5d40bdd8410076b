#include "npu_backend/accuracy/accuracy_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "backend/failed_pass.h"
#include "base/try.h"
#include "npu_backend/accuracy/executor.h"
#include "npu_backend/accuracy/sampling.h"
#include "npu_backend/functional/host_reduction.h"
#include "npu_backend/functional/mixed_row.h"
#include "npu_compiler/compiler/tiled_weights.h"
#include "npu_compiler/compiler/weights_image.h"
#include "numerics/packed.h"

namespace dllm::npu::accuracy {

class AccuracyBackend::Impl {
 public:
  struct LaidOutModel {
    ModelDesc desc;
    GraphFactory graph;
    Weights weights;
    std::vector<std::vector<std::byte>> rows;  ///< bytes of weights that were in tiles
    ModelLayout layout;
  };
  Impl(LaidOutModel model, NumericsProfile profile, int threads, const Progress& progress)
      : desc_(std::move(model.desc)),
        graph_(std::move(model.graph)),
        rows_(std::move(model.rows)),
        weights_(std::move(model.weights)),
        profile_(std::move(profile)),
        layout_(std::move(model.layout)),
        vocab_(head_vocab(graph_({1, 1}))),
        hands_scored_(hands_out_scored(graph_({2, 1}))),
        mixes_apart_(mixes_apart(graph_({1, 1}))),
        executor_(graph_({1, 1}), layout_, weights_, profile_, threads, progress) {}

  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) {
    StepShape shape{0, 0};
    for (const SequenceStep& step : batch) {
      if (!step.plan.mixtures.empty() && !mixes_apart_)
        return Error{ErrorCode::kUnsupported, "rows that mix the embeddings of several tokens do not run on the NPU",
                     "--smooth", "leave the option out"};
      shape.rows += step.plan.row_count();
      shape.scored += static_cast<std::int64_t>(step.plan.scored.size());
    }
    // First, as what branches see of each other follows from it.
    for (const SequenceStep& step : batch) static_cast<LaneKvCache&>(*step.cache).record(step.plan.rows);
    const auto vocab = static_cast<std::size_t>(vocab_);
    std::vector<std::vector<float>> logits(batch.size());
    const bool heads = vocab > 0;
    if (shape.rows > 0) {
      std::vector<float> all = executor_.forward(graph_(shape), batch);
      std::size_t row = 0;
      for (std::size_t s = 0; s < batch.size() && heads; ++s)
        for (std::size_t i = 0; i < batch[s].plan.scored.size(); ++i, ++row) {
          const std::span<float> one(all.data() + row * vocab, vocab);
          store_logits(profile_, one);
          logits[s].insert(logits[s].end(), one.begin(), one.end());
        }
    }
    std::vector<Scores> scores = heads ? score_on_host(batch, logits, vocab_) : std::vector<Scores>(batch.size());
    hand_out(batch, executor_.hidden(), hands_scored_, scores);
    for (std::size_t s = 0; s < batch.size(); ++s)
      for (std::size_t i = 0; i < scores[s].rows.size() && !batch[s].guidance; ++i)
        reduce(std::span<const float>(logits[s]).subspan(i * vocab, vocab), batch[s].request, scores[s].rows[i]);
    return scores;
  }

  /// In the profile's sampling precision.
  void reduce(std::span<const float> logits, const ScoreRequest& request, RowScore& score) const {
    const auto vlen = static_cast<std::size_t>(layout_.machine.vlen);
    if (draws_on_device(profile_.sampling, request))
      reduce_draw(profile_.sampling, logits, vlen, request, score);
    else
      reduce_confidence(profile_.sampling, logits, vlen, score);
  }

  ModelDesc desc_;
  GraphFactory graph_;
  std::vector<std::vector<std::byte>> rows_;
  Weights weights_;
  NumericsProfile profile_;
  ModelLayout layout_;
  std::int64_t vocab_;  ///< a drafter's head may have fewer tokens than its model
  bool hands_scored_;   ///< the graph hands out scored rows only
  bool mixes_apart_;    ///< the graph reads mixtures apart from tokens
  Executor executor_;
};

AccuracyBackend::AccuracyBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AccuracyBackend::~AccuracyBackend() = default;

Expected<std::unique_ptr<AccuracyBackend>> AccuracyBackend::create(ModelDesc desc, GraphFactory factory,
                                                                   Weights weights, NumericsProfile profile,
                                                                   int threads, const Progress& progress) {
  const Graph graph = factory({1, 1});
  DLLM_TRY(const MachineConfig machine, profile.machine());
  DLLM_TRY(ModelLayout layout, make_layout(graph, weights, machine, std::max<std::int64_t>(1, desc.context_length)));
  DLLM_CHECK_OK(check_tiles(layout, weights));
  try {
    std::vector<std::vector<std::byte>> rows;
    for (std::size_t id = 0; id < weights.size(); ++id) {
      WeightView& view = weights[id];
      const auto element = tile_element(view.type);
      if (!element) continue;
      rows.push_back(from_tiles(*layout.find(static_cast<WeightId>(id), WeightUse::kMatrix), view, layout.machine));
      view = {*element == MxElement::kQ4_0 ? TensorType::kQ4_0 : TensorType::kQ8_0, view.shape, rows.back(), false};
    }
    Impl::LaidOutModel model{std::move(desc), std::move(factory), std::move(weights), std::move(rows),
                             std::move(layout)};
    return std::unique_ptr<AccuracyBackend>(
        new AccuracyBackend(std::make_unique<Impl>(std::move(model), std::move(profile), threads, progress)));
  } catch (const Executor::Stopped&) {
    return Error{ErrorCode::kCancelled, "the load was stopped", "", ""};
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, "no memory for the weights in the profile's formats", "--numerics", ""};
  }
}

void AccuracyBackend::copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions) {
  to.copy_rows(from, positions);
}

const ModelDesc& AccuracyBackend::desc() const { return impl_->desc_; }

bool AccuracyBackend::runs_branches() const { return !impl_->profile_.smoothing.any(); }
Expected<std::unique_ptr<KvCache>> AccuracyBackend::make_cache(Position capacity) {
  try {
    return std::unique_ptr<KvCache>(std::make_unique<LaneKvCache>(capacity, impl_->executor_.head_shapes(),
                                                                  impl_->profile_.smoothing, impl_->profile_.vector));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, fmt::format("no memory for a KV cache of {} positions", capacity), "",
                 "lower the context length"};
  }
}
Expected<std::vector<Scores>> AccuracyBackend::forward(std::span<const SequenceStep> batch) {
  try {
    auto scores = impl_->forward(batch);
    if (!scores) invalidate_rows(batch);
    return scores;
  } catch (const std::bad_alloc&) {
    invalidate_rows(batch);
    return Error{ErrorCode::kResource, "no memory for a step", "--numerics", ""};
  }
}
const NumericsProfile& AccuracyBackend::profile() const { return impl_->profile_; }

}  // namespace dllm::npu::accuracy
