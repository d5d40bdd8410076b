#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cpu/kernels/packed.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "numerics/tensor_type.h"
#include "vulkan/commands.h"
#include "vulkan/device.h"
#include "vulkan/product.h"
#include "vulkan/self_test.h"
#include "vulkan/unroll_arguments.h"

namespace dllm::vulkan {

/// Rows that an invocation of a product with floats computes at once.
inline constexpr std::uint32_t kProductRows = 8;
/// Largest head_dim of attention.
inline constexpr std::int64_t kMostHeadDim = 1024;
/// Longest slice of cuda/rows.cu's norm.
inline constexpr std::int64_t kMostNormKernel = 8192;
/// Positions of a tile of the cache and of the softmax: cpu::kKeyTile.
inline constexpr std::int64_t kTilePositions = 64;

/// A shader with its arguments. It runs over any number of rows: `groups()` says how many workgroups that takes.
struct Launch {
  const Pipeline* pipeline = nullptr;
  std::string_view shader;  ///< its name, which lives as long as the Operators
  std::array<std::byte, kMostPushBytes> push{};
  std::uint32_t columns = 1;  ///< workgroups for one row, or one tile of rows
  std::uint32_t rows_per_group = 1;
  std::uint32_t experts = 0;  ///< not 0: so many workgroups for each column, whatever the rows

  GroupCounts groups(std::int64_t rows) const {
    if (experts != 0) return {columns, experts, 1};
    return {columns, static_cast<std::uint32_t>((rows + rows_per_group - 1) / rows_per_group), 1};
  }
};

/// A row of a pass for shaders/cache.glsl.
struct RowArgument {
  VkDeviceAddress cache = 0;  ///< of the row's sequence
  std::int32_t position = 0;
  std::int32_t limit = 0;       ///< it sees positions below
  std::int32_t first = 0;       ///< where its attention block begins
  std::int32_t first_tile = 0;  ///< of the visible positions of its sequence
  std::int32_t tile_count = 0;
  std::uint32_t kind = 0;  ///< kOfCanvas, kIsShadow
};
inline constexpr std::uint32_t kOfCanvas = 1;  ///< Region::kCanvas
inline constexpr std::uint32_t kIsShadow = 2;  ///< StepPlan::shadows

/// A row whose K and V are stored, and where, for shaders/store_kv.comp.
struct StoreArgument {
  VkDeviceAddress cache = 0;
  std::int32_t position = 0;
  std::int32_t row = 0;  ///< of the pass
};

/// How K and V are stored: F32, F16, BF16, Q8_0 or Q4_0.
struct CacheFormat {
  TensorType type = TensorType::kF16;
  bool plain_keys = false;  ///< Q4_0: blocks of K are not rotated

