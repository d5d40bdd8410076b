#include "npu_backend/functional/npu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <new>

#include "backend/failed_pass.h"
#include "base/free_ranges.h"
#include "base/to_size.h"
#include "base/try.h"
#include "npu_backend/functional/batch_spec.h"
#include "npu_backend/functional/hidden_rows.h"
#include "npu_backend/functional/host_reduction.h"
#include "npu_backend/functional/mixed_row.h"
#include "npu_compiler/compiler/split_step.h"
#include "npu_compiler/compiler/tiled_weights.h"
#include "npu_compiler/compiler/weights_image.h"

namespace dllm::npu {
namespace {

/// The machine's memory. Shared with the caches, which return their ranges to it.
using HbmPool = FreeRanges<std::uint64_t>;

class NpuKvCache final : public KvCache {
 public:
  /// `hbm`: the machine's memory, which is used while the backend lives.
  NpuKvCache(Position capacity, std::shared_ptr<HbmPool> pool, std::uint64_t base, KvLayout kv,
             const MachineConfig& machine, std::byte* hbm)
      : KvCache(capacity), pool_(std::move(pool)), base_(base), kv_(std::move(kv)), machine_(machine), hbm_(hbm) {}
  ~NpuKvCache() override { pool_->release(base_, kv_.bytes); }
  std::uint64_t base() const { return base_; }
  using KvCache::record;

  void copy_rows(const KvCache& other, std::span<const Position> positions) override {
    const auto& from = static_cast<const NpuKvCache&>(other);
    const auto lanes = to_size(machine_.vlen);
    const std::size_t codes = machine_.vector_kv.element_bytes(lanes), scales = machine_.vector_kv.scale_bytes(lanes);
    for (const KvPlace& place : kv_.layers)
      for (const std::uint64_t side : {place.k_offset, place.v_offset})
        for (std::int64_t slab = 0; slab < place.slabs; ++slab)
          for (const Position p : positions) {
            const auto row = static_cast<std::uint64_t>(slab * kv_.capacity + p);
            copy_bytes(from, side + row * codes, codes);
            copy_bytes(from, side + place.scale_offset + row * scales, scales);
          }
    std::vector<PlanRow> rows;
    for (const Position p : positions) rows.push_back({p, from.token_of(p)});
    record(rows);
  }

 private:
  void copy_bytes(const NpuKvCache& from, std::uint64_t offset, std::size_t bytes) {
    std::memcpy(hbm_ + base_ + offset, hbm_ + from.base_ + offset, bytes);
  }

