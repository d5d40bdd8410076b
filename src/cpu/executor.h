#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "cpu/attention.h"
#include "cpu/buffer.h"
#include "cpu/cpu_kv_cache.h"
#include "cpu/experts.h"
#include "cpu/hadamards.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/linear.h"
#include "cpu/packed_weights.h"
#include "cpu/profile.h"
#include "cpu/rank_gather.h"
#include "cpu/rope_table.h"
#include "cpu/route.h"
#include "cpu/score_head.h"
#include "cpu/weight_cache.h"
#include "graph/plan.h"
#include "graph/split.h"
#include "model/weights.h"

namespace dllm::cpu {

struct ExecutorOptions {
  const KernelSet& kernels;
  int threads = 1;
  bool packs = true;  ///< quantized weights, in the order of the kernels; false: all are read as the file has them
  WeightCacheOptions weight_cache{};
  std::function<bool(double)> progress{};  ///< of packing, in [0, 1]; false stops it
  SuperWeights super = SuperWeights::kNone;
  bool residual = false;  ///< products of codes have the arithmetic `residual`
  bool bf16_attention = false;
  Communicator* ranks = nullptr;  ///< borrowed; what the graph's op::Gather use
};

/// Runs graphs: owns the arena, the scratch memory and data derived from the weights (vectors as float32, RoPE tables).
/// After the first steps of the largest shape, a forward pass allocates only the scores it returns, a few dozen bytes
/// per sequence, the sorting space of requests that use top_k, top_p or top_tokens, a row per mixed embedding, and,
/// with a profile, the names of its entries.
class Executor {
 public:
  using Factory = std::function<Graph(StepShape)>;

  /// The weights fit the graph (checked by the backend). Throws std::bad_alloc, PackingStopped.
  Executor(Factory factory, Weights weights, const ExecutorOptions& options);

  /// An executor with its own threads and memory that shares the packed weights of `other` and may run at the same
  /// time. Throws std::bad_alloc.
  Executor(const Executor& other, int threads);

  /// Throws std::bad_alloc, RanksFailed; the plan's rows in the caches are then invalid.
  std::vector<Scores> forward(std::span<const SequenceStep> batch);

  /// Ends the step on the other ranks too, if there are some.
  void abort_ranks(const std::string& why) { gather_.abort(why); }

  /// `profile` is borrowed; nullptr: none.
  void set_profile(Profile* profile) { profile_ = profile; }

  const KernelSet& kernels() const { return kernels_; }
  int threads() const { return pool_.size(); }
  /// As PackedWeights::arithmetic(), and of attention if that is not f32.
  std::string arithmetic() const {
    return packed_.arithmetic(linear_.residual()) + (attention_.bf16() ? ", attention bf16" : "");
  }
  /// The weight cache, if the weights are in it; else null.
  const std::shared_ptr<const MappedFile>& weight_cache() const { return packed_.file(); }
  std::int64_t arena_bytes() const { return plan_ ? plan_->arena_floats * 4 : 0; }

 private:
  /// A row of the batch, all sequences concatenated.
  struct Row {
    std::int32_t sequence;
    Position position;
    TokenId token;
    const RowMixture* mixture;  ///< borrowed from the plan; nullptr: none
    Region region;
    bool shadow;           ///< stores no K/V
    const float* hidden;   ///< borrowed from the plan, for graphs that read it; nullptr: of a shadow row
    const float* given;    ///< in place of the token's embedding; nullptr: none
    std::int32_t columns;  ///< StepPlan::columns

    /// Whether both choose among the experts of one block.
    bool pools_with(const Row& other, std::int32_t block) const {
      return sequence == other.sequence && shadow == other.shadow && position / block == other.position / block;
    }
  };

  void begin(std::span<const SequenceStep> batch);
  void begin_hidden(std::vector<Scores>& scores);
  void begin_rows();
  void decode_vectors(const Graph& graph);

  /// The form of a value that its products need: with exact scales, with rounded ones, both, or neither.
  struct MadeActivations {
    std::array<Activations*, 2> kinds{};
    std::int64_t first_row = 0;
    void quantize(const KernelSet& kernels, const float* x, std::int64_t row, std::int64_t from,
                  std::int64_t count) const {
      for (Activations* activations : kinds)
        if (activations != nullptr) activations->quantize(kernels, x, row - first_row, from, count);
    }
    bool any() const { return kinds[0] != nullptr || kinds[1] != nullptr; }
  };

  std::vector<Scores> run_pass(std::span<const SequenceStep> batch);
  /// The runs of a plan, by their kind.
  void run_part(const OpRun& part);
  void run_rows(const OpRun& part);
  void run_products(const OpRun& part);
  void run_gated(const OpRun& part);
  Product product(const op::Linear& o);
  /// If the run after `part` multiplies `value`: starts the activations that its products need. The run that computes
  /// the value quantizes it, part by part.
  MadeActivations begin_activations(const OpRun& part, ValueId value);

  /// Each operator is executed in one way: alone by run(), row by row by row(), or, for Linear, in runs of products. An
  /// operator without any does not compile (executor.cpp).
  void run(const op::Attention& o);
  void run(const op::Route& o);
  void run(const op::Experts& o);
  void run(const op::BlockConv& o);
  void run(const op::GatherScored& o);
  void run(const op::ScoreHead& o);
  void run(const op::Gather& o);
  void gather_rows(const op::Gather& o);
  Activations* gathered_codes(const op::Gather& o);
  void gather_stored(std::int32_t layer);