  bool rotates_keys() const { return type == TensorType::kQ4_0 && !plain_keys; }
  /// Bytes of a row of a head, as shaders/cache.glsl has them.
  std::int64_t row_bytes(std::int64_t head_dim) const;
};

/// Where a layer is in a tile of the cache, in words.
struct CachePlace {
  std::uint32_t tile_words = 0;  ///< of all layers
  std::uint32_t key_words = 0;
  std::uint32_t value_words = 0;
};

/// A matrix in panels, in a device's memory.
struct DeviceMatrix {
  VkDeviceAddress panels = 0;
  const cpu::PackedFormat* format = nullptr;
  cpu::PackedLayout layout;
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::int64_t expert_bytes = 0;  ///< of stacks: from a matrix to the next
  /// The exponent of its largest number, 2^(e - 127), if its products may run in F16.
  std::optional<std::int32_t> half_exponent{};
};

/// Rows of a product: their number's address, and the most that it may be.
struct RowCount {
  VkDeviceAddress count = 0;
  std::int64_t most = 0;
};

/// Products of op::Experts: of every row with each of its experts.
struct ExpertPairs {
  VkDeviceAddress route = 0;  ///< [rows][2 used]; 0: a product of all rows with one matrix
  std::int64_t used = 0;
  bool shared_rows = false;  ///< all pairs of a row read the same row of x, which is [rows]; else it is [rows][used]
  std::int64_t experts = 0;  ///< matrices of the stack; 0: unknown, each pair reads its own
};

/// Where op::Route keeps the scores of all experts.
struct RouteScratch {
  VkDeviceAddress scores = 0, keys = 0;  ///< [rows][experts]
};

/// A scored row for shaders/reduce_chunk.comp.
struct ReduceRow {
  double beta = 1;
  std::uint32_t asked = 0;  ///< tokens
  std::uint32_t whole = 0;  ///< 1: this processor reduces it
};
/// The reduction of a head: what it reads and writes.
struct ReductionPlaces {
  VkDeviceAddress logits = 0;   ///< [rows][width]
  VkDeviceAddress rows = 0;     ///< ReduceRow
  VkDeviceAddress asked = 0;    ///< [rows][cpu::kMostAsked], tokens; with kRuledToken: left out
  VkDeviceAddress chunks = 0;   ///< [rows][chunks], cpu::ReducedChunk
  VkDeviceAddress answers = 0;  ///< [rows][cpu::kMostAsked]
};
inline constexpr std::uint32_t kRuledToken = 0x8000'0000;

/// What op::Scale multiplies rows by.
struct RegionFactors {
  float context = 1.f;
  float canvas = 1.f;
};

/// A transform of op::Hadamard.
struct DeviceHadamard {
  std::int64_t order = 0;
  std::int64_t core = 1;
  float scale = 1.f;
  VkDeviceAddress signs = 0;  ///< [core][core]
};

/// Rows of int8 codes for products with packed codes; or rows of F16 with a scale for each row, and no sums.
struct DeviceCodes {
  VkDeviceAddress values = 0, scales = 0, sums = 0;
};
/// Words of a row of F16: whole pieces of 16 bytes.
constexpr std::int64_t half_words(std::int64_t k) { return (k + 7) / 8 * 4; }

/// What a kernel of CUDA is told beyond its operator. A shader reads none of it: Operators::fuses() says who runs.
struct KernelPart {
  /// It asks for how many rows it runs: `count` times `pairs`. No address: over all that it is dispatched for.
  VkDeviceAddress count = 0;
  std::int64_t pairs = 1;
  DeviceCodes codes;  ///< where codes of the result go, if they have an address
  bool exact = false;
  VkDeviceAddress other = 0;  ///< rms_norm: added to x first, if there is one
  VkDeviceAddress sum = 0;    ///< where that goes
};

/// The operators of the Graph as shaders with arguments, compiled when they are first asked for. Every one has the bits
/// of the CPU's kernels. Errors of all: kUnsupported, kResource.
class Operators {
 public:
  Operators(std::shared_ptr<Device> device, const Arithmetic& arithmetic)
      : device_(std::move(device)), arithmetic_(arithmetic) {}

  const std::shared_ptr<Device>& device() const { return device_; }
  const Arithmetic& arithmetic() const { return arithmetic_; }

