#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/free_ranges.h"
#include "base/to_size.h"
#include "npu_compiler/compiler/attention_plan.h"
#include "npu_compiler/compiler/emitter.h"
#include "npu_compiler/compiler/kv_factors.h"
#include "npu_compiler/compiler/row_work.h"
#include "npu_compiler/compiler/step.h"
#include "npu_compiler/lowering/phases.h"

// State shared by the lowerings. One file per operator kind defines lower(); compile.cpp calls them in order.

namespace dllm::npu {

/// Allocates rows of vector SRAM, first fit. Buffers are released in any order.
class VramAllocator {
 public:
  explicit VramAllocator(std::int64_t rows) : rows_(rows), top_(rows), free_(0, rows) {}
  std::optional<std::int64_t> acquire(std::int64_t rows);
  void release(std::int64_t first, std::int64_t rows) { free_.release(first, rows); }
  /// Rows at the end that nothing has used before and nothing will use again.
  std::optional<std::int64_t> acquire_forever(std::int64_t rows);
  std::int64_t largest_free() const;
  std::int64_t used() const { return peak_ + rows_ - top_; }  ///< maximum in use
  std::int64_t peak() const { return peak_; }                 ///< the same without rows that are kept
  std::int64_t kept() const { return rows_ - top_; }          ///< by acquire_forever()

 private:
  std::int64_t rows_, top_, peak_ = 0;
  FreeRanges<std::int64_t> free_;
};

/// VRAM rows that hide keys; -1: all are visible.
struct KeyMask {
  std::int64_t limit = -1, factor = -1;
};

/// A row of the step: sequence and index into its positions.
struct StepRow {
  std::size_t sequence = 0, index = 0;
  Position position = 0;
};

/// Where routing puts its lists in INT_MEM. A node is two words: the next node of the same expert (0: none) and the
/// address of the row's keys, whose rows follow each other.
struct ExpertWords {
  std::uint32_t nodes = 0;      ///< [row][used]
  std::uint32_t heads = 0;      ///< [experts]: the first node, 0 if no row chose the expert
  std::uint32_t touched = 0;    ///< the chosen experts plus one, ascending, then zeros: one per slot of the ring
  std::uint32_t state = 0;      ///< kExpertStateWords of op::Experts
  std::uint32_t places = 0;     ///< [experts]: a slab's number times VLEN, if their lanes fill several; 0: one row
  std::uint32_t first_row = 0;  ///< address of the first row's keys
};
inline constexpr std::uint32_t kExpertStateWords = 28;

class StepContext {
 public:
  /// `counts`: only room is decided, in the order in which a program's would be; a lowering returns before it emits.
  StepContext(const Graph& graph, const ModelLayout& layout, const StepSpec& spec, const CompileOptions& options,
              std::span<const Lifetime> lives, bool counts = false);

  const bool counts;

  Emitter e;
  Emitter prologue;  ///< code before the first operator: loads of constants
  const Graph& graph;
  const ModelLayout& layout;
  const MachineConfig& machine;
  const StepSpec& spec;
  const CompileOptions& options;
  std::vector<StepRow> rows;  ///< of all sequences, concatenated; none if the step is only counted
  StepProgram result;

  // Vector SRAM.
  Expected<Buffer> acquire(std::int64_t count, std::string_view what);
  void release(const Buffer& buffer);
  /// Rows that are allocated for the whole program.
  Expected<Buffer> acquire_forever(std::int64_t count, std::string_view what);
  /// Gives `out` a buffer: that of an input with the same shape that is not used afterwards, or a new one.
  Expected<ValuePlace> place_output(ValueId out, std::span<const ValueId> reusable = {});
  const ValuePlace& place(ValueId id) const { return result.values[to_size(id)]; }
  /// Makes `out` another name of `x`'s buffer.
  void alias(ValueId out, ValueId x);
  const LaneMap& map(ValueId id) const { return layout.values[to_size(id)]; }
  std::int64_t value_rows(ValueId id) const { return graph.value(id).rows; }
  /// Element address of a row of VRAM.
  std::uint32_t address(std::int64_t row) const { return static_cast<std::uint32_t>(row * machine.vlen); }
  std::uint32_t address(const ValuePlace& p, std::int64_t slab, std::int64_t row) const {
    return address(p.row + slab * p.stride + row);
  }
  std::int64_t vlen() const { return machine.vlen; }
  // Numbers of lanes and scalars. Limits of a row: infinity passes every value, minus infinity none.
  Bf16 number(float x) const { return f32_to_lane(machine.lanes, x); }
  Bf16 one() const { return lane_one(machine.lanes); }
  Bf16 infinity() const { return lane_infinity(machine.lanes); }
  Bf16 minus_infinity() const { return lane_negated(infinity()); }
  Bf16 largest() const { return lane_largest(machine.lanes); }  ///< finite
  Bf16 lowest() const { return lane_negated(largest()); }