  std::shared_ptr<HbmPool> pool_;
  std::uint64_t base_;
  KvLayout kv_;
  const MachineConfig& machine_;
  std::byte* hbm_;
};

/// Programs read one set of centres and factors per cache: rows that an earlier step stored with others must all be
/// stored anew.
Expected<void> check_factors(std::span<const SequenceStep> batch, const StepSpec& spec) {
  std::size_t at = 0;
  for (const SequenceStep& step : batch) {
    if (step.plan.rows.empty()) continue;
    if (!spec.sequences[at++].takes_statistics) continue;
    std::vector<bool> stored(to_size(step.cache->capacity()));
    for (const PlanRow& row : step.plan.rows) stored[to_size(row.position)] = true;
    for (Position p = 0; p < step.cache->capacity(); ++p)
      if (step.cache->holds(p) && !stored[to_size(p)])
        return Error{ErrorCode::kUnsupported,
                     fmt::format("position {} keeps K and V that were smoothed with the factors of an earlier step", p),
                     "npu backend, numerics.smooth_keys and smooth_values",
                     "--npu-values executor computes such steps, or a cache whose full passes store every position"};
  }
  return {};
}

/// Everything that a program depends on.
std::string key_of(const StepSpec& spec) {
  std::string key;
  const auto put = [&key](std::uint64_t value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (const SequenceSpec& s : spec.sequences) {
    put(s.positions.size());
    for (const Position p : s.positions) put(static_cast<std::uint64_t>(p));
    put(s.visible.size());
    for (const PositionRange& r : s.visible)
      put(static_cast<std::uint64_t>(r.begin)), put(static_cast<std::uint64_t>(r.end));
    put(static_cast<std::uint64_t>(s.causal_block));
    put(s.canvas ? 1 : 0);
    put(s.scored.size());
    for (const std::int32_t i : s.scored) put(static_cast<std::uint64_t>(i));
    put(s.cache);
    put(static_cast<std::uint64_t>(s.capacity));
    put(s.takes_statistics ? 1 : 0);
  }
  return key;
}

}  // namespace

class NpuBackend::Impl {
 public:
  Impl(ModelDesc desc, GraphFactory graph, ModelLayout layout, Machine machine, const NpuOptions& options)
      : desc_(std::move(desc)),
        graph_(std::move(graph)),
        layout_(std::move(layout)),
        machine_(std::move(machine)),
        options_(options),
        vocab_(head_vocab(graph_({1, 1}))),
        hands_scored_(hands_out_scored(graph_({2, 1}))),
        mixes_apart_(mixes_apart(graph_({1, 1}))),
        pool_(std::make_shared<HbmPool>(layout_.weight_bytes, layout_.step_base)) {}

  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) {
    DLLM_TRY(KvLayout kv, kv_layout(graph_({1, 1}), layout_, capacity));
    const auto base = pool_->acquire(kv.bytes);
    if (!base)
      return Error{ErrorCode::kResource,
                   fmt::format("no room for a cache of {} bytes in the device's memory", kv.bytes), "npu backend",
                   "fewer sequences at once, or a shorter context"};
    // Hidden keys have no weight, but their exponents affect the array's alignment: data of an earlier sequence must
    // not change the last bit.
    std::byte* const hbm = machine_.state().hbm.data();
    std::memset(hbm + *base, 0, kv.bytes);
    return std::unique_ptr<KvCache>(
        std::make_unique<NpuKvCache>(capacity, pool_, *base, std::move(kv), layout_.machine, hbm));
  }

  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) {
    for (const SequenceStep& step : batch) {
      if (!step.plan.mixtures.empty() && !mixes_apart_)
        return Error{ErrorCode::kUnsupported, "rows that mix the embeddings of several tokens do not run on the NPU",
                     "--smooth", "leave the option out"};
      if (!step.plan.shadows.empty())
        return Error{ErrorCode::kUnsupported, "programs of the simulated NPU store K and V of every row",
                     "npu backend, shadow rows", "--npu-values executor computes such steps"};
    }
    logits_.assign(batch.size(), {});
    hidden_.clear();
    DLLM_CHECK_OK(run(batch, 0));
    for (const SequenceStep& step : batch) static_cast<NpuKvCache&>(*step.cache).record(step.plan.rows);
    std::vector<Scores> scores = vocab_ > 0 ? score_on_host(batch, logits_, vocab_) : std::vector<Scores>(batch.size());
    hand_out(batch, hidden_, hands_scored_, scores);
    return scores;
  }

  ModelDesc desc_;
  GraphFactory graph_;
  ModelLayout layout_;
  Machine machine_;
  NpuOptions options_;
  NpuCounters counters_;

 private:
  struct Entry {
    std::string key;
    SplitStep step;
  };

  Expected<void> run(std::span<const SequenceStep> batch, std::size_t first) {
    const StepSpec spec =
        spec_of(batch, [](const SequenceStep& step) { return static_cast<const NpuKvCache&>(*step.cache).base(); });
    if (spec.sequences.empty()) return {};
    if (layout_.machine.smoothing.any()) DLLM_CHECK_OK(check_factors(batch, spec));
    const auto program = compiled(spec);
    if (!program) {
      if (batch.size() == 1 || program.error().code != ErrorCode::kUsage) return program.error();
      const std::size_t half = batch.size() / 2;
      DLLM_CHECK_OK(run(batch.first(half), first));
      return run(batch.subspan(half), first + half);
    }
    DLLM_CHECK_OK(execute(batch, **program));
    if (vocab_ > 0) read_logits(batch, first, **program);
    return {};
  }

  /// A batch that does not fit is halved by run(), which frees the memory of one half's logits for the other; only the
  /// rows of a single sequence are parts of one program.
  Expected<SplitStep> compile(const StepSpec& spec) const {
    const std::vector<RowPart> whole = {RowPart(static_cast<std::int64_t>(spec.sequences.size()))};
    return spec.sequences.size() > 1 ? compile_parts(graph_, layout_, spec, whole)
                                     : compile_split(graph_, layout_, spec);
  }

  Expected<const SplitStep*> compiled(const StepSpec& spec) {
    std::string key = key_of(spec);
    for (auto entry = programs_.begin(); entry != programs_.end(); ++entry) {
      if (entry->key != key) continue;
      programs_.splice(programs_.begin(), programs_, entry);
      return &programs_.front().step;
    }
    DLLM_TRY(SplitStep step, compile(spec));
    ++counters_.compiled;
    programs_.push_front({std::move(key), std::move(step)});
    if (programs_.size() > options_.programs) programs_.pop_back();
    return &programs_.front().step;
  }