  /// Whether rms_norm() of slices of this width, glu() and attention() can do what a KernelPart asks for.
  bool fuses(std::int64_t slice) const { return arithmetic_.kernels && slice <= kMostNormKernel && slice % 4 == 0; }
  bool fuses(const op::Attention& o, const CacheFormat& cache) const;
  /// Whether route() runs in the place of its two halves.
  bool fuses(const op::Route& o, std::int64_t experts) const;
  /// Rows of `width` floats; `order`: which row comes where, or 0. `stride`: from row to row of `to`, 0: `width`.
  Expected<Launch> copy_rows(VkDeviceAddress from, VkDeviceAddress order, VkDeviceAddress to, std::int64_t width,
                             std::int64_t stride = 0);
  /// `gain` may be 0: 1.
  Expected<Launch> rms_norm(const op::RmsNorm& o, std::int64_t width, VkDeviceAddress x, VkDeviceAddress gain,
                            VkDeviceAddress out, const KernelPart& part = {});
  Expected<Launch> add(std::int64_t width, VkDeviceAddress a, VkDeviceAddress b, VkDeviceAddress out);
  /// `up` may be 0.
  Expected<Launch> glu(const op::Glu& o, std::int64_t width, VkDeviceAddress gate, VkDeviceAddress up,
                       VkDeviceAddress out, const KernelPart& part = {});
  Expected<Launch> scale(std::int64_t width, const RegionFactors& factors, VkDeviceAddress x, VkDeviceAddress rows,
                         VkDeviceAddress out);
  Expected<Launch> select(std::int64_t width, VkDeviceAddress canvas, VkDeviceAddress context, VkDeviceAddress rows,
                          VkDeviceAddress out);
  Expected<Launch> hadamard(const DeviceHadamard& transform, std::int64_t width, VkDeviceAddress x,
                            VkDeviceAddress out);
  /// cos and sin: [rows][dims / 2].
  Expected<Launch> rope(const op::Rope& o, VkDeviceAddress x, VkDeviceAddress cos, VkDeviceAddress sin,
                        VkDeviceAddress out);
  /// `exact`: scales are not rounded (KernelSet::quantize_row).
  Expected<Launch> quantize(std::int64_t k, bool exact, VkDeviceAddress x, const DeviceCodes& to,
                            const KernelPart& part = {});
  /// Rows of F16 with a power of two each, for products in F16.
  Expected<Launch> halves(std::int64_t k, VkDeviceAddress x, const DeviceCodes& to);
  /// Whether linear() of a matrix reads rows of halves().
  bool takes_halves(const DeviceMatrix& matrix) const { return arithmetic_.halves && matrix.half_exponent; }
  /// Products with packed codes and those in F16 read `codes`, those with packed floats `x`. `bias` may be 0.
  Expected<Launch> linear(const DeviceMatrix& matrix, VkDeviceAddress x, const DeviceCodes& codes, VkDeviceAddress bias,
                          const RowCount& rows, VkDeviceAddress out, const ExpertPairs& pairs = {});
  /// What products can use of the device. Errors: kResource.
  Expected<const ProductUnits*> product_units();
  /// For benchmarks and tests: how products with packed codes run from now on, where they can; nothing: as they do
  /// best.
  void force(const std::optional<ProductPlan>& plan) { forced_ = plan; }
  /// The two halves of a route; `bias` and `scale` may be 0.
  Expected<Launch> route_scores(const op::Route& o, std::int64_t experts, VkDeviceAddress logits, VkDeviceAddress bias,
                                const RouteScratch& to);
  Expected<Launch> route_choice(const op::Route& o, std::int64_t experts, const RouteScratch& from,
                                VkDeviceAddress scale, VkDeviceAddress rows, VkDeviceAddress count,
                                VkDeviceAddress out);
  Expected<Launch> route(const op::Route& o, std::int64_t experts, VkDeviceAddress logits, VkDeviceAddress bias,
                         VkDeviceAddress scale, VkDeviceAddress count, VkDeviceAddress out);
  /// The weighted sums of [rows][used][width].
  Expected<Launch> mix_experts(std::int64_t used, std::int64_t width, VkDeviceAddress products, VkDeviceAddress route,
                               VkDeviceAddress out);
  /// Logits of the tokens [first, first + width) to reduced chunks; `first` is a multiple of cpu::kHeadChunk.
  Expected<Launch> reduce_chunks(const op::ScoreHead& o, std::int64_t first, std::int64_t width, std::int64_t chunks,
                                 const ReductionPlaces& at);
  /// The end of a pass that others may follow: predictions of the scored rows from their chunks, which are also kept
  /// for the host; what the rules of commits make of them, in one workgroup; and embeddings of committed tokens.
  struct CommitPlaces {
    UnrollPlaces at;
    ReductionPlaces head;               ///< its `logits` and `rows` are not read
    VkDeviceAddress candidates = 0;     ///< [rows] of kCandidateBytes
    VkDeviceAddress kept = 0;           ///< for each pass: chunks, answers and committed tokens of `room` rows
    std::int64_t chunks = 0, room = 0;  ///< of a row; most scored rows
    std::int64_t pass_bytes = 0;        ///< of `kept`, from pass to pass
  };
  Expected<Launch> merge_chunks(const CommitPlaces& places);
  Expected<Launch> commit_rows(const CommitPlaces& places);
  Expected<Launch> embed_tokens(const UnrollPlaces& at, VkDeviceAddress table, std::int64_t width, VkDeviceAddress to);
  /// `stores`: a StoreArgument for each of the dispatch's rows.
  Expected<Launch> store_kv(const CacheFormat& cache, std::int64_t kv_heads, std::int64_t head_dim,
                            const CachePlace& place, VkDeviceAddress k, VkDeviceAddress v, VkDeviceAddress stores);
  struct AttentionPlaces {
    VkDeviceAddress q, rows, visible, tiles, out;
  };
  Expected<Launch> attention(const op::Attention& o, const CacheFormat& cache, const CachePlace& place,
                             const AttentionPlaces& at, const KernelPart& part = {});

