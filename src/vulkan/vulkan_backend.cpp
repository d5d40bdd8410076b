#include "vulkan/vulkan_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <new>
#include <system_error>
#include <utility>
#include <variant>

#include "backend/branch_rows.h"
#include "backend/failed_pass.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/linear.h"
#include "cpu/model_memory.h"
#include "cpu/packed_weights.h"
#include "cpu/profile.h"
#include "cpu/score_head.h"
#include "vulkan/device.h"
#include "vulkan/kv_cache.h"
#include "vulkan/on_device.h"
#include "vulkan/operators.h"
#include "vulkan/pass.h"
#include "vulkan/passes_ahead.h"
#include "vulkan/self_test.h"
#include "vulkan/unroll_arguments.h"
#include "vulkan/weights.h"

namespace dllm {
namespace {

using vulkan::PassSize;

Error no_host_memory(const char* what) {
  return {ErrorCode::kResource, fmt::format("out of memory in {}", what), "",
          "use fewer rows per step or a smaller model"};
}

/// The most positions that attention sees before a device of limited loops ends one: per tile, the iterations over
/// dimensions of the scores, over keys of the maximum and of the dimensions of an invocation, and what is left.
std::int64_t most_positions(const Graph& graph, const vulkan::CacheFormat& cache, std::uint32_t most_rounds) {
  // Codes are read one at a time, other numbers in pairs.
  const std::int64_t scores = cache.row_bytes(32) < 64 ? 1 : 2;
  std::int64_t most = std::numeric_limits<Position>::max();
  for (const Op& op : graph.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op)) {
      const std::int64_t dims = std::max<std::int64_t>(4, (attention->head_dim + 63) / 64);
      const std::int64_t tile = attention->head_dim / scores + dims + (2 + dims) * vulkan::kTilePositions;
      most = std::min(most, most_rounds / tile * vulkan::kTilePositions);
    }
  return most;
}

/// Room for a pass like this one, and for somewhat larger ones, as far as the device runs them: `most` rows, and stored
/// rows.
PassSize room_for(const PassSize& size, const PassSize& before, const vulkan::MostRows& most) {
  const auto room = [](std::int64_t count, std::int64_t old, std::int64_t least) {
    return std::max({least, old, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)))});
  };
  const auto within = [&](std::int64_t count, std::int64_t old, std::int64_t limit) {
    return std::max(count, std::min(room(count, old, 32), limit));
  };
  return {within(size.rows, before.rows, most.rows), room(size.scored, before.scored, 32),
          room(size.visible, before.visible, 512), size.kept == 0 ? before.kept : room(size.kept, before.kept, 1),
          within(size.stored, before.stored, most.stored)};
}

class DeviceBackend final : public VulkanBackend {
 public:
  DeviceBackend(ModelDesc desc, GraphFactory factory, Weights weights, std::shared_ptr<vulkan::Device> device,
                const vulkan::Arithmetic& arithmetic, int threads)
      : desc_(std::move(desc)),
        factory_(std::move(factory)),
        tables_(std::move(weights)),
        device_(std::move(device)),
        operators_(device_, arithmetic),
        rounding_(arithmetic.description()),
        pool_(threads),
        linear_(*cpu::default_kernel_set(), pool_),
        head_(*cpu::default_kernel_set(), pool_, linear_) {
    if (arithmetic.fused64 == vulkan::Fused64::kNone) rounding_ += ", logits reduced by the processor";
  }

  /// Throws std::bad_alloc, cpu::PackingStopped.
  Expected<void> load(const VulkanOptions& options) {
    const Graph graph = factory_({1, 1});
    DLLM_CHECK_OK(cpu::check_weights(graph, tables_));
    DLLM_CHECK_OK(vulkan::check_operators(graph));
    // As in CpuBackend: a model that rotates K itself would have its rotation undone.
    const vulkan::CacheFormat kv{cpu::storage_type(options.kv, graph, tables_), desc_.online.query_key != 0};
    DLLM_TRY(const std::vector<cpu::KvShape> shapes, cpu::kv_shapes(graph, kv.type));
    layout_ = std::make_shared<const vulkan::CacheLayout>(shapes, kv);
    most_positions_ = most_positions(graph, kv, operators_.arithmetic().most_rounds);
    for (const Op& op : graph.ops)
      if (const auto* head = std::get_if<op::ScoreHead>(&op)) {
        vocab_ = graph.weight(head->weight).shape[1];
        softcap_ = head->softcap;
      }
    unrolling_.passes = std::clamp(options.unroll, 1, vulkan::kMostUnrolled);
    if (unrolling_.on()) DLLM_CHECK_OK(check_unrolling(graph));
    DLLM_TRY(weights_, vulkan::DeviceWeights::load(device_, graph, tables_, pool_, options.weight_cache,
                                                   options.progress, operators_.arithmetic().halves));
    if (operators_.arithmetic().halves && !weights_.has_halves())
      return Error{ErrorCode::kUsage, "no matrix of the model is F16 or BF16", "--arithmetic", "leave it out"};
    if (!unrolling_.on()) return {};
    DLLM_TRY(unrolling_.tables, vulkan::embedding_tables(device_, graph, tables_, pool_));
    return {};
  }

