#include "cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>
#include <variant>

#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/cpu_kv_cache.h"
#include "cpu/executor.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/model_memory.h"
#include "cpu/rank_gather.h"
#include "cpu/rank_weights.h"

namespace dllm {
namespace {

constexpr int kMaxThreads = 1024;

Error out_of_memory(const char* what) {
  return {ErrorCode::kResource, fmt::format("out of memory in {}", what), "",
          "use fewer rows per step or a smaller model"};
}

Expected<const cpu::KernelSet*> choose_kernels(const std::string& isa) {
  if (isa.empty()) return cpu::default_kernel_set();
  if (const cpu::KernelSet* set = cpu::find_kernel_set(isa.c_str())) return set;
  std::string names;
  bool known = false;
  for (const CpuIsa& entry : cpu_isas()) {
    known = known || entry.name == isa;
    if (entry.available) names += (names.empty() ? "" : ", ") + entry.name;
  }
  return Error{
      ErrorCode::kUsage,
      fmt::format("{} '{}'", known ? "this processor cannot run the instruction set" : "unknown instruction set", isa),
      "isa", "one of: " + names};
}

/// Of autoregressive models one was measured, SmolLM2: it has massive activations, which cost `super` more than
/// `exact`.
cpu::SuperWeights super_weights(CpuArithmetic arithmetic, const cpu::KernelSet& kernels, bool autoregressive) {
  using enum cpu::SuperWeights;
  if (arithmetic == CpuArithmetic::kSuper) return kAll;
  if (arithmetic != CpuArithmetic::kAuto || !kernels.prefers_super || autoregressive) return kNone;
  return kernels.bf16_tiles ? kAll : kQuantized;
}

/// Whether quantized types have most of the bytes of the layers' matrices.
bool mostly_quantized(const Graph& graph, const Weights& weights) {
  std::size_t quantized = 0, all = 0;
  const auto count = [&](WeightId id) {
    const WeightView& view = weights[static_cast<std::size_t>(id)];
    all += view.data.size();
    if (codec(view.type).is_block()) quantized += view.data.size();
  };
  for (const Op& op : graph.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op)) count(linear->weight);
    if (const auto* experts = std::get_if<op::Experts>(&op))
      for (const WeightId id : {experts->gate, experts->up, experts->down}) count(id);
  }
  return 2 * quantized > all;
}

bool rounds_attention(CpuAttention attention, const cpu::KernelSet& kernels, const Graph& graph,
                      const Weights& weights) {
  if (attention != CpuAttention::kAuto) return attention == CpuAttention::kBF16;
  return cpu::bf16_attention(kernels) != cpu::AttentionForm::kChains && mostly_quantized(graph, weights);
}

/// Replaces a model by this rank's part of it.
Expected<void> take_part(CpuOptions& options, const Graph& graph, GraphFactory& factory, Weights& weights) {
  const RankSplit split{options.split, options.ranks->rank(), options.ranks->size()};
  options.weight_cache = {};
  DLLM_TRY(weights, cpu::rank_weights(split_graph(graph, split), weights));
  factory = [whole = std::move(factory), split](StepShape shape) { return split_graph(whole(shape), split).graph; };
  return {};
}

}  // namespace

std::vector<CpuIsa> cpu_isas() {
  cpu::KernelSetEntry entries[cpu::kMaxKernelSets];
  const int count = cpu::list_kernel_sets(entries);
  const cpu::KernelSet* best = cpu::default_kernel_set();
  std::vector<CpuIsa> isas;
  for (int i = 0; i < count; ++i) isas.push_back({entries[i].set->name, entries[i].available, entries[i].set == best});
  return isas;
}

class CpuBackend::Impl {
 public:
  Impl(ModelDesc desc, GraphFactory graph, Weights weights, const cpu::ExecutorOptions& options, TensorType kv,
       std::vector<cpu::KvShape> kv_shapes)
      : desc_(std::move(desc)),
        executor_(std::move(graph), std::move(weights), options),
        f32_(!options.packs),
        kv_(kv),
        kv_shapes_(std::move(kv_shapes)) {}
  Impl(const Impl& other, int threads)
      : desc_(other.desc_),
        executor_(other.executor_, threads),
        f32_(other.f32_),
        kv_(other.kv_),
        kv_shapes_(other.kv_shapes_) {}

  ModelDesc desc_;
  cpu::Executor executor_;
  bool f32_;
  TensorType kv_;
  std::vector<cpu::KvShape> kv_shapes_;
};

CpuBackend::CpuBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CpuBackend::~CpuBackend() = default;