  /// Emits body(pointers) for `count` rows of every slab: first the rows of `walking`, then each of `per_slab`'s one
  /// row for the slab (gains, biases).
  void for_rows(std::int64_t count, std::span<const ValuePlace> walking, std::span<const Buffer> per_slab,
                const std::function<void(std::span<const Gp>)>& body);

  // Constant rows: gains and biases, resident from the start of the program.
  Expected<Buffer> resident(WeightId weight, WeightUse use);
  /// A row of VLEN lanes made by the compiler, also resident. Deduplicated.
  Expected<Buffer> constant_row(const std::vector<Bf16>& lanes);
  /// cos, sin rows of the step: rope.tables times rows.size() rows.
  Expected<Buffer> rope_rows(const RopePlace& rope);

  // Bytes in HBM.
  /// Addresses of a layer's K and V in a cache with that many positions. Errors: as kv_layout().
  Expected<KvPlace> kv_place(std::int64_t capacity, std::int32_t layer);
  bool ones_loaded = false;  ///< MramPlan::ones
  /// Length of a tile of keys, and the window of attention (0: none).
  using TileKey = std::pair<std::int64_t, std::int64_t>;
  /// Keys that each sequence sees.
  const std::vector<SequenceTiles>& sequence_tiles(TileKey key);
  std::map<TileKey, std::vector<std::vector<KeyMask>>> key_masks;  ///< of key_masks()
  /// In the prologue: rows of MLEN elements of matrix SRAM <- rows in the format of K and V, their scales
  /// `scale_offset` bytes after them.
  void load_matrix(std::uint64_t to, std::int64_t count, std::uint64_t base, std::uint64_t scale_offset);
  Expected<std::uint64_t> hbm_area(std::uint64_t bytes, std::string_view what);
  /// In the prologue: VRAM rows <- rows of VLEN elements in the lanes' format, `stride` elements apart (0: VLEN).
  void load_rows(std::int64_t to, std::int64_t count, std::uint64_t base, std::uint64_t first_element,
                 std::int64_t stride = 0);

  /// All rows of a value between vector SRAM and HBM, in the lanes' format; returns their bytes.
  std::uint64_t move_rows(Op op, const ValuePlace& place, std::uint64_t base);

  /// The order in which panels of weights stream; null: a layer of experts, whose first is known only at run time.
  std::vector<const WeightPlace*> matrices;
  std::size_t next_matrix = 0;                   ///< index of the next use to be lowered
  std::int64_t panels_done = 0;                  ///< parity chooses the buffer
  bool stores_pending = false;                   ///< K and V were stored after the last fence
  const op::StoreKv* values_unstored = nullptr;  ///< V is stored only after attention has requested K
  std::set<const op::StoreKv*> keys_stored;      ///< before their operator: after the RoPE of k

  /// By sequence, of the layer whose smoothed K and V were stored last.
  std::vector<KvFactors> kv_factors;
  Buffer factor_rows;  ///< of all sequences

  // Work that overlaps with the next products; see row_work.h.
  bool overlap = false;          ///< whether any is allowed
  std::optional<RowWork> carry;  ///< for the last block of rows of the product before
  std::vector<RowWork> streams;  ///< on complete rows
  Buffer row_scratch;            ///< two rows of intermediate results
  /// A word for RowWork::word, round-robin.
  std::uint32_t work_word() { return kFirstWorkWord + next_work_word_++ % kWorkWords; }
  /// Emits the rest of them.
  void flush_carry();
  void flush_streams();
  void finish(const RowWork& work);

  // Routing.
  ExpertWords expert_words;
  ValueId routed = kNoId;           ///< whose lists are in `expert_words`
  std::vector<ChoiceSite> choices;  ///< as in Program, relative to `e`