 private:
  using Constants = std::array<std::uint32_t, 8>;  ///< from constant_id 2 on
  using Pipelines = std::map<std::pair<std::string, Constants>, Pipeline, std::less<>>;
  using Compiled = Pipelines::value_type;
  Expected<const Compiled*> pipeline(std::string_view shader, const Constants& extra);
  template <class Push>
  Expected<Launch> launch(std::string_view shader, const Constants& extra, const Push& push, std::int64_t columns,
                          std::uint32_t rows_per_group = 1);
  /// A kernel of cuda/, in blocks of so many threads.
  template <class Push>
  Expected<Launch> kernel(const std::string& module, const std::string& name, std::uint32_t threads, const Push& push,
                          std::int64_t columns, std::uint32_t rows_per_group = 1);
  Expected<Launch> launch_of(const Compiled& compiled, std::span<const std::byte> push, std::int64_t columns,
                             std::uint32_t rows_per_group) const;
  // In operators_cuda.cpp.
  Expected<Launch> norm_kernel(const op::RmsNorm& o, std::int64_t width, VkDeviceAddress x, VkDeviceAddress gain,
                               VkDeviceAddress out, const KernelPart& part);
  Expected<Launch> glu_kernel(const op::Glu& o, std::int64_t width, VkDeviceAddress gate, VkDeviceAddress up,
                              VkDeviceAddress out, const KernelPart& part);
  Expected<Launch> quantize_kernel(std::int64_t k, bool exact, VkDeviceAddress x, const DeviceCodes& to,
                                   const KernelPart& part);
  // In operators_floats.cpp.
  Expected<Launch> floats_product(const DeviceMatrix& matrix, VkDeviceAddress x, VkDeviceAddress bias,
                                  const RowCount& rows, VkDeviceAddress out, const ExpertPairs& pairs);
  Expected<Launch> halves_product(const DeviceMatrix& matrix, const DeviceCodes& codes, VkDeviceAddress bias,
                                  const RowCount& rows, VkDeviceAddress out, const ExpertPairs& pairs);
  Expected<Launch> floats_kernel(const DeviceMatrix& matrix, VkDeviceAddress x, VkDeviceAddress bias,
                                 const RowCount& rows, VkDeviceAddress out, const ExpertPairs& pairs);
  Expected<Launch> attention_kernel(const op::Attention& o, const CacheFormat& cache, const CachePlace& place,
                                    const AttentionPlaces& at, float scale, const KernelPart& part);
  Expected<Launch> product_kernel(const ProductPlan& plan, const DeviceMatrix& matrix, const DeviceCodes& codes,
                                  VkDeviceAddress bias, const RowCount& rows, VkDeviceAddress out,
                                  const ExpertPairs& pairs);

  std::shared_ptr<Device> device_;
  Arithmetic arithmetic_;
  std::optional<ProductUnits> units_;
  std::optional<ProductPlan> forced_;
  std::map<std::string, std::shared_ptr<const CudaModule>, std::less<>> modules_;
  Pipelines pipelines_;
};

/// Whether products read panels of a format: a new kind of codes needs a line in shaders/linear_codes.comp.
bool multiplies(const cpu::PackedFormat& format);

/// Most experts of a route.
inline constexpr std::int64_t kMostExperts = 1024;

/// Why the backend cannot run an operator: "a head_dim of 320; 256 is the most"; empty: it can.
std::string not_run(const Op& op, const Graph& graph);

/// Errors: kUnsupported, if the graph has such an operator.
Expected<void> check_operators(const Graph& graph);

}  // namespace dllm::vulkan