  const ModelDesc& desc() const override { return desc_; }
  bool runs_shadows() const override { return true; }
  bool runs_branches() const override { return true; }
  bool runs_soft_tokens() const override { return true; }
  bool runs_lead() const override { return true; }
  const std::string& device() const override { return device_->facts().name; }
  std::string_view arithmetic() const override { return operators_.arithmetic().halves ? "f16" : "exact"; }
  const std::string& rounding() const override { return rounding_; }
  std::string_view kv_type() const override { return cpu::storage_name(layout_->format().type); }
  int threads() const override { return pool_.size(); }
  std::int64_t recordings() const override { return recordings_; }
  std::int64_t device_bytes() const override { return device_->bytes_in_use(); }
  std::int64_t imported_bytes() const override { return weights_.imported_bytes(); }
  const std::shared_ptr<const MappedFile>& weight_cache() const override { return weights_.file(); }
  std::int64_t memory_bytes() const override { return device_->facts().memory_bytes; }
  std::uint64_t passes() const override { return passes_; }
  double pass_seconds() const override { return static_cast<double>(pass_nanoseconds_) * 1e-9; }
  std::uint64_t passes_ahead() const override { return passes_ahead_; }
  std::uint64_t passes_undone() const override { return passes_undone_; }
  std::string failure() const override { return device_->failure(); }
  std::int64_t logit_bytes() const override { return pass_ ? pass_->logit_bytes() : 0; }
  const std::string& messages() const override { return device_->messages(); }
  void time_shaders(cpu::Profile* profile) override {
    profile_ = device_->facts().tick_ns == 0 ? nullptr : profile;
    pass_.reset();
  }

  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override {
    if (capacity > most_positions_)
      return Error{ErrorCode::kResource,
                   fmt::format("a cache of {} positions; {} ends loops early and attends to {}", capacity, device(),
                               most_positions_),
                   "--context", "use a shorter context, or another device"};
    try {
      DLLM_TRY(std::unique_ptr<vulkan::VulkanKvCache> cache, vulkan::VulkanKvCache::create(device_, layout_, capacity));
      cache->unroll(unrolling_.passes, undo_);
      return std::unique_ptr<KvCache>(std::move(cache));
    } catch (const std::bad_alloc&) {
      return no_host_memory("a KV cache");
    }
  }

  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    try {
      auto scores = run(batch);
      if (!scores) forget_rows(batch);
      return scores;
    } catch (const std::bad_alloc&) {
      forget_rows(batch);
      return no_host_memory("a forward pass");
    }
  }

 private:
  Expected<void> check_unrolling(const Graph& graph) const {
    if (operators_.arithmetic().fused64 == vulkan::Fused64::kNone)
      return Error{ErrorCode::kUnsupported, fmt::format("{} has no float64, so this processor decides", device()),
                   "--unroll", "leave it out, or use another device"};
    return vulkan::check_embeddings(graph);
  }

  /// After a pass that failed. The loop asks for it again, and its rows replace those of passes ahead.
  static void forget_rows(std::span<const SequenceStep> batch) noexcept {
    invalidate_rows(batch);
    for (const SequenceStep& step : batch) cache_of(step).ahead.reset();
  }

  using Rules = std::vector<std::optional<CommitRule>>;

  static vulkan::VulkanKvCache& cache_of(const SequenceStep& step) {
    return static_cast<vulkan::VulkanKvCache&>(*step.cache);
  }

  /// The scores of passes that have run already, and one pass for the other steps.
  Expected<std::vector<Scores>> run(std::span<const SequenceStep> batch) {
    std::vector<Scores> scores(batch.size());
    std::vector<std::size_t> others, places(batch.size());
    Rules rules;
    for (std::size_t s = 0; s < batch.size(); ++s) {
      vulkan::VulkanKvCache& cache = cache_of(batch[s]);
      std::optional<CommitRule> rule = cache.take_rule();
      if (cache.ahead) {
        if (std::optional<Scores> known = rule ? cache.ahead->take(batch[s]) : std::nullopt) {
          cache.wrote(batch[s].plan.rows);
          scores[s] = *std::move(known);
          if (cache.ahead->passes.empty()) cache.ahead.reset();
          ++passes_ahead_;
          continue;
        }
        cache.foreseeable = false;
        DLLM_CHECK_OK(undo(cache));
      }
      places[s] = others.size();
      others.push_back(s);
      rules.push_back(cache.foreseeable ? std::move(rule) : std::nullopt);
    }
    if (others.size() == batch.size()) return run_now(batch, rules);
    if (others.empty()) return scores;
    // No passes in a row: these would be ahead when the served ones need a pass, and so on. A pass for each reads the
    // weights once for each.
    std::vector<SequenceStep> steps;
    for (const std::size_t s : others) {
      steps.push_back(batch[s]);
      if (std::optional<Guidance>& guidance = steps.back().guidance)
        guidance->unconditional = static_cast<std::int32_t>(places[static_cast<std::size_t>(guidance->unconditional)]);
    }
    DLLM_TRY(std::vector<Scores> now, run_now(steps, {}));
    for (std::size_t i = 0; i < others.size(); ++i) scores[others[i]] = std::move(now[i]);
    return scores;
  }

  /// The latest pass that was asked for, once more: it has the same rows as those that are undone.
  Expected<void> undo(vulkan::VulkanKvCache& cache) {
    SequenceStep again = std::move(cache.ahead->last);
    cache.ahead.reset();
    again.plan.scored.clear();
    ++passes_undone_;
    // Copies of a cache undo passes too, outside of forward().
    auto done = [&]() -> Expected<void> {
      try {
        return run_device({&again, 1}, {});
      } catch (const std::bad_alloc&) {
        return no_host_memory("a pass that runs again");
      }
    }();
    if (!done) invalidate_rows({&again, 1});
    return done;
  }

  /// A pass on the device, and perhaps others after it.
  Expected<void> run_device(std::span<const SequenceStep> batch, const Rules& rules) {
    head_.arrange(batch, vocab_, operators_.arithmetic().fused64 != vulkan::Fused64::kNone);
    const vulkan::ScoredRows scored{head_.gather(), head_.rows()};
    const BranchRows shared = branch_rows(batch);
    const PassSize size = vulkan::size_of_pass(batch, scored, shared);
    if (!pass_ || !pass_->room().holds(size)) DLLM_CHECK_OK(record(size));
    unrolled_ = {};
    if (!rules.empty() && profile_ == nullptr && !pass_->hands_out() && shared.stores.empty() && shared.copies.empty())
      unrolled_ = vulkan::plan_unrolling(batch, rules, scored.needs, pass_->most_passes());
    const auto start = std::chrono::steady_clock::now();
    DLLM_CHECK_OK(vulkan::VulkanKvCache::share(device_, shared.copies));
    DLLM_CHECK_OK(pass_->run(batch, scored, shared, unrolled_));
    pass_nanoseconds_ +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
    passes_ += static_cast<std::uint64_t>(pass_->passes_run());
    if (profile_ == nullptr) return {};
    DLLM_TRY(const auto times, pass_->shader_times());
    for (const auto& [shader, seconds] : times) profile_->add(shader, seconds);
    return {};
  }

  Expected<std::vector<Scores>> run_now(std::span<const SequenceStep> batch, const Rules& rules) {
    for (const SequenceStep& step : batch) cache_of(step).wrote(step.plan.rows);
    DLLM_CHECK_OK(run_device(batch, rules));
    std::vector<Scores> scores = scores_of(batch, 0);
    if (pass_->passes_run() > 1) keep_ahead(batch);
    return scores;
  }

  /// Of one of the passes that have run.
  std::vector<Scores> scores_of(std::span<const SequenceStep> batch, std::int32_t pass) {
    std::vector<Scores> scores(batch.size());
    pass_->hand_out(batch, scores);
    if (head_.gather().empty()) return scores;
    // Where a row's logits are, among those that are kept.
    std::vector<std::int64_t> kept;
    for (std::int64_t count = 0; const cpu::HeadRow& row : head_.rows()) kept.push_back(row.logits ? count++ : -1);
    const float* const logits = pass_->logits();
    const cpu::LogitTile tiles = [&](std::int64_t first, std::int64_t rows, std::int64_t begin, std::int64_t end,
                                     float* tile, int) {
      for (std::int64_t row = 0; row < rows; ++row)
        std::memcpy(tile + row * cpu::kHeadChunk,
                    logits + (kept[static_cast<std::size_t>(first)] + row) * vocab_ + begin,
                    static_cast<std::size_t>(end - begin) * sizeof(float));
    };
    head_.reduce({tiles, pass_->chunks(pass), pass_->answers(pass)}, vocab_, scores, softcap_);
    return scores;
  }

  void keep_ahead(std::span<const SequenceStep> batch) {
    for (const SequenceStep& step : batch) cache_of(step).ahead = vulkan::PassesAhead{step, {}};
    for (std::int32_t pass = 1; pass < pass_->passes_run(); ++pass) {
      std::vector<Scores> scores = scores_of(batch, pass);
      std::span<const std::int32_t> committed = pass_->committed(pass - 1);
      for (std::size_t s = 0; s < batch.size(); ++s) {
        std::deque<vulkan::AheadPass>& passes = cache_of(batch[s]).ahead->passes;
        const std::span<const PlanRow> before = passes.empty() ? batch[s].plan.rows : passes.back().rows;
        passes.push_back(
            {vulkan::rows_after(batch[s].plan, before, unrolled_.rules[s].shift, committed), std::move(scores[s])});
        committed = committed.subspan(batch[s].plan.scored.size());
      }
    }
  }

  Expected<void> record(const PassSize& size) {
    const vulkan::MostRows most = vulkan::most_rows(factory_({1, 1}), device_->facts());
    const PassSize room = room_for(size, pass_ ? pass_->room() : PassSize(), most);
    pass_.reset();  // its memory is needed
    DLLM_TRY(pass_, vulkan::Pass::record(
                        {&operators_, &weights_, layout_.get(), &tables_, unrolling_.on() ? &unrolling_ : nullptr},
                        factory_({room.rows, room.scored}), room, profile_ != nullptr));
    ++recordings_;
    return {};
  }

  ModelDesc desc_;
  GraphFactory factory_;
  Weights tables_;
  std::shared_ptr<vulkan::Device> device_;
  vulkan::Operators operators_;
  std::string rounding_;
  ThreadPool pool_;
  cpu::LinearRunner linear_;
  cpu::ScoreHead head_;
  vulkan::DeviceWeights weights_;
  std::shared_ptr<const vulkan::CacheLayout> layout_;
  std::int64_t vocab_ = 0;
  std::int64_t most_positions_ = 0;
  float softcap_ = 0;
  vulkan::Unrolling unrolling_;
  vulkan::UnrollBatch unrolled_;  ///< of the last pass
  const std::shared_ptr<const vulkan::UndoPasses> undo_ = std::make_shared<const vulkan::UndoPasses>(
      [this](vulkan::VulkanKvCache& cache) -> Expected<void> { return undo(cache); });
  std::unique_ptr<vulkan::Pass> pass_;
  cpu::Profile* profile_ = nullptr;
  std::int64_t recordings_ = 0;
  std::atomic<std::uint64_t> passes_{0}, passes_ahead_{0}, passes_undone_{0};
  std::atomic<std::int64_t> pass_nanoseconds_{0};
};

}  // namespace