Expected<std::unique_ptr<CpuBackend>> CpuBackend::create(ModelDesc desc, GraphFactory factory, Weights weights,
                                                         CpuOptions options) {
  if (options.threads < 0 || options.threads > kMaxThreads)
    return Error{ErrorCode::kUsage, fmt::format("{} threads", options.threads), "threads",
                 fmt::format("0 (every CPU) to {}", kMaxThreads)};
  if (options.attention != CpuAttention::kF32 && options.activations == CpuActivations::kF32)
    return Error{ErrorCode::kUsage, "attention does not round to BF16 with float32 activations",
                 "--attention-arithmetic", "leave out --activations f32"};
  if (options.arithmetic != CpuArithmetic::kExact && options.activations == CpuActivations::kF32)
    return Error{ErrorCode::kUsage, "weights are not multiplied as codes with float32 activations", "--arithmetic",
                 "leave out --activations f32"};
  if (options.arithmetic == CpuArithmetic::kResidual && options.ranks != nullptr)
    return Error{ErrorCode::kUnsupported, "the arithmetic residual does not run over ranks", "--arithmetic",
                 "leave it out"};
  DLLM_TRY(const cpu::KernelSet* kernels, choose_kernels(options.isa));
  try {
    const Graph graph = factory({1, 1});
    DLLM_CHECK_OK(cpu::check_weights(graph, weights));
    const int threads = options.threads == 0 ? default_thread_count() : options.threads;
    const TensorType kv = cpu::storage_type(options.kv, graph, weights);
    const bool rounds = rounds_attention(options.attention, *kernels, graph, weights);
    if (options.ranks != nullptr) DLLM_CHECK_OK(take_part(options, graph, factory, weights));
    DLLM_TRY(std::vector<cpu::KvShape> shapes, cpu::kv_shapes(factory({1, 1}), kv));
    const cpu::ExecutorOptions executor{.kernels = *kernels,
                                        .threads = threads,
                                        .packs = options.activations != CpuActivations::kF32,
                                        .weight_cache = options.weight_cache,
                                        .progress = options.progress,
                                        .super = super_weights(options.arithmetic, *kernels, desc.autoregressive()),
                                        .residual = options.arithmetic == CpuArithmetic::kResidual,
                                        .bf16_attention = rounds,
                                        .ranks = options.ranks};
    auto impl = std::make_unique<Impl>(std::move(desc), std::move(factory), std::move(weights), executor, kv,
                                       std::move(shapes));
    impl->executor_.set_profile(options.profile);
    return std::unique_ptr<CpuBackend>(new CpuBackend(std::move(impl)));
  } catch (const cpu::PackingStopped&) {
    return Error{ErrorCode::kCancelled, "the load was stopped", "", ""};
  } catch (const std::bad_alloc&) {
    return out_of_memory("the CPU backend's setup");
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResource, fmt::format("cannot start threads: {}", error.what()), "", "ask for fewer"};
  }
}

Expected<std::unique_ptr<CpuBackend>> CpuBackend::beside(int threads) const {
  if (threads < 1 || threads > kMaxThreads)
    return Error{ErrorCode::kUsage, fmt::format("{} threads", threads), "threads", fmt::format("1 to {}", kMaxThreads)};
  try {
    return std::unique_ptr<CpuBackend>(new CpuBackend(std::make_unique<Impl>(*impl_, threads)));
  } catch (const std::bad_alloc&) {
    return out_of_memory("the setup of a second thread group");
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResource, fmt::format("cannot start threads: {}", error.what()), "", "ask for fewer"};
  }
}

void CpuBackend::copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions) {
  to.copy_rows(from, positions);
}

const ModelDesc& CpuBackend::desc() const { return impl_->desc_; }
void CpuBackend::set_profile(cpu::Profile* profile) { impl_->executor_.set_profile(profile); }
std::string_view CpuBackend::isa() const { return impl_->executor_.kernels().name; }
std::string CpuBackend::arithmetic() const { return impl_->f32_ ? "f32" : impl_->executor_.arithmetic(); }
int CpuBackend::threads() const { return impl_->executor_.threads(); }
std::string_view CpuBackend::kv_type() const { return cpu::storage_name(impl_->kv_); }
std::int64_t CpuBackend::arena_bytes() const { return impl_->executor_.arena_bytes(); }

Expected<std::unique_ptr<KvCache>> CpuBackend::make_cache(Position capacity) {
  // The model's rotation already spreads outliers, and includes that of a block, which would undo it: two Hadamard
  // transforms are the identity.
  const bool plain_keys = impl_->desc_.online.query_key != 0;
  DLLM_TRY(std::unique_ptr<KvCache> cache,
           cpu::CpuKvCache::create(capacity, impl_->kv_shapes_, impl_->kv_, plain_keys));
  return cache;
}

const std::shared_ptr<const MappedFile>& CpuBackend::weight_cache() const { return impl_->executor_.weight_cache(); }

Expected<std::vector<Scores>> CpuBackend::forward(std::span<const SequenceStep> batch) {
  try {
    return impl_->executor_.forward(batch);
  } catch (const std::bad_alloc&) {
    impl_->executor_.abort_ranks("a rank is out of memory");
    return out_of_memory("a forward pass");
  } catch (cpu::RanksFailed& failed) {
    // What another rank sent may be wrong for this one alone: the others must not wait for it. All know a failure of
    // the communicator, which ignores this then.
    impl_->executor_.abort_ranks(failed.error.what);
    return std::move(failed.error);
  }
}

}  // namespace dllm
