#include "npu_core/machine/resolve.h"

#include <fmt/format.h>

#include "base/to_size.h"
#include "npu_core/machine/tiles.h"

namespace dllm::npu {
namespace {

std::uint64_t u64(int value) { return static_cast<std::uint64_t>(value); }

/// The accesses of one instruction, under construction.
class Resolver {
 public:
  Resolver(const MachineState& state, const Instruction& instruction, ResolvedAccesses& accesses, Trap& trap)
      : state_(state), config_(state.config), instruction_(instruction), accesses_(accesses), trap_(trap) {}

  bool use(const MemoryUse& use) {
    use_ = &use;
    if (use.extent == Extent::kAccumulator) return push({.space = use.space, .access = use.access});
    if (use.space == Space::kHbm) return hbm();
    if (use.space == Space::kMram) return mram(base());
    if (use.space == Space::kVram) return vram(base());
    return words(base());
  }

 private:
  std::uint32_t gp(Field field) const { return state_.gp[instruction_.get(field)]; }
  std::uint64_t lanes() const { return u64(config_.vlen); }
  std::uint64_t tile() const { return u64(config_.mlen) * u64(config_.mlen); }

  bool swapped() const { return config_.tmv_vector_first && instruction_.op == Op::M_TMV; }

  std::uint64_t base() const {
    switch (use_->base) {
      case Base::kRd:
        return gp(Field::kRd);
      case Base::kRs1:
        return gp(swapped() ? Field::kRs2 : Field::kRs1);
      case Base::kRs2:
        return gp(swapped() ? Field::kRs1 : Field::kRs2);
      case Base::kRs3:
        return gp(Field::kRs3);
      case Base::kRdImm:
        return std::uint64_t{gp(Field::kRd)} + instruction_.get(Field::kImm18);
      case Base::kRs1Imm:
        return std::uint64_t{gp(Field::kRs1)} + instruction_.immediate;
      case Base::kRs1Rd:
        return std::uint64_t{gp(Field::kRs1)} + gp(Field::kRd);
      case Base::kHbmRs2Rs1:
      case Base::kNone:
        break;
    }
    return 0;
  }

  bool fail(std::string what, std::string hint = "") {
    trap_ = {std::move(what), std::move(hint)};
    return false;
  }

  std::string described(std::uint64_t address) const {
    return fmt::format("{} address {}", name_of(use_->space), address);
  }

  bool aligned(std::uint64_t address, std::uint64_t unit, std::string_view unit_name) {
    if (address % unit == 0) return true;
    return fail(fmt::format("{} is not a multiple of {} {}", described(address), unit_name, unit));
  }

  /// Checks bounds; nothing wraps and nothing is clamped.
  bool push(MemoryRange range) {
    range.space = use_->space;
    range.access = use_->access;
    const std::uint64_t size = space_size(config_, range.space);
    if (range.length != 0 && range.rows != 0 && range.groups != 0) {
      const auto steps = [](std::uint32_t count, std::uint64_t stride) {
        return static_cast<unsigned __int128>(count - 1) * stride;
      };
      const unsigned __int128 end = static_cast<unsigned __int128>(range.base) +
                                    steps(range.groups, range.group_stride) + steps(range.rows, range.row_stride) +
                                    range.length;
      if (end > size) {
        const char* unit = range.space == Space::kHbm                                   ? "bytes"
                           : range.space == Space::kVram || range.space == Space::kMram ? "elements"
                                                                                        : "words";
        return fail(fmt::format("{} is out of range: {} x {} runs of {} {} reach beyond {} of {}",
                                described(range.base), range.groups, range.rows, range.length, unit,
                                name_of(range.space), size));
      }
    }
    accesses_.ranges[to_size(accesses_.count++)] = range;
    return true;
  }

  bool rows_of_vram(std::uint64_t address, std::uint64_t align, std::string_view align_name, std::uint32_t rows,
                    std::uint64_t row_stride, std::uint32_t length) {
    if (!aligned(address, align, align_name)) return false;
    return push({.base = address, .rows = rows, .row_stride = row_stride, .length = length});
  }