  Expected<void> execute(std::span<const SequenceStep> batch, const SplitStep& step) {
    MachineState& state = machine_.state();
    state.reset_registers();
    std::size_t word = kTokenWords;
    for (const SequenceStep& s : batch)
      for (const PlanRow& row : s.plan.rows) state.int_mem[word++] = static_cast<std::uint32_t>(row.token);
    for (const HbmBlob& blob : step.constants)
      std::memcpy(state.hbm.data() + blob.address, blob.bytes.data(), blob.bytes.size());
    write_hidden(step, layout_, batch, state.hbm.data());
    DLLM_TRY(const RunResult result,
             options_.execute ? options_.execute(machine_, step.program) : machine_.run(step.program));
    const std::vector<float> hidden = read_hidden(step, layout_, state.hbm.data());
    hidden_.insert(hidden_.end(), hidden.begin(), hidden.end());
    ++counters_.steps;
    counters_.instructions += result.instructions;
    return {};
  }

  /// Scored rows follow each other, over the parts and over the sequences.
  void read_logits(std::span<const SequenceStep> batch, std::size_t first, const SplitStep& step) {
    std::size_t s = 0, row = 0;  // of the next row: its sequence, and its number among the sequence's
    for (const StepPart& part : step.parts) {
      const std::int64_t count = part.scores() ? part.spec.scored() : 0;
      for (std::int64_t i = 0; i < count; ++i, ++row) {
        for (; row == batch[s].plan.scored.size(); row = 0) ++s;
        std::vector<float>& out = logits_[first + s];
        if (row == 0) out.reserve(batch[s].plan.scored.size() * to_size(vocab_));
        read_row(part.step, to_size(i), out);
      }
    }
  }

  /// Appends a row of a part's logits.
  void read_row(const StepProgram& step, std::size_t row, std::vector<float>& out) {
    const auto vlen = to_size(layout_.machine.vlen), vocab = to_size(vocab_);
    const std::byte* hbm = machine_.state().hbm.data() + step.logits;
    for (std::size_t t = 0; t < vocab; ++t) {
      const std::size_t at = (t / vlen * to_size(step.logit_rows) + row) * vlen + t % vlen;
      Bf16 bits = 0;
      std::memcpy(&bits, hbm + 2 * at, 2);
      out.push_back(lane_to_f32(layout_.machine.lanes, bits));
    }
  }

  std::int64_t vocab_;  ///< a drafter's head may have fewer tokens than its model
  bool hands_scored_;   ///< the graph hands out scored rows only
  bool mixes_apart_;    ///< the graph reads mixtures apart from tokens
  std::shared_ptr<HbmPool> pool_;
  std::list<Entry> programs_;               ///< latest first
  std::vector<std::vector<float>> logits_;  ///< by sequence
  std::vector<float> hidden_;               ///< of all sequences
};

NpuBackend::NpuBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NpuBackend::~NpuBackend() = default;

Expected<std::unique_ptr<NpuBackend>> NpuBackend::create(ModelDesc desc, GraphFactory factory, const Weights& weights,
                                                         const MachineConfig& config, const NpuOptions& options) {
  const Graph graph = factory({1, 1});
  constexpr std::int64_t kLongest = 4096;
  const std::int64_t positions =
      options.positions > 0 ? options.positions : std::min(kLongest, std::max<std::int64_t>(1, desc.context_length));
  DLLM_TRY(ModelLayout layout, make_layout(graph, weights, config, positions));
  DLLM_CHECK_OK(check_tiles(layout, weights));
  DLLM_TRY(Machine machine, Machine::create(config));
  // Caches keep pointers, and steps work at the memory's end.
  try {
    machine.state().reach_hbm(config.hbm_bytes);
  } catch (const std::bad_alloc&) {
    return Error{
        ErrorCode::kResource,
        fmt::format("{} bytes of the simulated device's memory do not fit into the address space", config.hbm_bytes),
        "npu backend", "raise the limit (ulimit -v), or simulate a device with fewer stacks"};
  }
  write_weights(graph, layout, weights, machine.state().hbm.data());
  return std::unique_ptr<NpuBackend>(new NpuBackend(
      std::make_unique<Impl>(std::move(desc), std::move(factory), std::move(layout), std::move(machine), options)));
}

const ModelDesc& NpuBackend::desc() const { return impl_->desc_; }
Expected<std::unique_ptr<KvCache>> NpuBackend::make_cache(Position capacity) { return impl_->make_cache(capacity); }
Expected<std::vector<Scores>> NpuBackend::forward(std::span<const SequenceStep> batch) {
  auto scores = impl_->forward(batch);
  if (!scores) invalidate_rows(batch);
  return scores;
}
void NpuBackend::copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions) {
  to.copy_rows(from, positions);
}
const ModelLayout& NpuBackend::layout() const { return impl_->layout_; }
const NpuCounters& NpuBackend::counters() const { return impl_->counters_; }

}  // namespace dllm::npu
