#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

// The only description of the instruction set. Encoder, decoder, assembler, disassembler, hazard check, address
// resolution, docs/guide/isa.md and rtl/dllm_isa_pkg.sv are all derived from the table of this header; a new
// instruction needs one table entry and one semantic function of the machine.
//
// Opcodes 0x01-0x37 are PLENA's (binary compatible); 0x38-0x3F and the variants selected by a function field are the
// unified diffusion extension.

namespace dllm::npu {

inline constexpr int kGpRegisters = 16;
inline constexpr int kFpRegisters = 8;
inline constexpr int kAddressRegisters = 8;

/// One entry of the table: a mnemonic with its form. Two entries may share an opcode and differ in a function field.
enum class Op : std::uint8_t {
  M_MM,
  M_TMM,
  M_BMM,
  M_BTMM,
  M_BMM_WO,
  M_MM_WO,
  M_MV,
  M_TMV,
  M_BMV,
  M_BTMV,
  M_MV_WO,
  M_BMV_WO,
  V_ADD_VV,
  V_ADD_VF,
  V_SUB_VV,
  V_SUB_VF,
  V_MUL_VV,
  V_MUL_VF,
  V_EXP_V,
  V_RECI_V,
  V_SQRT_V,
  V_RED_SUM,
  V_RED_SUM_SEG,
  V_RED_MAX,
  V_RED_MAX_SEG,
  S_ADD_FP,
  S_SUB_FP,
  S_MAX_FP,
  S_MUL_FP,
  S_EXP_FP,
  S_RECI_FP,
  S_SQRT_FP,
  S_LD_FP,
  S_ST_FP,
  S_MAP_V_FP,
  S_MAP_V_FP_LEN,
  S_ADD_INT,
  S_ADDI_INT,
  S_SUB_INT,
  S_MUL_INT,
  S_LUI_INT,
  S_LD_INT,
  S_ST_INT,
  H_PREFETCH_M,
  H_PREFETCH_V,
  H_STORE_V,
  C_SET_ADDR_REG,
  C_SET_SCALE_REG,
  C_SET_STRIDE_REG,
  C_SET_V_MASK_REG,
  C_LOOP_START,
  C_LOOP_END,
  V_PS_V,
  V_SHFT_V,
  C_HADAMARD_TRANSFORM,
  C_BREAK,
  V_MAX_VF,
  V_MAX_VV,
  V_MIN_VF,
  V_MIN_VV,
  V_TOPK,
  V_RED_MAX_IDX,
  V_RED_DRAW,
  V_TOPK_MASK,
  V_SELECT_INT,
  S_LI_FP,
  S_MV_FP,
  M_SUM,
  C_BNZ,
  C_FENCE,
  C_SET_CSR,
};
inline constexpr int kOpCount = static_cast<int>(Op::C_SET_CSR) + 1;

enum class Class : std::uint8_t { kMatrix, kVector, kScalar, kHbm, kControl, kSampling };

/// Which execution unit an instruction occupies.
enum class Unit : std::uint8_t { kMatrix, kVector, kScalarFp, kScalarInt, kLoad, kStore, kControl };

/// The rule for its duration; the timing model maps rules to cycles of a device (docs/design/npu-timing.md).
enum class Latency : std::uint8_t {
  kMatrixTile,    ///< BLEN steady (MLEN under the compatibility switch)
  kMatrixHeads,   ///< rows/BLEN x cols/BLEN x BLEN
  kMatrixVector,  ///< BLEN outputs as an M_MM; per head, the rows of matrix SRAM that are read
  kWriteOut,
  kMatrixFlush,
  kVectorAdd,
  kVectorMul,
  kVectorExp,
  kVectorReci,
  kVectorSum,
  kVectorMax,
  kVectorDraw,  ///< VLEN / noise_lanes cycles on its pipe, four times that in FP64
  kVectorScan,
  kVectorShift,
  kHadamard,
  kRouterTopK,  ///< experts x comparator latency
  kTopKMask,    ///< one element per cycle over the length operand
  kSelectInt,   ///< one element per cycle over the length operand
  kMapFp,       ///< one element per cycle over VLEN or the length operand
  kScalarFp,
  kScalarExp,
  kScalarReci,
  kScalarSqrt,
  kScalarInt,
  kHbm,  ///< decided by the memory system
  kControl,
};

/// A bit field of the 32-bit word.
enum class Field : std::uint8_t { kRd, kRs1, kRs2, kRs3, kFunct, kImm18, kImm22, kImm17, kImm16, kImm13, kTag };
inline constexpr int kFieldCount = 11;

constexpr bool is_immediate(Field field) { return field >= Field::kImm18 && field <= Field::kImm13; }
/// The fields of 4 bits, from 0: those before the immediates, and then the tag.
inline constexpr std::size_t kSmallFields = 6;
constexpr std::size_t small_index(Field field) {
  return field == Field::kTag ? kSmallFields - 1 : static_cast<std::size_t>(field);
}

struct FieldInfo {
  std::string_view name;
  std::uint8_t low;    ///< least significant bit
  std::uint8_t width;  ///< bits
};
/// In the order of `Field`.
inline constexpr std::array<FieldInfo, kFieldCount> kFieldTable = {{
    {"rd", 6, 4},
    {"rs1", 10, 4},
    {"rs2", 14, 4},
    {"rs3", 18, 4},
    {"funct1", 22, 4},
    {"imm18", 14, 18},
    {"imm22", 10, 22},
    {"imm17", 14, 17},
    {"imm16", 14, 16},
    {"imm13", 18, 13},
    {"tag", 26, 4},
}};
constexpr const FieldInfo& field_info(Field field) { return kFieldTable[static_cast<std::size_t>(field)]; }

enum class OperandKind : std::uint8_t {
  kGp,    ///< gp0-gp15
  kFp,    ///< f0-f7
  kAddr,  ///< a0-a7
  kZero,  ///< an operand of PLENA's syntax that is ignored: written 0
  kUint,  ///< unsigned literal up to `limit`
  kSint,  ///< two's complement literal of the field's width: an instruction offset or a label
  kBf16,  ///< a literal float, or the 16 bits as 0x....
  kCsr,   ///< name or number of a control register
};

enum class Access : std::uint8_t { kNone, kRead, kWrite, kReadWrite };

struct Operand {
  std::string_view name;  ///< as in the manual: "rd", "rmask", "imm"
  Field field = Field::kRd;
  OperandKind kind = OperandKind::kZero;
  Access access = Access::kNone;
  std::uint32_t limit = 0;  ///< largest literal of kUint
  bool optional = false;    ///< may be left out at the end of a line; reads as 0
};

/// The address spaces. The four accumulators are spaces too: a matrix instruction reads and writes one.
enum class Space : std::uint8_t { kVram, kMram, kFpMem, kIntMem, kHbm, kAccMm, kAccBmm, kAccMv, kAccBmv };
inline constexpr int kSpaceCount = 9;

/// The extent of a memory access; machine/resolve.cpp computes addresses from these rules.
enum class Extent : std::uint8_t {
  kNone,
  kRow,              ///< VRAM: one row of VLEN
  kTileRows,         ///< VRAM: BLEN rows x MLEN lanes
  kHeadRows,         ///< VRAM: bmm_rows rows x MLEN lanes
  kLaneGroup,        ///< VRAM: 1 row x MLEN lanes
  kMmOut,            ///< VRAM: BLEN x BLEN block, rows gp[rs1] rows apart (0: 1)
  kBmmOut,           ///< VRAM: heads x bmm_rows x bmm_cols
  kMvOut,            ///< VRAM: 1 x BLEN
  kBmvOut,           ///< VRAM: heads x bmm_cols
  kColumnSlice,      ///< MRAM: MLEN x BLEN of a tile
  kRowSlice,         ///< MRAM: BLEN x MLEN of a tile, from a row
  kTransposedSlice,  ///< MRAM: BLEN x MLEN of a tile, from a row or from a column of the transposed tile
  kHeadSlices,       ///< MRAM: HLEN rows x bmm_cols per group of heads
  kHeadSlicesT,      ///< MRAM: bmm_cols rows x HLEN per group of heads
  kPrefetchRows,     ///< MRAM: prefetch_m_rows x MLEN; VRAM: prefetch_v_rows x VLEN
  kStoreRows,        ///< VRAM: store_v_rows x VLEN
  kHbmMatrix,        ///< HBM: prefetch_m_rows x MLEN elements and their scales
  kHbmVector,        ///< HBM: prefetch_v_rows x VLEN elements and their scales
  kHbmStore,         ///< HBM: store_v_rows x VLEN elements and their scales
  kWord,             ///< one word of FP_MEM or INT_MEM
  kWindow,           ///< FP_MEM: VLEN words
  kLengthRs2,        ///< gp[rs2] words (FP_MEM)
  kLengthRs4,        ///< gp[rs4] words (INT_MEM) or lanes (VRAM)
  kRouterRow,        ///< VRAM: the logits of the experts
  kRouterTop,        ///< FP_MEM or INT_MEM: the k selected
  kAccumulator,      ///< all of an accumulator
};

/// How the address of a memory access is formed.
enum class Base : std::uint8_t {
  kNone,
  kRd,         ///< gp[rd]
  kRs1,        ///< gp[rs1]
  kRs2,        ///< gp[rs2]
  kRs3,        ///< gp[rs3]
  kRdImm,      ///< gp[rd] + imm
  kRs1Imm,     ///< gp[rs1] + imm
  kRs1Rd,      ///< gp[rs1] + gp[rd]
  kHbmRs2Rs1,  ///< bytes a[rs2], plus gp[rs1] elements
};

struct MemoryUse {
  Space space = Space::kVram;
  Access access = Access::kNone;
  Base base = Base::kNone;
  Extent extent = Extent::kNone;
};

/// Control state outside the register files that an instruction reads or sets (bits).
enum Control : std::uint16_t {
  kUsesNothing = 0,
  kUsesMask = 1 << 0,  ///< V_MASK, when rmask is not 0
  kUsesScaleReg = 1 << 1,
  kUsesStrideReg = 1 << 2,  ///< when rstride is 1
  kUsesBmmScale = 1 << 3,
  kUsesBmmShape = 1 << 4,  ///< bmm_rows, bmm_cols, bmm_group, bmm_head_stride
  kUsesFormats = 1 << 5,   ///< the number-format CSRs
  kUsesAmounts = 1 << 6,   ///< prefetch_m_rows, prefetch_v_rows, store_v_rows
  kUsesSegment = 1 << 7,   ///< segment_length
  kUsesRouter = 1 << 8,    ///< router_experts, router_top
  kBranches = 1 << 9,      ///< C_LOOP_*, C_BNZ, C_BREAK
  kWaits = 1 << 10,        ///< waits for transfers
  kUsesDraw = 1 << 11,     ///< the draw_* CSRs
};

inline constexpr int kMaxOperands = 6;
inline constexpr int kMaxMemoryUses = 4;

struct InstructionInfo {
  Op op;
  std::string_view mnemonic;
  std::uint8_t opcode;
  /// Bits beyond the opcode that select this entry: word & select_mask == select_value.
  std::uint32_t select_mask = 0;
  std::uint32_t select_value = 0;
  Class cls;
  Unit unit;
  Latency latency;
  std::array<Operand, kMaxOperands> operands = {};
  std::uint8_t operand_count = 0;
  std::array<MemoryUse, kMaxMemoryUses> memory = {};
  std::uint8_t memory_count = 0;
  std::uint16_t control_reads = 0;
  std::uint16_t control_writes = 0;
  std::string_view alias;  ///< another mnemonic that the assembler accepts; empty: none
  /// Another order of the operands that the assembler accepts, as indices into `operands`.
  std::array<std::uint8_t, kMaxOperands> other_order = {};
  std::uint8_t other_order_count = 0;
  std::string_view effect;  ///< one line of the manual
  std::string_view note;    ///< further lines: edge cases, differences from PLENA

  std::span<const Operand> operand_list() const { return {operands.data(), operand_count}; }
  std::span<const MemoryUse> memory_list() const { return {memory.data(), memory_count}; }
  std::span<const std::uint8_t> other_order_list() const { return {other_order.data(), other_order_count}; }
};

/// All entries, in the order of `Op`.
std::span<const InstructionInfo> instruction_table();
const InstructionInfo& info(Op op);

/// Entries with this mnemonic or alias, case-insensitive (V_MAX_VF has one, S_MAP_V_FP two). Empty: unknown.
std::span<const InstructionInfo* const> find_mnemonic(std::string_view mnemonic);

std::string_view name_of(Class cls);
std::string_view name_of(Unit unit);
std::string_view name_of(Latency latency);
std::string_view name_of(Space space);

}  // namespace dllm::npu