bool has_vulkan() { return true; }
std::string_view vulkan_missing() { return ""; }

Expected<std::unique_ptr<VulkanBackend>> vulkan::make_backend_on(std::shared_ptr<Device> device,
                                                                 const Arithmetic& arithmetic, ModelDesc desc,
                                                                 GraphFactory graph, Weights weights,
                                                                 const VulkanOptions& options) {
  try {
    const int threads = options.threads == 0 ? default_thread_count() : options.threads;
    auto backend = std::make_unique<DeviceBackend>(std::move(desc), std::move(graph), std::move(weights),
                                                   std::move(device), arithmetic, threads);
    DLLM_CHECK_OK(backend->load(options));
    return std::unique_ptr<VulkanBackend>(std::move(backend));
  } catch (const cpu::PackingStopped&) {
    return Error{ErrorCode::kCancelled, "the load was stopped", "", ""};
  } catch (const std::bad_alloc&) {
    return no_host_memory("the Vulkan backend's setup");
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResource, fmt::format("cannot start threads: {}", error.what()), "", "ask for fewer"};
  }
}

Expected<std::unique_ptr<VulkanBackend>> make_vulkan_backend(ModelDesc desc, GraphFactory graph, Weights weights,
                                                             VulkanOptions options) {
  DLLM_TRY(std::shared_ptr<vulkan::Device> device,
           vulkan::Device::open({.device = options.device, .validate = options.validate}));
  DLLM_TRY(vulkan::Arithmetic arithmetic, vulkan::test_device(device));
  if (options.arithmetic == VulkanArithmetic::kF16) {
    DLLM_CHECK_OK(vulkan::test_halves(device, arithmetic));
    arithmetic.halves = true;
  }
  return vulkan::make_backend_on(std::move(device), arithmetic, std::move(desc), std::move(graph), std::move(weights),
                                 options);
}

}  // namespace dllm
