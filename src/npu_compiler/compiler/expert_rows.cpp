#include "npu_compiler/compiler/expert_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/analytic/activation.h"

namespace dllm::npu {

Gp ExpertWordAccess::get(ExpertState state) {
  Gp value = e_.reg();
  e_.load_int(value, Gp(), word(state));
  return value;
}

void ExpertWordAccess::put(ExpertState state, std::int64_t value) {
  const Gp constant = value == 0 ? Gp() : e_.reg(static_cast<std::uint32_t>(value));
  put(state, constant);
}

void ExpertWordAccess::put_minus(ExpertState state, const Gp& value) {
  const Gp minus = e_.reg();
  e_.subtract(minus, Gp(), value);
  put(state, minus);
}

void ExpertWordAccess::move(ExpertState to, ExpertState from) {
  const Gp value = get(from);
  put(to, value);
}

void ExpertWordAccess::swap(ExpertState a, ExpertState b) {
  const Gp x = get(a), y = get(b);
  put(a, y);
  put(b, x);
}

ExpertRows::ExpertRows(StepContext& context, const op::Experts& o, const ExpertMatrices& matrices)
    : c_(context),
      e_(context.e),
      m_(context.machine),
      matrices_(matrices),
      words_(context),
      gelu_(o.activation == Activation::kGeluTanh),
      x_(context.place(o.x)),
      w_(context.place(o.route)) {}

Expected<void> ExpertRows::place_buffers(const ValuePlace& out) {
  out_ = out;
  std::vector<Bf16> first(to_size(c_.vlen()), 0);
  first[0] = c_.one();
  DLLM_TRY(lane_, c_.constant_row(first));
  DLLM_TRY(scratch_, c_.acquire(kScratch, "rows of intermediate results"));
  chunk_ = expert_chunk(sram_shape(m_), static_cast<std::int64_t>(m_.fp_words), matrices_.rows());
  if (chunk_ == 0)
    return Error{ErrorCode::kUsage, fmt::format("weights of three times {} rows need as many words of FP_MEM", m_.blen),
                 "npu compiler", "--set sram.fp_words=N with a larger N"};
  while (true) {
    const std::int64_t wanted[] = {x_.slabs * chunk_, 2 * half_rows(), out_.slabs * chunk_};
    Buffer* const buffers[] = {&x_rows_, &inner_, &y_rows_};
    std::size_t placed = 0;
    Expected<Buffer> got = Buffer{};
    for (; placed < std::size(wanted); ++placed) {
      got = c_.acquire(wanted[placed], "rows of an expert");
      if (!got) break;
      *buffers[placed] = *got;
    }
    if (placed == std::size(wanted)) return {};
    if (chunk_ == m_.blen) return got.error();
    for (std::size_t i = 0; i < placed; ++i) c_.release(*buffers[i]);
    chunk_ = round_up(chunk_ / 2, m_.blen);
  }
}

void ExpertRows::release_buffers() {
  for (const Buffer& buffer : {x_rows_, inner_, y_rows_, scratch_}) c_.release(buffer);
}

void ExpertRows::prepare() {
  const std::int64_t inner = shape(ExpertMatrices::kGate).n, last = (inner_slabs() - 1) * chunk_;
  for (const std::int64_t half : {std::int64_t{0}, half_rows()})
    for (const std::int64_t row : {gate_row(), up_row()})
      clear_tail(c_, inner, inner_slabs(), row + half + last, chunk_);
  clear_tail(c_, shape(ExpertMatrices::kDown).n * parts(), out_.slabs, y_rows_.row + (out_.slabs - 1) * chunk_, chunk_);
  clear_tail(c_, 0, out_.slabs, out_.row, out_.slabs * out_.stride);
}

void ExpertRows::initial_state() {
  swiglu_constants(c_);
  if (gelu_) e_.load_fp(kForm0, c_.number(kTanhForm0)), e_.load_fp(kForm1, c_.number(kTanhForm1));
  for (const ExpertState state : {kRest, kWeights, kInner, kPreviousStart, kPreviousCount, kPreviousBlocks,
                                  kPreviousNext, kPreviousSlot, kPreviousNumber, kNumber, kNext, kActive, kLeft})
    words_.put(state, 0);
  words_.put(kPreviousInner, half_rows() * c_.vlen());
  words_.put(kPreviousWeights, chunk_);
  words_.put(kOldWeights, 2 * chunk_);
}

void ExpertRows::select(const Gp& expert) {
  const Gp from = e_.reg(c_.address(lane_.row)), to = e_.reg(c_.address(scratch_.row + kExpertLane));
  e_.shift(to, from, expert, 1);
  if (w_.slabs == 1) return;
  const Gp place = e_.reg(), stride = e_.reg(static_cast<std::uint32_t>(w_.stride));
  e_.load_int(place, expert, c_.expert_words.places);
  e_.multiply(place, place, stride);
  words_.put(kLanes, place);
}

void ExpertRows::gather() {
  for (const ExpertState state : {kCount, kBlocks, kRest}) words_.put(state, 0);
  const Gp node = words_.get(kStart);
  e_.when(node, [&] { gather_rows(node); });
}

void ExpertRows::gather_rows(const Gp& node) {
  const Gp to = e_.reg(c_.address(x_rows_.row)), blocks = e_.reg(static_cast<std::uint32_t>(chunk_ / m_.blen)),
           room = e_.reg(), flag = e_.reg(), weight = words_.get(kWeights), offset = e_.reg(), from = e_.reg(),
           lane = e_.reg(c_.address(scratch_.row + kExpertLane)), t = e_.reg(c_.address(scratch_.row + kProduct)),
           weights = w_.slabs == 1 ? e_.reg(from_keys(w_)) : words_.get(kLanes), rows = e_.reg(from_keys(x_)),
           one = e_.reg(1);
  if (w_.slabs > 1) e_.add(weights, weights, from_keys(w_));
  e_.repeat(flag, [&] {
    e_.load(room, static_cast<std::uint32_t>(m_.blen));
    e_.repeat(flag, [&] {
      e_.load_int(offset, node, 1);
      e_.add(from, offset, weights);
      e_.vector_vv(Op::V_MUL_VV, t, from, lane);
      e_.load_fp(kFactor, 0);
      e_.reduce(Op::V_RED_SUM, kFactor, t);
      e_.store_fp_word(kFactor, weight, 0);
      e_.add(weight, weight, 1);
      e_.add(from, offset, rows);
      for (std::int64_t slab = 0; slab < x_.slabs; ++slab) {
        e_.shift(to, from, Gp(), 1);  // a rotation by 0 copies bits
        if (slab + 1 == x_.slabs) break;
        e_.add(from, from, x_.stride * c_.vlen());
        e_.add(to, to, chunk_ * c_.vlen());
      }
      e_.add(to, to, (1 - (x_.slabs - 1) * chunk_) * c_.vlen());
      e_.load_int(node, node, 0);
      e_.subtract(room, room, one);
      e_.multiply(flag, node, room);  // both are far below 2^16: 0 only if one of them is
    });
    e_.subtract(blocks, blocks, one);
    e_.multiply(flag, node, blocks);
  });
  words_.put(kRest, node);
  e_.load_int(flag, Gp(), words_.word(kWeights));
  e_.subtract(weight, weight, flag);
  words_.put(kCount, weight);
  e_.load(flag, static_cast<std::uint32_t>(chunk_ / m_.blen));
  e_.subtract(blocks, flag, blocks);
  words_.put(kBlocks, blocks);
  e_.load(flag, static_cast<std::uint32_t>(m_.blen));
  e_.subtract(room, flag, room);
  words_.put(kLast, room);
}

/// In 32 bits a product with 2^31 keeps the lowest bit only.
void ExpertRows::round_up_to_even(const Gp& count, const Gp& t) {
  e_.load(t, std::uint32_t{1} << 31);
  e_.multiply(t, count, t);
  e_.when(t, [&] { e_.add(count, count, 1); });
}

void ExpertRows::begin_activation() {
  const Gp gate = words_.get(kPreviousInner), count = words_.get(kPreviousCount), odd = e_.reg();
  e_.add(gate, gate, c_.address(gate_row()));
  words_.put(kGate, gate);
  round_up_to_even(count, odd);
  words_.put_minus(kActive, count);
}

void ExpertRows::activate(std::int64_t most) {
  const Gp left = words_.get(kActive);
  e_.when(left, [&] {
    Row rows[2];
    for (std::int64_t g = 0; g < 2; ++g)
      rows[g] = {e_.reg(), e_.reg(), e_.reg(c_.address(scratch_.row + kActivation + g))};
    e_.load_int(rows[0].gate, Gp(), words_.word(kGate));
    e_.add(rows[0].up, rows[0].gate, (up_row() - gate_row()) * c_.vlen());
    for (const auto pointer : {&Row::gate, &Row::up}) e_.add(rows[1].*pointer, rows[0].*pointer, c_.vlen());
    const Gp room = e_.reg(static_cast<std::uint32_t>(-round_up(most, 2))), flag = e_.reg();
    const bool two = parts() == 2;  // the usual case; more parts have too many constants for registers
    const Gp to = e_.reg(), lanes = two ? shifted_lanes(1) : Gp();
    const AddressStride moved = two ? e_.step((moved_row(1) - gate_row()) * c_.vlen()) : AddressStride();
    e_.repeat(flag, [&] {
      for (std::int64_t slab = 0; slab < inner_slabs(); ++slab) {
        gate_pair(rows);
        for (const Row& r : rows) {
          if (two) e_.advance_from(to, r.gate, moved), e_.shift(to, r.gate, lanes, 0);
          for (std::int64_t part = 1; !two && part < parts(); ++part) copy_part(r.gate, to, part);
        }
        const std::int64_t step = (slab + 1 < inner_slabs() ? chunk_ : 2 - (inner_slabs() - 1) * chunk_) * c_.vlen();
        for (const Row& r : rows)
          for (const Gp* p : {&r.gate, &r.up}) e_.add(*p, *p, step);
      }
      e_.add(left, left, 2);
      e_.add(room, room, 2);
      e_.multiply(flag, left, room);
    });
    words_.put(kActive, left);
    words_.put(kGate, rows[0].gate);
  });
}

/// gate <- activation(gate) * up. GELU is x / (1 + e^-g(x)) with g(x) = ((x x) c1 + c0) x (analytic/activation.h).
void ExpertRows::gate_pair(const Row (&rows)[2]) {
  if (gelu_) {
    for (const Row& r : rows) e_.vector_vv(Op::V_MUL_VV, r.t, r.gate, r.gate);
    for (const Row& r : rows) e_.vector_vf(Op::V_MUL_VF, r.t, r.t, kForm1);
    for (const Row& r : rows) e_.vector_vf(Op::V_ADD_VF, r.t, r.t, kForm0);
    for (const Row& r : rows) e_.vector_vv(Op::V_MUL_VV, r.t, r.t, r.gate);
  }
  for (const Row& r : rows) e_.vector_vf(Op::V_SUB_VF, r.t, gelu_ ? r.t : r.gate, 0, 1);
  for (const Row& r : rows) e_.vector_v(Op::V_EXP_V, r.t, r.t);
  for (const Row& r : rows) e_.vector_vf(Op::V_ADD_VF, r.t, r.t, kOne);
  for (const Row& r : rows) e_.vector_v(Op::V_RECI_V, r.t, r.t);
  for (const Row& r : rows) e_.vector_vv(Op::V_MUL_VV, r.t, r.t, r.gate);
  for (const Row& r : rows) e_.vector_vv(Op::V_MUL_VV, r.gate, r.t, r.up);
}

Gp ExpertRows::shifted_lanes(std::int64_t part) {
  return e_.reg(static_cast<std::uint32_t>(part * (m_.mlen / parts())));
}

/// The lanes of a row where a further part of `down` has its weights.
void ExpertRows::copy_part(const Gp& row, const Gp& to, std::int64_t part) {
  const Gp lanes = shifted_lanes(part);
  e_.add(to, row, (moved_row(part) - gate_row()) * c_.vlen());
  e_.shift(to, row, lanes, 0);
}

void ExpertRows::begin_scatter() {
  words_.move(kNode, kPreviousStart);
  words_.move(kWeight, kPreviousWeights);
  words_.put(kFrom, c_.address(y_rows_.row));
  const Gp count = words_.get(kPreviousCount);
  words_.put_minus(kLeft, count);
}

void ExpertRows::scatter(std::int64_t most) {
  const Gp left = words_.get(kLeft);
  e_.when(left, [&] {
    const Gp node = words_.get(kNode), from = words_.get(kFrom), weight = words_.get(kWeight),
             room = e_.reg(static_cast<std::uint32_t>(-most)), rows = e_.reg(from_keys(out_)), to = e_.reg();
    e_.repeat(to, [&] {
      e_.load_fp_word(kFactor, weight, 0);
      e_.load_int(to, node, 1);
      e_.load_int(node, node, 0);
      e_.add(weight, weight, 1);
      e_.add(to, to, rows);
      for (std::int64_t slab = 0; slab < out_.slabs; ++slab) {
        e_.vector_vf(Op::V_MUL_VF, from, from, kFactor);
        e_.vector_vv(Op::V_ADD_VV, to, to, from);
        if (slab + 1 == out_.slabs) break;
        e_.add(from, from, chunk_ * c_.vlen());
        e_.add(to, to, out_.stride * c_.vlen());
      }
      e_.add(from, from, (1 - (out_.slabs - 1) * chunk_) * c_.vlen());
      e_.add(left, left, 1);
      e_.add(room, room, 1);
      e_.multiply(to, left, room);
    });
    words_.put(kLeft, left);
    words_.put(kNode, node);
    words_.put(kFrom, from);
    words_.put(kWeight, weight);
  });
}

}  // namespace dllm::npu