  void row(const op::Embed& o, std::int64_t r);
  void row(const op::RmsNorm& o, std::int64_t r);
  void row(const op::LayerNorm& o, std::int64_t r);
  void row(const op::Rope& o, std::int64_t r);
  void row(const op::Hadamard& o, std::int64_t r);
  void row(const op::StoreKv& o, std::int64_t r);
  void row(const op::Glu& o, std::int64_t r);
  /// out = activation(gate) * up, for activations that have no kernel: those of networks from outside.
  static void activate(Activation activation, const float* gate, const float* up, std::int64_t n, float* out);
  void row(const op::Add& o, std::int64_t r);
  void row(const op::Scale& o, std::int64_t r);
  void row(const op::Select& o, std::int64_t r);
  void row(const op::HiddenIn& o, std::int64_t r);
  void row(const op::HiddenOut& o, std::int64_t r);

  // Functions rather than constants: clang evaluates a constant's initializer while the class is incomplete.
  template <class O>
  static consteval bool runs_alone() {
    return requires(Executor& executor, const O& o) { executor.run(o); };
  }
  template <class O>
  static consteval bool runs_by_row() {
    return requires(Executor& executor, const O& o) { executor.row(o, std::int64_t{0}); };
  }
  template <class... O>
  static consteval bool each_has_one_way(const std::variant<O...>*) {
    return ((int{runs_alone<O>()} + int{runs_by_row<O>()} + int{std::is_same_v<O, op::Linear>} == 1) && ...);
  }

  /// run_rows() makes the entry before workers use it.
  RopeTable& rope_table(const op::Rope& o);

  float* value(ValueId id) { return arena_.as<float>() + plan_->offset[static_cast<std::size_t>(id)]; }
  std::int64_t width(ValueId id) const { return plan_->graph.value(id).width; }
  /// Rows [first_row(), first_row() + rows()) are computed here.
  std::int64_t rows(ValueId id) const {
    const auto i = static_cast<std::size_t>(id);
    if (plan_->own_rows[i]) return plan_->scored[i] ? own_scored_.count : own_rows_.count;
    return static_cast<std::int64_t>(plan_->scored[i] ? head_.gather().size() : rows_.size());
  }
  std::int64_t first_row(ValueId id) const {
    const auto i = static_cast<std::size_t>(id);
    if (!plan_->own_rows[i]) return 0;
    return plan_->scored[i] ? own_scored_.first : own_rows_.first;
  }
  float* first_value(ValueId id) { return value(id) + first_row(id) * width(id); }
  /// A vector of the model as float32; nullptr if there is none.
  const float* vector(WeightId id) const {
    return id == kNoId || vectors_[static_cast<std::size_t>(id)].empty()
               ? nullptr
               : vectors_[static_cast<std::size_t>(id)].data();
  }
  ExpertStack stack(WeightId id) const { return {&weight(id), packed_.find(id)}; }
  const WeightView& weight(WeightId id) const { return weights_[static_cast<std::size_t>(id)]; }
  CpuKvCache& cache(std::int32_t sequence) {
    return static_cast<CpuKvCache&>(*batch_[static_cast<std::size_t>(sequence)].cache);
  }

  Factory factory_;
  Weights weights_;
  const KernelSet& kernels_;
  ThreadPool pool_;
  LinearRunner linear_;
  std::shared_ptr<PackedWeights> shared_packed_;  ///< written while the first executor is made, never later
  const PackedWeights& packed_;
  AttentionRunner attention_;
  RouteRunner route_;
  ExpertRunner experts_;
  ScoreHead head_;
  std::vector<std::vector<float>> vectors_;  ///< by WeightId: gains, biases, factors
  std::vector<float> ones_;                  ///< the gain of norms without one, and what an activation alone multiplies

  Hadamards hadamards_;
  RankGather gather_;

  std::optional<ExecutionPlan> plan_;
  Buffer arena_;
  struct RopeEntry {
    op::Rope spec;
    RopeTable table;

    bool serves(const op::Rope& o) const { return spec.turns_like(o) && spec.factors == o.factors; }
  };
  std::vector<RopeEntry> ropes_;

  // The current step.
  std::span<const SequenceStep> batch_;
  std::vector<Row> rows_;
  std::vector<std::int64_t> route_blocks_;  ///< where blocks of rows that share a pool of experts begin
  Position last_position_ = 0;
  UnitRange own_rows_;    ///< of the batch: computed by this rank (Graph::own_rows)
  UnitRange own_scored_;  ///< of the scored rows: from the first of this rank's to the last; guided rows lie between
  std::vector<std::vector<std::int64_t>> rank_rows_;    ///< by rank: rows of the batch
  std::vector<std::vector<std::int64_t>> rank_scored_;  ///< by rank: scored rows
  std::vector<Scores>* scores_ = nullptr;
  std::vector<float*> hidden_out_;  ///< by row of op::HiddenOut: where its columns go; nullptr: not wanted
  std::vector<Product> products_;   ///< of a run
  Profile* profile_ = nullptr;
};

}  // namespace dllm::cpu
