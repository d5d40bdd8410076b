#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/lowering/segments.h"
#include "npu_core/assembler/program.h"

namespace dllm::npu {

/// One sequence's part of a step: everything that a program depends on. Token ids are data (INT_MEM).
struct SequenceSpec {
  std::vector<Position> positions;     ///< of its rows, ascending
  std::vector<PositionRange> visible;  ///< the rows may attend to these: sorted, disjoint
  /// The kind of mask. 0: every row sees all of `visible`; B: row i sees the visible j with j/B <= i/B (1 = causal).
  std::int32_t causal_block = 0;
  std::vector<std::int32_t> scored;  ///< indices into positions
  std::uint64_t cache = 0;           ///< HBM address of its K and V
  std::int64_t capacity = 0;         ///< positions the cache was laid out for
  bool canvas = false;               ///< the region of its rows (StepPlan::region)
  /// With smoothing (MachineConfig::smoothing): the rows give K and V new centres and factors; otherwise they get those
  /// that the cache has.
  bool takes_statistics = false;
  /// Of rows that take turns: the first position of all of them, from which windows are counted; -1: of these rows.
  Position first_of_all = -1;

  /// `window`: of op::Attention; 0: none.
  bool sees(std::size_t row, std::int64_t key, std::int64_t window = 0) const;
  /// The first position that the row's window is counted from.
  std::int64_t window_start(std::size_t row) const {
    if (causal_block > 0) return positions[row] / causal_block * causal_block;
    return first_of_all >= 0 ? first_of_all : positions.front();
  }
};
struct StepSpec {
  std::vector<SequenceSpec> sequences;
  /// Of a step that is only counted (count_step()): each sequence stands for so many like it.
  std::int64_t alike = 1;
  std::int64_t rows() const;
  std::int64_t scored() const;
};

/// Where the LM head's results go.
enum class HeadMode : std::uint8_t {
  kLogits,   ///< logits to HBM, for a reduction on the host or by the sampling kernels
  kReduced,  ///< logits stay on chip: arg-max and its probability per scored row, in INT_MEM and FP_MEM
};

struct CompileOptions {
  HeadMode head = HeadMode::kLogits;
  std::optional<MxFormat> logits = {};  ///< of kLogits in memory; otherwise the lanes' format
  /// kReduced: above 0, tokens are drawn from softmax(logits / temperature) with keys in the format of lanes, which
  /// FP_MEM keeps between slabs, instead of the arg-max.
  double temperature = 0;
  bool draws() const { return head == HeadMode::kReduced && temperature > 0; }
  /// Gate, up and SwiGLU as one operator, slab by slab.
  bool fuse = true;
  /// Norms, residual additions and RoPE in the shadow of products. If vector SRAM is too small for the values that this
  /// keeps alive, the step is compiled without it.
  bool overlap = true;
  /// Every value has its own buffer, so that all of them can be read after the run (nothing is fused then). For
  /// tests.
  bool keep_values = false;
  /// Only these operators. Values that are made before are loaded from `spill`, those that are read later stored there
  /// (spill_bytes()).
  Segment segment = {};
  std::uint64_t spill = 0;  ///< address in HBM
  // Of a part of a step (split_step.h).
  std::int64_t first_row = 0;     ///< rows of the previous parts, whose tokens precede these
  std::int64_t token_rows = 0;    ///< rows of all parts; 0: this is the only one
  std::uint64_t step_offset = 0;  ///< bytes of the step's memory that previous parts use
  /// How rows choose experts in a run without data.
  ChoiceAssumption choices = {};
};

/// A value in vector SRAM: slab s of row r is VRAM row `row + s * stride + r`.
struct ValuePlace {
  std::int64_t row = -1;    ///< -1: not placed yet
  std::int64_t stride = 0;  ///< rows of a slab, a multiple of BLEN
  std::int64_t slabs = 0;
};

/// A graph operator in the program, or several that were lowered as one.
struct OperatorRegion {
  std::vector<std::int32_t> ops;  ///< indices into Graph::ops
  std::string name;               ///< "blk.3.attn_q": the region's name, that of the last operator's value
  std::uint32_t begin = 0, end = 0;
};

struct HbmBlob {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;
};

/// Rows of a value in HBM, in the lanes' format, as in vector SRAM: [slab][stride][VLEN].
struct HiddenPlace {
  std::int64_t first = 0;  ///< column among all that come in, or go out; kMixture: StepPlan::mixtures
  ValueId value = kNoId;
  std::uint64_t address = 0;
  std::int64_t stride = 0;
};

/// Rows of an embedding of EmbedPart::kMixture, which the host makes.
inline constexpr std::int64_t kMixture = -1;

/// A compiled step and the places of its data.
struct StepProgram {
  Program program;                        ///< linked; regions of the operators, by name
  std::vector<OperatorRegion> operators;  ///< in the order of the graph
  std::vector<HbmBlob> constants;         ///< must be in HBM before the run
  std::uint64_t step_bytes = 0;           ///< of the step's memory in use
  std::vector<ValuePlace> values;         ///< by ValueId; buffers are shared unless keep_values
  std::int64_t vram_rows = 0;             ///< of VLEN, maximum in use
  bool overlapped = false;                ///< as CompileOptions::overlap, unless vector SRAM was too small
  std::uint64_t logits = 0;               ///< kLogits: HBM, [slab][logit_rows][VLEN] in CompileOptions::logits
  std::int64_t logit_rows = 0;
  /// kReduced: INT_MEM words of the scored rows' most probable tokens, FP_MEM words of their probabilities.
  std::uint32_t predicted = 0, confidence = 0;
  /// kReduced with a temperature: INT_MEM words that the run needs, positions of the scored rows, their draw_streams,
  /// and after these seed (low, high), step and the token that is never drawn.
  std::uint32_t draws = 0;
  /// What op::HiddenIn reads, to be written before the run, and what op::HiddenOut has written.
  std::vector<HiddenPlace> hidden_in{}, hidden_out{};
};

/// Words of INT_MEM of a reduced head: its tokens, and what its draws need.
constexpr std::int64_t head_words(const CompileOptions& options, std::int64_t scored) {
  if (options.head != HeadMode::kReduced) return 0;
  return options.draws() ? 3 * scored + 4 : scored;
}

/// Token ids of the rows of all parts of a step start here in INT_MEM.
inline constexpr std::uint32_t kTokenWords = 0;

/// Bytes of HBM for the values that wait before operator `at` of a graph.
std::uint64_t spill_bytes(const Graph& graph, const ModelLayout& layout, std::size_t at);

/// Compiles one step. `graph` was built for the spec's numbers of rows. Errors: kUsage (what does not fit, and the
/// available room), kUnsupported (operators).
Expected<StepProgram> compile_step(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                                   const CompileOptions& options = {});
/// The same with a program that link() has not seen: code of a longer one, which is linked as a whole.
Expected<StepProgram> compile_unlinked(const Graph& graph, const ModelLayout& layout, const StepSpec& spec,
                                       const CompileOptions& options);

}  // namespace dllm::npu