  bool vram(std::uint64_t address) {
    const auto vlen = static_cast<std::uint32_t>(config_.vlen), mlen = static_cast<std::uint32_t>(config_.mlen);
    const auto blen = static_cast<std::uint32_t>(config_.blen);
    switch (use_->extent) {
      case Extent::kRow:
        return rows_of_vram(address, vlen, "VLEN", 1, 0, vlen);
      case Extent::kTileRows:
        return rows_of_vram(address, mlen, "MLEN", state_.control(Csr::kMmRows), vlen, mlen);
      case Extent::kHeadRows:
        return rows_of_vram(address, mlen, "MLEN", state_.control(Csr::kBmmRows), vlen, mlen);
      case Extent::kLaneGroup:
        return rows_of_vram(address, mlen, "MLEN", 1, 0, mlen);
      case Extent::kMvOut:
        return rows_of_vram(address, blen, "BLEN", 1, 0, blen);
      case Extent::kMmOut: {
        const std::uint64_t stride = std::max<std::uint64_t>(1, gp(Field::kRs1));
        return rows_of_vram(address, blen, "BLEN", state_.control(Csr::kMmRows), stride * vlen, blen);
      }
      case Extent::kBmmOut:
        return heads_out(address, state_.control(Csr::kBmmRows));
      case Extent::kBmvOut:
        return heads_out(address, 1);
      case Extent::kPrefetchRows:
        return rows_of_vram(address, vlen, "VLEN", state_.control(Csr::kPrefetchVRows), vlen, vlen);
      case Extent::kStoreRows:
        return rows_of_vram(address, vlen, "VLEN", state_.control(Csr::kStoreVRows), vlen, vlen);
      case Extent::kLengthRs4: {
        accesses_.elements = gp(Field::kFunct);
        const std::uint64_t rows = (std::uint64_t{accesses_.elements} + vlen - 1) / vlen;
        return rows_of_vram(address, vlen, "VLEN", static_cast<std::uint32_t>(rows), vlen, vlen);
      }
      case Extent::kRouterRow:
        return router_row(address);
      default:
        return fail("internal: no VRAM extent");
    }
  }

  bool heads_out(std::uint64_t address, std::uint32_t rows) {
    const std::uint32_t cols = state_.control(Csr::kBmmCols), heads = static_cast<std::uint32_t>(config_.heads());
    std::uint64_t stride = state_.control(Csr::kBmmHeadStride);
    if (stride == 0) stride = rows * lanes();
    if (!aligned(address, u64(config_.blen), "BLEN")) return false;
    if (heads > 1 && stride < cols)
      return fail(fmt::format("bmm_head_stride {} is less than bmm_cols {}: heads would overlap", stride, cols));
    for (std::uint32_t head = 0; head < heads; ++head)
      if ((address + head * stride) % lanes() + cols > lanes())
        return fail(
            fmt::format("{}: {} columns of head {} cross the end of a VRAM row", described(address), cols, head),
            "align the address and bmm_head_stride so that each head stays within one row");
    return push({.base = address,
                 .groups = heads,
                 .group_stride = stride,
                 .rows = rows,
                 .row_stride = lanes(),
                 .length = cols});
  }

  /// Experts and selected experts of V_TOPK by its policy.
  std::pair<std::uint32_t, std::uint32_t> router() const {
    const std::uint32_t policy = instruction_.get(Field::kRs3);
    if (policy == 0) return {32, 4};
    if (policy == 1) return {128, 8};
    return {state_.control(Csr::kRouterExperts), state_.control(Csr::kRouterTop)};
  }

  bool router_row(std::uint64_t address) {
    const auto [experts, top] = router();
    if (top > experts) return fail(fmt::format("cannot select {} of {} experts", top, experts));
    accesses_.elements = experts;
    const auto vlen = static_cast<std::uint32_t>(config_.vlen);
    return rows_of_vram(address, vlen, "VLEN", (experts + vlen - 1) / vlen, vlen, vlen);
  }

  bool words(std::uint64_t address) {
    std::uint32_t length = 1;
    switch (use_->extent) {
      case Extent::kWindow:
        length = static_cast<std::uint32_t>(config_.vlen);
        accesses_.elements = length;
        break;
      case Extent::kLengthRs2:
        length = gp(Field::kRs2);
        if (length > lanes()) return fail(fmt::format("length {} exceeds VLEN {}", length, config_.vlen));
        accesses_.elements = length;
        break;
      case Extent::kLengthRs4:
        length = accesses_.elements = gp(Field::kFunct);
        break;
      case Extent::kRouterTop:
        length = router().second;
        break;
      default:
        break;
    }
    return push({.base = address, .length = length});
  }

  bool mram(std::uint64_t address) {
    const std::uint64_t mlen = u64(config_.mlen), start = address - address % tile(), offset = address % tile();
    const auto blen = static_cast<std::uint32_t>(config_.blen), m = static_cast<std::uint32_t>(config_.mlen);
    const auto cols = state_.control(Csr::kBmmCols);
    const std::uint64_t slices = u64(config_.heads()) / state_.control(Csr::kBmmGroup), hlen = u64(config_.hlen);
    // PLENA has two conventions for a slice of a tile: counted in elements (below MLEN) or in rows of MLEN.
    const std::uint64_t slice = offset < mlen ? offset : offset / mlen;
    const bool side_by_side = use_->extent == Extent::kHeadSlices && state_.control(Csr::kBmmLayout) == 1;
    if (offset >= mlen && use_->extent != Extent::kHeadSlicesT && !side_by_side && offset % mlen != 0)
      return fail(fmt::format("{}: offset {} within the tile is neither below MLEN {} nor a multiple of it",
                              described(address), offset, mlen));
    switch (use_->extent) {
      case Extent::kColumnSlice:
        if (slice % blen != 0 || slice + blen > mlen) return fail_slice(address);
        return push({.base = start + slice, .rows = m, .row_stride = mlen, .length = blen});
      case Extent::kRowSlice:
        if (offset % mlen != 0)
          return fail(fmt::format("{} is not the start of a row of MLEN {}", described(address), mlen));
        [[fallthrough]];
      case Extent::kTransposedSlice:
        if (slice % blen != 0) return fail_slice(address);
        return push({.base = start + slice * mlen, .rows = blen, .row_stride = mlen, .length = m});
      case Extent::kHeadSlices:
        if (side_by_side) {
          const std::uint64_t row = offset / mlen, lane = offset % mlen;
          if (row % hlen != 0 || lane % blen != 0 || lane + slices * cols > mlen) return fail_slice(address);
          return push({.base = address,
                       .rows = static_cast<std::uint32_t>(hlen),
                       .row_stride = mlen,
                       .length = static_cast<std::uint32_t>(slices * cols)});
        }
        if (slice % hlen != 0 || slice + slices * hlen > mlen) return fail_slice(address);
        return push({.base = start + slice * mlen,
                     .rows = static_cast<std::uint32_t>(slices * hlen),
                     .row_stride = mlen,
                     .length = cols});
      case Extent::kHeadSlicesT: {
        const std::uint64_t row = offset / mlen, lane = offset % mlen;
        if (row % blen != 0 || row + cols > mlen || lane % hlen != 0 || lane + slices * hlen > mlen)
          return fail_slice(address);
        return push(
            {.base = address, .rows = cols, .row_stride = mlen, .length = static_cast<std::uint32_t>(slices * hlen)});
      }
      case Extent::kPrefetchRows:
        if (!aligned(address, mlen, "MLEN")) return false;
        return push({.base = address, .rows = state_.control(Csr::kPrefetchMRows), .row_stride = mlen, .length = m});
      default:
        return fail("internal: no MRAM extent");
    }
  }

  bool fail_slice(std::uint64_t address) {
    return fail(fmt::format("{}: offset {} within the tile is not the start of a slice that fits", described(address),
                            address % tile()),
                "docs/guide/isa.md tells how the instruction addresses slices");
  }

  bool hbm() {
    const bool matrix = use_->extent == Extent::kHbmMatrix;
    const MxFormat format = transfer_format(state_, instruction_);
    const std::uint64_t cols = u64(matrix ? config_.mlen : config_.vlen);
    const std::uint32_t rows = state_.control(matrix                               ? Csr::kPrefetchMRows
                                              : use_->extent == Extent::kHbmVector ? Csr::kPrefetchVRows
                                                                                   : Csr::kStoreVRows);
    const std::uint64_t offset = gp(Field::kRs1);
    const std::uint64_t stride = instruction_.get(Field::kRs3) == 1 ? state_.stride_reg : cols;
    const std::uint64_t address = state_.address[instruction_.get(Field::kRs2)];
    const std::uint64_t bits = u64(format.bits()), block = u64(format.block);
    if (format.packed()) return weight_tiles(format, rows, offset, address);
    for (const auto& [value, name] :
         {std::pair<std::uint64_t, const char*>{offset, "the element offset"}, {stride, "STRIDE_REG"}}) {
      if (value % block != 0)
        return fail(fmt::format("{} {} is not a multiple of the block of {} elements of {}", name, value, block,
                                mx_format_name(format)));
      if (value * bits % 8 != 0)
        return fail(fmt::format("{} {} does not fall on a byte in {}", name, value, mx_format_name(format)));
    }
    if (address > config_.hbm_bytes)
      return fail(fmt::format("HBM address {:#x} is beyond HBM of {} bytes", address, config_.hbm_bytes));
    if (!push({.base = address + offset * bits / 8,
               .rows = rows,
               .row_stride = stride * bits / 8,
               .length = static_cast<std::uint32_t>(format.element_bytes(cols))}))
      return false;
    if (!format.scaled()) return true;
    return push({.base = address + state_.scale_reg + offset / block,
                 .rows = rows,
                 .row_stride = stride / block,
                 .length = static_cast<std::uint32_t>(format.scale_bytes(cols))});
  }

  /// Codes and scales of whole tiles (tiles.h). Their scales are in the tiles: SCALE_REG is not used.
  bool weight_tiles(const MxFormat& format, std::uint32_t rows, std::uint64_t offset, std::uint64_t address) {
    const WeightTiles tiles(config_, format);
    const std::uint64_t elements = tiles.rows * u64(config_.mlen);
    if (instruction_.get(Field::kRs3) == 1)
      return fail(fmt::format("tiles of {} follow each other, a stride does not apply", mx_format_name(format)),
                  "leave rstride out");
    if (offset % elements != 0 || rows % tiles.rows != 0)
      return fail(
          fmt::format("the element offset {} and prefetch_m_rows {} are not whole tiles of BLEN {} x MLEN {} of {}",
                      offset, rows, config_.blen, config_.mlen, mx_format_name(format)));
    if (address > config_.hbm_bytes)
      return fail(fmt::format("HBM address {:#x} is beyond HBM of {} bytes", address, config_.hbm_bytes));
    const std::uint64_t first = address + offset / elements * tiles.tile_bytes();
    const auto part = [&](std::uint64_t base, std::uint64_t length) {
      return push({.base = base,
                   .groups = rows / static_cast<std::uint32_t>(tiles.rows),
                   .group_stride = tiles.tile_bytes(),
                   .rows = static_cast<std::uint32_t>(tiles.rows),
                   .row_stride = length,
                   .length = static_cast<std::uint32_t>(length)});
    };
    return part(first, tiles.row_codes) && part(first + tiles.rows * tiles.row_codes, tiles.row_scales);
  }

  const MachineState& state_;
  const MachineConfig& config_;
  const Instruction& instruction_;
  ResolvedAccesses& accesses_;
  Trap& trap_;
  const MemoryUse* use_ = nullptr;
};

}  // namespace

bool resolve(const MachineState& state, const Instruction& instruction, const InstructionInfo& row,
             ResolvedAccesses& accesses, Trap& trap) {
  accesses.count = 0;
  accesses.elements = 0;
  if (instruction.op == Op::V_RED_DRAW && !state.config.noise) {
    trap = {"V_RED_DRAW: this device has no noise generators",
            "--set array.noise_lanes=N with the draws per cycle, for example 256"};
    return false;
  }
  if (row.memory_count == 0) return true;
  Resolver resolver(state, instruction, accesses, trap);
  for (const MemoryUse& use : row.memory_list())
    if (!resolver.use(use)) return false;
  return true;
}

MxFormat transfer_format(const MachineState& state, const Instruction& instruction) {
  const bool kv = instruction.get(Field::kFunct) == 1;
  if (instruction.op == Op::H_PREFETCH_M) return state.format(kv ? Csr::kFormatMatrixKv : Csr::kFormatWeight);
  return state.format(kv ? Csr::kFormatVectorKv : Csr::kFormatActivation);
}

}  // namespace dllm::npu