  std::int64_t vram_used() const { return vram_.used(); }
  const VramAllocator& vram() const { return vram_; }
  std::uint64_t step_used() const { return step_next_ - layout.step_base - options.step_offset; }
  /// INT_MEM words of the tokens of all parts.
  std::int64_t token_words() const { return std::max(options.token_rows, options.first_row + graph.shape.rows); }
  std::int32_t current = 0;  ///< operator being lowered
  void release_dead();
  /// Keeps a value's buffer until finish() of a work that uses it.
  void hold(ValueId id) { held_.insert(id); }
  const Lifetime& life(ValueId id) const { return lives_[to_size(id)]; }
  std::span<const Lifetime> lives() const { return lives_; }

 private:
  struct Shared {
    Buffer buffer;
    int users = 0;
  };
  /// Any order of rows of one length: a row has thousands of lanes, which are compared at once.
  struct BytesBefore {
    bool operator()(const std::vector<Bf16>& a, const std::vector<Bf16>& b) const {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(Bf16)) < 0;
    }
  };
  bool dies_here(ValueId id) const;

  VramAllocator vram_;
  std::span<const Lifetime> lives_;
  std::vector<std::int32_t> buffer_of_;  ///< by value, index into buffers_
  std::vector<Shared> buffers_;
  std::vector<ValueId> placed_;  ///< values with a buffer
  std::map<std::pair<WeightId, WeightUse>, Buffer> residents_;
  std::map<std::vector<Bf16>, Buffer, BytesBefore> constant_rows_;
  std::map<const RopePlace*, Buffer> ropes_;
  std::map<std::int64_t, KvLayout> kv_layouts_;  ///< by capacity
  std::map<TileKey, std::vector<SequenceTiles>> tiles_;
  std::multiset<ValueId> held_;  ///< by unfinished work
  static constexpr std::uint32_t kFirstWorkWord = 6, kWorkWords = 5;
  std::uint32_t next_work_word_ = 0;
  std::uint64_t step_next_ = 0;
};

/// Tags of the transfers that store K and V; attention waits for each with a fence before it loads them.
inline constexpr std::uint32_t kKeyStoreTag = 1, kValueStoreTag = 2;
/// HBM address register of the weights that a product reads.
inline constexpr std::uint32_t kWeightAddress = 2;
/// Words at the end of INT_MEM for addresses that are not kept in registers.
inline constexpr std::uint32_t kScratchWords = 24;
std::uint32_t scratch_word(const MachineConfig& machine, std::uint32_t index);

// One lowering per operator kind.
Expected<void> lower(StepContext& c, const op::Embed& o);
Expected<void> lower(StepContext& c, const op::RmsNorm& o);
Expected<void> lower(StepContext& c, const op::LayerNorm& o);
Expected<void> lower(StepContext& c, const op::HiddenIn& o);
Expected<void> lower(StepContext& c, const op::HiddenOut& o);
Expected<void> lower(StepContext& c, const op::Linear& o);
/// As one operator: gate and up are never stored as a whole. At 512 rows of LLaDA-8B they would take 24 MiB of vector
/// SRAM in addition to 12 MiB of result.
Expected<void> lower(StepContext& c, const GatedProducts& o);
/// The addition and the norm run as vector work, block by block.
Expected<void> lower(StepContext& c, const ResidualProduct& o);
Expected<void> lower(StepContext& c, const op::Rope& o);
Expected<void> lower(StepContext& c, const op::Hadamard& o);
Expected<void> lower(StepContext& c, const op::StoreKv& o);
Expected<void> lower(StepContext& c, const op::Attention& o);
Expected<void> lower(StepContext& c, const op::Glu& o);
/// Of any activation, gated or not, row by row.
Expected<void> lower_activation(StepContext& c, const op::Glu& o);
Expected<void> lower(StepContext& c, const op::Add& o);
Expected<void> lower(StepContext& c, const op::Scale& o);
Expected<void> lower(StepContext& c, const op::Select& o);
Expected<void> lower(StepContext& c, const op::Route& o);
Expected<void> lower(StepContext& c, const op::Experts& o);
Expected<void> lower(StepContext& c, const op::GatherScored& o);
Expected<void> lower(StepContext& c, const op::ScoreHead& o);

/// Attention and RoPE of heads longer than HLEN.
Expected<void> lower_wide(StepContext& c, const op::Attention& o);
Expected<void> lower_wide(StepContext& c, const op::Rope& o, const RopePlace& rope);

/// Calls body(pointers) for `count` rows of the buffers that begin at VRAM rows `first`, `group` rows at a time, so
/// that one row's latency is filled with the others' work: pointers[g] are row g's. The last rows come one by one.
void interleave_rows(StepContext& c, std::int64_t count, std::int64_t group, std::span<const std::int64_t> first,
                     const std::function<void(std::span<const std::vector<Gp>>)>& body);

/// Word of INT_MEM that holds the current slab's address during a matrix product.
inline constexpr std::uint32_t kSlabWord = 0;
/// Where a product's five registers are saved while a slice of other work uses them.
inline constexpr std::uint32_t kSpillWord = 11;

/// Where a matrix product's output goes, slab by slab.
struct MatrixSink {
  std::uint32_t first = 0;              ///< address of the first slab's row 0
  std::optional<std::uint32_t> second;  ///< where each slab of a second matrix goes, if there is one
  /// Emitted after each slab; moves `slab` to the next one.
  std::function<void(const Gp& slab)> finish_slab;
  /// Emitted after every block of rows of the first matrix, from the second slab on: vector work on the previous slab,
  /// while the array has tiles queued: rows [first, first + count) of the block at address `block` of the current slab.
  std::function<void(const Gp& block, std::int64_t first, std::int64_t count)> behind_block = {};
  /// Emitted instead of finish_slab after the last slab.
  std::function<void(const Gp& slab)> finish_last = {};
  /// Work on the product's rows, block by block after the last panel.
  std::optional<RowWork> tail = {};
};
/// x W^T for the next matrix in the stream, for `blocks` blocks of BLEN rows from VRAM address `x`, whose slabs are
/// x_stride rows apart.
void lower_matrix(StepContext& c, std::uint32_t x, std::int64_t x_stride, std::int64_t blocks, const MatrixSink& sink);
/// A matrix in matrix SRAM times a number of rows known only at run time.
struct GatheredProduct {
  const MatrixShape* shape = nullptr;
  std::uint64_t slot = 0;             ///< element address in matrix SRAM
  std::int64_t first = 0;             ///< lane of the first output: matrices may be parts or panels of a larger one
  std::int64_t x_row = 0, y_row = 0;  ///< VRAM rows of operand and result, slabs `stride` rows apart
  std::int64_t stride = 0;
  // INT_MEM words.
  std::uint32_t blocks_word = 0;                          ///< the number of blocks of BLEN rows, may be 0
  std::uint32_t last_rows_word = 0;                       ///< rows of the last block
  std::optional<std::uint32_t> slot_word = {};            ///< added to `slot`
  std::optional<std::uint32_t> x_word = {}, y_word = {};  ///< elements, added to the addresses of x_row and y_row
  /// Emitted after every block of outputs: vector work while the array has tiles queued. Twelve registers are free.
  std::function<void()> behind = {};
};
void lower_gathered(StepContext& c, const GatheredProduct& product);
/// One row of SwiGLU: out = (gate / (1 + e^-gate)) * up. `out` may be an operand, `t` may not.
void swiglu_constants(StepContext& c);
void swiglu_row(Emitter& e, const Gp& t, const Gp& gate, const Gp& up, const Gp& out);
/// `count` rows in place, interleaved in pairs to hide latency; `scratch`: two rows. Moves both pointers.
void swiglu_rows(StepContext& c, std::int64_t count, const Gp& gate, const Gp& up, std::int64_t scratch);
/// Zeroes `count` rows of a value's last slab if the product writes fewer than all lanes of its slabs: readers of the
/// value use the lanes without a column as operands.
void clear_tail(StepContext& c, std::int64_t written, std::int64_t slabs, std::int64_t row, std::int64_t count);
/// RMSNorm's scalar constants; out <- x^2 norm_shrink(); f <- 1 / sqrt(f / (n norm_shrink()) + eps), each step rounded.
/// `shrink`: an f register that the program keeps in between.
void norm_constants(StepContext& c, std::int64_t n, float eps, std::uint32_t shrink);
void norm_squares(StepContext& c, const Gp& out, const Gp& x, std::uint32_t shrink);
void norm_factor(Emitter& e, std::uint32_t f);
/// RoPE of the value that the phase has made, as a stream for the products that follow.
Expected<void> stream_rope(StepContext& c, const Phase& phase);
/// Stores the rows of K, or of V, into the caches.
Expected<void> store_rows(StepContext& c, const op::StoreKv& o, bool value);
/// Stores the rows of V that were delayed.
Expected<void> store_values(StepContext& c);
/// Starts the transfer of the next use's first panel, if there is one.
void prefetch_first_panel(StepContext& c, std::size_t use, std::int64_t parity);

}  // namespace dllm::npu
