#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "cpu/weight_cache.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "graph/split.h"
#include "model/model_desc.h"
#include "model/weights.h"
#include "ranks/communicator.h"

namespace dllm {

namespace cpu {
class Profile;
}

/// The number format of activations in products with quantized weights.
enum class CpuActivations {
  kAuto,  ///< int8 if the weight's format has an integer kernel; rounded to BF16 with BF16 weights
  kInt8,  ///< the same, set explicitly
  kF32,   ///< weights are dequantized and multiplied in float32: exact, and several times slower
};

/// How products are rounded; docs/design/arithmetic.md defines each.
enum class CpuArithmetic {
  kExact,  ///< integer sums of 32 products, of the file's own codes
  kSuper,  ///< sums for matrix tiles, for the weight types that have them; the others stay on kExact
  /// kExact of the rows, and of what their codes leave of them; experts stay on kExact. Not on ranks.
  kResidual,
  /// kSuper with matrix tiles, unless the model was trained to predict from left to right; else kExact.
  kAuto,
};

/// The products of attention; docs/design/arithmetic.md defines both.
enum class CpuAttention {
  kF32,   ///< multiply-adds of floats
  kBF16,  ///< queries, keys, values and weights are rounded to BF16
  /// kBF16 if this processor multiplies BF16 numbers faster than floats and most of the matrices are quantized (by
  /// bytes), else kF32.
  kAuto,
};

/// Element type of the KV cache.
enum class CpuKvType {
  kAuto,  ///< float32 if every matrix of the model is float32, else float16
  kF32,
  kF16,
  kBF16,
  kQ8_0,  ///< blocks of 32 values with a float16 scale; the model's head_dim must be a multiple of 32
  kQ4_0,  ///< the same with 4 bits; blocks of K are rotated (KernelSet::encode_key)
};

/// Called with the fraction of the weights that are packed, in [0, 1], per tensor; false cancels (kCancelled).
using LoadProgress = std::function<bool(double done)>;

struct CpuOptions {
  int threads = 0;  ///< 0: every CPU this process may use
  std::string isa;  ///< name of a kernel set; empty: the best one that this processor supports
  CpuKvType kv = CpuKvType::kAuto;
  CpuActivations activations = CpuActivations::kAuto;
  CpuArithmetic arithmetic = CpuArithmetic::kExact;
  CpuAttention attention = CpuAttention::kF32;
  cpu::Profile* profile = nullptr;  ///< borrowed; records the time of every operator (cpu/profile.h)
  WeightCacheOptions weight_cache{};
  LoadProgress progress{};
  /// The other ranks that run this model, each with the same options but `threads`; borrowed. nullptr: none. With some,
  /// weight caches are not used.
  Communicator* ranks = nullptr;
  SplitKind split = SplitKind::kOutputs;
};

/// A kernel set of this build, for `--isa` and its help.
struct CpuIsa {
  std::string name;
  bool available = false;   ///< this processor and operating system support it
  bool is_default = false;  ///< used if no name is given
};
/// Slowest first.
std::vector<CpuIsa> cpu_isas();

/// Builds the model's graph for a shape. Weight ids and the list of operators must not depend on the shape.
using GraphFactory = std::function<Graph(StepShape)>;

/// Runs a model's graph on the CPU. All kernel sets and all numbers of threads give the same bits.
class CpuBackend final : public Backend {
 public:
  /// `weights` are views: their owner must outlive the backend. Errors: kUsage (unknown or unavailable isa, threads, a
  /// KV type that does not fit the model's heads), kInvalidFile (a required weight is missing, or has the wrong size),
  /// kResource.
  static Expected<std::unique_ptr<CpuBackend>> create(ModelDesc desc, GraphFactory graph, Weights weights,
                                                      CpuOptions options = {});
  ~CpuBackend() override;

  const ModelDesc& desc() const override;
  bool runs_shadows() const override { return true; }
  bool runs_branches() const override { return true; }
  bool runs_soft_tokens() const override { return true; }
  bool takes_embeddings() const override { return true; }
  bool runs_lead() const override { return true; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override;
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override;
  /// The weight cache, if the weights are in it: scores are valid as long as it is unchanged. Else null.
  const std::shared_ptr<const MappedFile>& weight_cache() const;

  /// A backend with its own threads and memory that shares this one's weights, can use its caches, and may run at the
  /// same time. Must not outlive it. Errors: kUsage (threads), kResource.
  Expected<std::unique_ptr<CpuBackend>> beside(int threads) const;
  /// Copies rows that `from` holds at these ascending positions. Both caches come from this backend or one made by
  /// beside(), with equal capacities.
  static void copy_rows(const KvCache& from, KvCache& to, std::span<const Position> positions);

  /// From the next pass on; `profile` is borrowed, and nullptr means none.
  void set_profile(cpu::Profile* profile);

  std::string_view isa() const;
  int threads() const;
  /// "exact", "super", "residual", or "super, exact for ..." with those that it does not support; "f32" with kF32. Then
  /// ", attention bf16", unless attention is computed in floats.
  std::string arithmetic() const;
  /// "f32", "f16", "bf16" or "q8_0".
  std::string_view kv_type() const;
  /// Memory of the planned activations, for reports.
  std::int64_t arena_bytes() const;

 private:
  class Impl;
  explicit CpuBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm
