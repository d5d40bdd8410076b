#include "npu_compiler/compiler/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

/// HBM address register of loads in the prologue.
constexpr std::uint32_t kConstantAddress = 1;

}  // namespace

std::optional<std::int64_t> VramAllocator::acquire(std::int64_t rows) {
  const auto first = free_.acquire(rows, top_);
  if (first) peak_ = std::max(peak_, *first + rows);
  return first;
}

std::optional<std::int64_t> VramAllocator::acquire_forever(std::int64_t rows) {
  if (top_ - rows < peak_) return std::nullopt;
  return top_ -= rows;
}

std::int64_t VramAllocator::largest_free() const {
  std::int64_t largest = 0;
  for (const auto& [first, size] : free_.holes()) largest = std::max(largest, std::min(size, top_ - first));
  return largest;
}

std::uint32_t scratch_word(const MachineConfig& machine, std::uint32_t index) {
  constexpr std::uint64_t kReach = std::uint64_t{1} << 18;  // range of the immediates
  return static_cast<std::uint32_t>(std::min(machine.int_words, kReach)) - kScratchWords + index;
}

StepContext::StepContext(const Graph& graph_, const ModelLayout& layout_, const StepSpec& spec_,
                         const CompileOptions& options_, std::span<const Lifetime> lives, bool counts_)
    : counts(counts_),
      graph(graph_),
      layout(layout_),
      machine(layout_.machine),
      spec(spec_),
      options(options_),
      // M_BMM and M_BTMM read whole blocks of BLEN rows, including rows after the last one of a value.
      vram_(static_cast<std::int64_t>(layout_.machine.vram_elements) / layout_.machine.vlen - layout_.machine.blen),
      lives_(lives),
      buffer_of_(graph_.values.size(), -1),
      step_next_(layout_.step_base + options_.step_offset) {
  result.values.resize(graph.values.size());
  if (counts) return;
  for (std::size_t s = 0; s < spec.sequences.size(); ++s)
    for (std::size_t i = 0; i < spec.sequences[s].positions.size(); ++i)
      rows.push_back({s, i, spec.sequences[s].positions[i]});
  prologue.begin_region("constants");
  prologue.set_csr(Csr::kFormatActivation, mx_format_number(machine.lane_format()));
}

Expected<Buffer> StepContext::acquire(std::int64_t count, std::string_view what) {
  if (const auto row = vram_.acquire(count)) return Buffer{*row, count};
  return Error{ErrorCode::kUsage,
               fmt::format("{} of {} needs {} rows of vector SRAM (of {} lanes); of {} rows, {} in one piece are free",
                           what, op_name(graph.ops[to_size(current)]), count, machine.vlen,
                           machine.vram_elements / static_cast<std::uint64_t>(machine.vlen), vram_.largest_free()),
               "npu compiler", "fewer rows per step (--batch, --rows), or --set sram.vector_rows=N with a larger N"};
}

void StepContext::release(const Buffer& buffer) { vram_.release(buffer.row, buffer.rows); }

Expected<Buffer> StepContext::acquire_forever(std::int64_t count, std::string_view what) {
  if (const auto row = vram_.acquire_forever(count)) return Buffer{*row, count};
  return Error{ErrorCode::kUsage,
               fmt::format("{}: {} rows of vector SRAM (of {} lanes) are not free", what, count, machine.vlen),
               "npu compiler", "fewer rows per step (--batch, --rows), or --set sram.vector_rows=N with a larger N"};
}

bool StepContext::dies_here(ValueId id) const { return !options.keep_values && lives_[to_size(id)].last == current; }

Expected<ValuePlace> StepContext::place_output(ValueId out, std::span<const ValueId> reusable) {
  const auto index = to_size(out);
  ValuePlace place{-1, round_up(value_rows(out), machine.blen), layout.slabs(map(out))};
  for (const ValueId id : reusable) {
    const ValuePlace& other = result.values[to_size(id)];
    const std::int32_t buffer = buffer_of_[to_size(id)];
    if (!dies_here(id) || other.stride != place.stride || other.slabs != place.slabs ||
        buffers_[to_size(buffer)].users != 1)
      continue;
    alias(out, id);
    return result.values[index];
  }
  DLLM_TRY(const Buffer buffer, acquire(place.stride * place.slabs, graph.values[index].name));
  place.row = buffer.row;
  placed_.push_back(out);
  buffer_of_[index] = static_cast<std::int32_t>(buffers_.size());
  buffers_.push_back({buffer, 1});
  result.values[index] = place;
  return place;
}

void StepContext::alias(ValueId out, ValueId x) {
  const auto index = to_size(out), from = to_size(x);
  result.values[index] = result.values[from];
  placed_.push_back(out);
  buffer_of_[index] = buffer_of_[from];
  ++buffers_[to_size(buffer_of_[from])].users;
}

void StepContext::release_dead() {
  if (options.keep_values) return;
  std::erase_if(placed_, [&](ValueId id) {
    if (life(id).last > current || held_.contains(id)) return false;
    Shared& shared = buffers_[to_size(buffer_of_[to_size(id)])];
    buffer_of_[to_size(id)] = -1;
    if (--shared.users == 0) release(shared.buffer);
    return true;
  });
}

void StepContext::finish(const RowWork& work) {
  for (const Buffer& buffer : work.buffers) release(buffer);
  for (const ValueId id : work.holds) held_.erase(held_.find(id));
  if (work.after) work.after();
}

void StepContext::flush_carry() {
  if (!carry) return;
  if (!counts) emit_rows(*this, *carry, carry->rows);
  finish(*carry);
  carry.reset();
}

void StepContext::flush_streams() {
  for (const RowWork& work : streams) {
    emit_rows(*this, work, work.rows);
    finish(work);
  }
  streams.clear();
}

void StepContext::for_rows(std::int64_t count, std::span<const ValuePlace> walking, std::span<const Buffer> per_slab,
                           const std::function<void(std::span<const Gp>)>& body) {
  const std::int64_t slabs = walking.front().slabs;
  std::vector<Gp> pointers;
  for (const ValuePlace& p : walking) pointers.push_back(e.reg(address(p.row)));
  for (const Buffer& b : per_slab) pointers.push_back(e.reg(address(b.row)));
  const auto row_loop = [&](std::int64_t n) {
    e.loop(n, [&] {
      body(pointers);
      for (std::size_t i = 0; i < walking.size(); ++i) e.add(pointers[i], pointers[i], vlen());
    });
  };
  // Without padding rows the slabs are contiguous, and one loop handles them all.
  const bool dense =
      per_slab.empty() && std::ranges::all_of(walking, [count](const ValuePlace& p) { return p.stride == count; });
  if (dense) return row_loop(slabs * count);
  e.loop(slabs, [&] {
    row_loop(count);
    if (slabs == 1) return;
    for (std::size_t i = 0; i < walking.size(); ++i)
      e.add(pointers[i], pointers[i], (walking[i].stride - count) * vlen());
    for (std::size_t i = walking.size(); i < pointers.size(); ++i) e.add(pointers[i], pointers[i], vlen());
  });
}

void StepContext::load_rows(std::int64_t to, std::int64_t count, std::uint64_t base, std::uint64_t first_element,
                            std::int64_t stride) {
  prologue.set_address(kConstantAddress, base);
  prologue.set_csr(Csr::kPrefetchVRows, static_cast<std::uint32_t>(count));
  if (stride != 0) prologue.set_stride(static_cast<std::uint32_t>(stride));
  const Gp target = prologue.reg(address(to)), offset = prologue.reg(static_cast<std::uint32_t>(first_element));
  prologue.transfer(Op::H_PREFETCH_V, target, offset, kConstantAddress, stride != 0, 0);
}

std::uint64_t StepContext::move_rows(Op op, const ValuePlace& place, std::uint64_t base) {
  const std::int64_t count = place.stride * place.slabs;
  e.set_csr(Csr::kFormatActivation, mx_format_number(machine.lane_format()));
  e.set_csr(op == Op::H_STORE_V ? Csr::kStoreVRows : Csr::kPrefetchVRows, static_cast<std::uint32_t>(count));
  e.set_address(kConstantAddress, base);
  const Gp row = e.reg(address(place.row));
  e.transfer(op, row, Gp(), kConstantAddress, false, 0);
  return static_cast<std::uint64_t>(count * vlen() * 2);
}

void StepContext::load_matrix(std::uint64_t to, std::int64_t count, std::uint64_t base, std::uint64_t scale_offset) {
  prologue.set_address(kConstantAddress, base);
  prologue.set_scale(scale_offset);
  prologue.set_csr(Csr::kPrefetchMRows, static_cast<std::uint32_t>(count));
  const Gp target = prologue.reg(static_cast<std::uint32_t>(to));
  prologue.transfer(Op::H_PREFETCH_M, target, Gp(), kConstantAddress, false, 1);
}

Expected<Buffer> StepContext::resident(WeightId weight, WeightUse use) {
  if (const auto found = residents_.find({weight, use}); found != residents_.end()) return found->second;
  const WeightPlace* place = layout.find(weight, use);
  assert(place != nullptr);
  const std::int64_t count = static_cast<std::int64_t>(place->tensor.elements) / vlen();
  DLLM_TRY(const Buffer buffer, acquire_forever(count, graph.weight(weight).name));
  if (!counts) load_rows(buffer.row, count, place->tensor.base, 0);
  residents_[{weight, use}] = buffer;
  return buffer;
}

Expected<Buffer> StepContext::constant_row(const std::vector<Bf16>& lanes) {
  if (const auto found = constant_rows_.find(lanes); found != constant_rows_.end()) return found->second;
  DLLM_TRY(const std::uint64_t at, hbm_area(2 * lanes.size(), "a row of constants"));
  DLLM_TRY(const Buffer buffer, acquire_forever(1, "a row of constants"));
  if (!counts) {
    std::vector<std::byte> bytes(2 * lanes.size());
    std::memcpy(bytes.data(), lanes.data(), bytes.size());
    result.constants.push_back({at, std::move(bytes)});
    load_rows(buffer.row, 1, at, 0);
  }
  constant_rows_[lanes] = buffer;
  return buffer;
}

Expected<Buffer> StepContext::rope_rows(const RopePlace& rope) {
  if (const auto found = ropes_.find(&rope); found != ropes_.end()) return found->second;
  const std::int64_t count = graph.shape.rows;
  DLLM_TRY(const Buffer buffer, acquire_forever(rope.tables * count, "the rows of RoPE's factors"));
  for (std::int64_t first = 0; first < count && !counts;) {
    std::int64_t end = first + 1;
    while (end < count &&
           rows[to_size(end)].position == rows[to_size(first)].position + static_cast<Position>(end - first))
      ++end;
    const std::int64_t at = rows[to_size(first)].position;
    for (std::int64_t t = 0; t < rope.tables; ++t)
      load_rows(buffer.row + t * count + first, end - first, rope.tensor.base,
                static_cast<std::uint64_t>((at * rope.tables + t) * vlen()), rope.tables * vlen());
    first = end;
  }
  ropes_[&rope] = buffer;
  return buffer;
}

Expected<KvPlace> StepContext::kv_place(std::int64_t capacity, std::int32_t layer) {
  auto found = kv_layouts_.find(capacity);
  if (found == kv_layouts_.end()) {
    DLLM_TRY(KvLayout made, kv_layout(graph, layout, capacity));
    found = kv_layouts_.emplace(capacity, std::move(made)).first;
  }
  for (const KvPlace& place : found->second.layers)
    if (place.layer == layer) return place;
  return Error{ErrorCode::kUnsupported, fmt::format("nothing stores K and V of layer {}", layer), "npu compiler", ""};
}

const std::vector<SequenceTiles>& StepContext::sequence_tiles(TileKey key) {
  const auto [found, added] = tiles_.try_emplace(key);
  std::vector<SequenceTiles>& plans = found->second;
  for (std::size_t s = 0; added && s < spec.sequences.size(); ++s)
    plans.push_back(s > 0 && sees_alike(spec.sequences[s], spec.sequences[s - 1])
                        ? plans.back()
                        : plan_tiles(spec.sequences[s], key.first, key.second));
  return plans;
}

Expected<std::uint64_t> StepContext::hbm_area(std::uint64_t bytes, std::string_view what) {
  const std::uint64_t at = step_next_;
  step_next_ = (at + bytes + kHbmAlign - 1) / kHbmAlign * kHbmAlign;
  if (step_next_ > layout.step_base + layout.step_bytes)
    return Error{ErrorCode::kUsage,
                 fmt::format("{}: {} bytes of memory for the step's data do not suffice", what, layout.step_bytes),
                 "npu compiler", "fewer rows per step, or a device with more memory"};
  return at;
}

}  // namespace dllm::npu
