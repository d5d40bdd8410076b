// A layer of experts: for every expert that a row chose, its rows are gathered into blocks of BLEN, multiplied, and
// added to the rows they came from. Which experts, how many rows and how many blocks are data: lists in INT_MEM that
// op::Route made, and loops that C_BNZ closes. docs/npu-compiler.md, "Experts", has the design.

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "npu/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kWeightAddress = 2;  // HBM address register
constexpr std::uint32_t kWeightWords = 0;    // FP_MEM: the weights of the gathered rows

/// Words of ExpertWords::state. Between the parts of an expert no register is held: products take all of them.
enum State : std::uint32_t {
  kCursor,  ///< word of the present expert in the list of the chosen ones
  kExpert,  ///< its number plus one
  kStart,   ///< first node of the chunk
  kRest,    ///< first node behind the chunk, 0: none
  kNext,    ///< number plus one of the expert whose matrices replace this one's, 0: none
  kCount,   ///< gathered rows
  kBlocks,  ///< of BLEN gathered rows
};
static_assert(kBlocks < kExpertStateWords);

/// A matrix of every expert, and where the present expert's lies in matrix SRAM.
struct Matrix {
  const WeightPlace* place = nullptr;
  std::uint64_t slot = 0;
};

class ExpertLayer {
 public:
  ExpertLayer(StepContext& context, const op::Experts& o)
      : c_(context), e_(context.e), m_(context.machine), o_(o), x_(context.place(o.x)), w_(context.place(o.route)) {
    std::uint64_t slot = c_.layout.mram.weight[0];
    for (const auto& [matrix, weight] : {std::pair{&gate_, o.gate}, std::pair{&up_, o.up}, std::pair{&down_, o.down}}) {
      matrix->place = c_.layout.find(weight, WeightUse::kMatrix);
      matrix->slot = slot;
      slot += static_cast<std::uint64_t>(matrix->place->matrix.n * matrix->place->matrix.k_tiles * m_.mlen);
    }
  }

  Expected<void> run() {
    if (c_.routed != o_.route)
      return Error{ErrorCode::kUnsupported, "experts whose routing is not the latest", "npu compiler", ""};
    DLLM_TRY(out_, c_.place_output(o_.out));
    DLLM_CHECK_OK(place_buffers());
    std::vector<Bf16> first(static_cast<std::size_t>(c_.vlen()), 0);
    first[0] = kBf16One;
    DLLM_TRY(lane_, c_.constant_row(first));
    list_touched();
    prepare_rows();
    swiglu_constants(e_);
    each_expert([&] {
      each_chunk([&] {
        gather();
        find_next();
        product(gate_, 0, x_rows_.row, gate_rows_.row);
        refill(gate_);
        product(up_, 0, x_rows_.row, up_rows_.row);
        refill(up_);
        activate();
        const std::int64_t parts = down_.place->matrix.parts;
        for (std::int64_t part = 0; part < parts; ++part) {
          if (part > 0) move_lanes(m_.mlen / parts);
          product(down_, part, gate_rows_.row, y_row());
        }
        refill(down_);
        // Lanes behind the inner columns are zero again before the next expert's columns come.
        if (parts > 1) move_lanes(c_.vlen());
        scatter();
      });
    });
    for (const Buffer& buffer : {x_rows_, gate_rows_, up_rows_, y_rows_, scratch_})
      if (buffer.rows > 0) c_.release(buffer);
    ++c_.next_matrix;
    prefetch_first_panel(c_, c_.next_matrix, c_.panels_done % 2);
    return {};
  }

 private:
  std::uint32_t word(State state) const { return c_.expert_words.state + state; }
  Gp get(State state) {
    Gp value = e_.reg();
    e_.load_int(value, Gp(), word(state));
    return value;
  }
  void put(State state, const Gp& value) { e_.store_int(value, Gp(), word(state)); }
  std::int64_t experts() const { return gate_.place->experts; }
  std::int64_t inner_slabs() const { return ceil_div(gate_.place->out.width, c_.vlen()); }
  /// Results of `down` take the rows' place where lanes without a column are the same ones, that is, zero.
  bool in_place() const { return x_.slabs == out_.slabs && c_.map(o_.x).used() == c_.map(o_.out).used(); }
  std::int64_t y_row() const { return in_place() ? x_rows_.row : y_rows_.row; }

  /// Room for as many rows at once as the step has, or for a half, a quarter, ...: what an expert has beyond goes in
  /// further chunks, while its matrices stay.
  Expected<void> place_buffers() {
    DLLM_TRY(scratch_, c_.acquire(kScratch, "rows of intermediate results"));
    const std::int64_t words = static_cast<std::int64_t>(m_.fp_words) / m_.blen * m_.blen;
    chunk_ = std::min(round_up(c_.value_rows(o_.x), m_.blen), words);
    if (chunk_ == 0)
      return Error{ErrorCode::kUsage, fmt::format("{} weights of rows need as many words of FP_MEM", m_.blen),
                   "npu compiler", "--set sram.fp_words=N with a larger N"};
    while (true) {
      const std::int64_t wanted[] = {x_.slabs, inner_slabs(), inner_slabs(), in_place() ? 0 : out_.slabs};
      Buffer* const buffers[] = {&x_rows_, &gate_rows_, &up_rows_, &y_rows_};
      std::size_t placed = 0;
      Expected<Buffer> got = Buffer{};
      for (; placed < 4; ++placed) {
        if (wanted[placed] == 0) continue;
        got = c_.acquire(wanted[placed] * chunk_, "rows of an expert");
        if (!got) break;
        *buffers[placed] = *got;
      }
      if (placed == 4) return {};
      if (chunk_ == m_.blen) return got.error();
      for (std::size_t i = 0; i < placed; ++i)
        if (wanted[i] > 0) c_.release(*buffers[i]);
      chunk_ = round_up(chunk_ / 2, m_.blen);
    }
  }

  /// The chosen experts plus one, ascending, then 0: what comes next must be known before an expert is done with.
  void list_touched() {
    const Gp head = e_.reg(c_.expert_words.heads), to = e_.reg(c_.expert_words.touched), number = e_.reg(0),
             node = e_.reg();
    e_.loop(experts(), [&] {
      e_.add(number, number, 1);
      e_.load_int(node, head, 0);
      e_.add(head, head, 1);
      e_.when(node, [&] {
        e_.store_int(number, to, 0);
        e_.add(to, to, 1);
      });
    });
    e_.store_int(Gp(), to, 0);
  }

  /// Zeroes the sums, and lanes without a column of what `down` reads.
  void prepare_rows() {
    const std::int64_t inner = gate_.place->matrix.n;
    for (const Buffer* buffer : {&gate_rows_, &up_rows_})
      clear_tail(c_, inner, inner_slabs(), buffer->row + (inner_slabs() - 1) * chunk_, chunk_);
    if (!in_place()) {
      const MatrixShape& down = down_.place->matrix;
      clear_tail(c_, down.n * down.parts, out_.slabs, y_rows_.row + (out_.slabs - 1) * chunk_, chunk_);
    }
    clear_tail(c_, 0, out_.slabs, out_.row, out_.slabs * out_.stride);
  }

  template <class Body>
  void each_expert(const Body& body) {
    {
      const Gp cursor = e_.reg(c_.expert_words.touched), number = e_.reg();
      put(kCursor, cursor);
      e_.load_int(number, cursor, 0);
      put(kExpert, number);
      put(kNext, number);
    }
    for (const Matrix* matrix : {&gate_, &up_, &down_}) fetch(*matrix);
    e_.repeat([&] {
      begin_expert();
      body();
      Gp next = get(kNext);
      put(kExpert, next);
      return next;
    });
  }

  /// The expert's list, and a row with 1 in its lane.
  void begin_expert() {
    const Gp number = get(kExpert), start = e_.reg(), from = e_.reg(c_.address(lane_.row)),
             to = e_.reg(c_.address(scratch_.row + kExpertLane));
    e_.add(number, number, -1);
    e_.load_int(start, number, c_.expert_words.heads);
    put(kStart, start);
    e_.shift(to, from, number, 1);
    const Gp cursor = get(kCursor);
    e_.add(cursor, cursor, 1);
    put(kCursor, cursor);
  }

  template <class Body>
  void each_chunk(const Body& body) {
    e_.repeat([&] {
      body();
      Gp rest = get(kRest);
      put(kStart, rest);
      return rest;
    });
  }

  /// Copies the rows of the list from kStart on into blocks, and their weights into FP_MEM.
  void gather() {
    const Gp node = get(kStart), to = e_.reg(c_.address(x_rows_.row)), blocks = e_.reg(to_count(chunk_ / m_.blen)),
             room = e_.reg(), flag = e_.reg(), weight = e_.reg(kWeightWords), offset = e_.reg(), from = e_.reg(),
             lane = e_.reg(c_.address(scratch_.row + kExpertLane)), t = e_.reg(c_.address(scratch_.row + kProduct));
    e_.repeat(flag, [&] {
      e_.load(room, static_cast<std::uint32_t>(m_.blen));
      e_.repeat(flag, [&] {
        e_.load_int(offset, node, 1);
        add_address(from, offset, w_.row);
        e_.vector_vv(Op::V_MUL_VV, t, from, lane);
        e_.load_fp(kWeight, 0);
        e_.reduce(Op::V_RED_SUM, kWeight, t);
        e_.store_fp_word(kWeight, weight, 0);
        e_.add(weight, weight, 1);
        add_address(from, offset, x_.row);
        for (std::int64_t slab = 0; slab < x_.slabs; ++slab) {
          e_.shift(to, from, Gp(), 1);  // a rotation by 0 copies bits
          if (slab + 1 == x_.slabs) break;
          e_.add(from, from, x_.stride * c_.vlen());
          e_.add(to, to, chunk_ * c_.vlen());
        }
        e_.add(to, to, (1 - (x_.slabs - 1) * chunk_) * c_.vlen());
        e_.load_int(node, node, 0);
        e_.add(room, room, -1);
        e_.multiply(flag, node, room);  // both are far below 2^16: 0 only if one of them is
      });
      e_.add(blocks, blocks, -1);
      e_.multiply(flag, node, blocks);
    });
    put(kRest, node);
    e_.add(weight, weight, -std::int64_t{kWeightWords});
    put(kCount, weight);
    e_.load(flag, to_count(chunk_ / m_.blen));
    e_.subtract(blocks, flag, blocks);
    put(kBlocks, blocks);
  }

  static std::uint32_t to_count(std::int64_t count) { return static_cast<std::uint32_t>(count); }

  /// target <- offset + the address of VRAM row `row`.
  void add_address(const Gp& target, const Gp& offset, std::int64_t row) {
    e_.add(target, offset, std::int64_t{c_.address(row)});
  }

  /// kNext: whose matrices may replace the present ones; nobody's while the expert has further chunks.
  void find_next() {
    put(kNext, Gp());
    const Gp rest = get(kRest);
    e_.unless(rest, [&] {
      const Gp cursor = get(kCursor), number = e_.reg();
      e_.load_int(number, cursor, 0);
      put(kNext, number);
    });
  }

  void refill(const Matrix& matrix) {
    const Gp next = get(kNext);
    e_.when(next, [&] { fetch(matrix); });
  }

  /// Starts the transfer of a matrix of the expert in kNext.
  void fetch(const Matrix& matrix) {
    const WeightPlace& w = *matrix.place;
    const Gp offset = get(kNext), slot = e_.reg(static_cast<std::uint32_t>(matrix.slot));
    {
      const Gp stride = e_.reg(static_cast<std::uint32_t>(w.expert_stride));
      e_.add(offset, offset, -1);
      e_.multiply(offset, offset, stride);
    }
    e_.set_address(kWeightAddress, w.tensor.base);
    e_.set_scale(w.tensor.scale_offset);
    e_.set_csr(Csr::kPrefetchMRows, static_cast<std::uint32_t>(w.matrix.n * w.matrix.k_tiles));
    e_.transfer(Op::H_PREFETCH_M, slot, offset, kWeightAddress, false, 0);
  }

  /// The outputs of `part` for all blocks of the chunk, from VRAM row `x` to VRAM row `y`, slab by slab.
  void product(const Matrix& matrix, std::int64_t part, std::int64_t x, std::int64_t y) {
    const MatrixShape& s = matrix.place->matrix;
    const std::int64_t end = (part + 1) * s.n;
    for (std::int64_t lane = part * s.n; lane < end;) {
      const std::int64_t slab = lane / c_.vlen(), next = std::min(end, (slab + 1) * c_.vlen());
      columns(s, matrix.slot + static_cast<std::uint64_t>((lane - part * s.n) * m_.mlen), next - lane, x,
              static_cast<std::int64_t>(c_.address(y + slab * chunk_)) + lane % c_.vlen());
      lane = next;
    }
  }

  void columns(const MatrixShape& s, std::uint64_t slot, std::int64_t count, std::int64_t x_row, std::int64_t y_at) {
    const Gp blocks = get(kBlocks), x = e_.reg(c_.address(x_row)), y = e_.reg(static_cast<std::uint32_t>(y_at)),
             w = e_.reg(), to = e_.reg();
    const Step next_block = e_.step(std::int64_t{m_.blen} * m_.mlen),
               next_rows = e_.step(std::int64_t{m_.blen} * c_.vlen());
    e_.repeat(blocks, [&] {
      e_.load(w, static_cast<std::uint32_t>(slot));
      e_.copy(to, y);
      e_.loop(count / m_.blen, [&] {
        contract(s, x, w);
        e_.write_out(Op::M_MM_WO, to);
        e_.advance(w, next_block);
        e_.add(to, to, m_.blen);
      });
      e_.advance(x, next_rows);
      e_.advance(y, next_rows);
      e_.add(blocks, blocks, -1);
    });
  }

  /// One BLEN x BLEN block: the sum over the K tiles, slabs of x by slabs.
  void contract(const MatrixShape& s, const Gp& x, const Gp& w) {
    if (s.k_tiles == 1) return e_.multiply_tile(Op::M_TMM, x, w);
    constexpr std::int64_t kUnroll = 8;  // tiles, at least: the loop's own instructions cost issue slots
    const std::int64_t ratio = c_.vlen() / m_.mlen, slabs = ceil_div(kUnroll, ratio), group = slabs * ratio;
    const Gp xt = e_.reg(), wt = e_.reg();
    const Step next_tile = e_.step(s.n * m_.mlen), next_slab = e_.step(chunk_ * c_.vlen() - (c_.vlen() - m_.mlen));
    e_.copy(xt, x);
    e_.copy(wt, w);
    const auto tiles = [&](std::int64_t count, bool last) {
      for (std::int64_t t = 0; t < count; ++t) {
        e_.multiply_tile(Op::M_TMM, xt, wt);
        if (last && t + 1 == count) return;
        e_.advance(wt, next_tile);
        if ((t + 1) % ratio == 0)
          e_.advance(xt, next_slab);
        else
          e_.add(xt, xt, m_.mlen);
      }
    };
    const std::int64_t looped = (s.k_tiles - 1) / group;
    e_.loop(looped, [&] { tiles(group, false); });
    tiles(s.k_tiles - looped * group, true);
  }

  /// SwiGLU of the gathered rows in place of gate's, two at a time; of an odd number, a row behind them is done for
  /// nothing.
  void activate() {
    for (std::int64_t slab = 0; slab < inner_slabs(); ++slab) {
      struct Row {
        Gp gate, up, t;
      };
      Row rows[2];
      for (std::int64_t g = 0; g < 2; ++g)
        rows[g] = {e_.reg(c_.address(gate_rows_.row + slab * chunk_ + g)),
                   e_.reg(c_.address(up_rows_.row + slab * chunk_ + g)),
                   e_.reg(c_.address(scratch_.row + kActivation + g))};
      const Gp left = get(kCount), flag = e_.reg();
      e_.repeat(flag, [&] {
        for (const Row& r : rows) e_.vector_vf(Op::V_SUB_VF, r.t, r.gate, 0, 1);
        for (const Row& r : rows) e_.vector_v(Op::V_EXP_V, r.t, r.t);
        for (const Row& r : rows) e_.vector_vf(Op::V_ADD_VF, r.t, r.t, kOne);
        for (const Row& r : rows) e_.vector_v(Op::V_RECI_V, r.t, r.t);
        for (const Row& r : rows) e_.vector_vv(Op::V_MUL_VV, r.t, r.t, r.gate);
        for (const Row& r : rows) e_.vector_vv(Op::V_MUL_VV, r.gate, r.t, r.up);
        for (const Row& r : rows)
          for (const Gp* p : {&r.gate, &r.up}) e_.add(*p, *p, 2 * c_.vlen());
        pairs_left(left, flag);
      });
    }
  }

  /// left -= 2; flag <- 0 at 0 and at -1.
  void pairs_left(const Gp& left, const Gp& flag) {
    e_.add(left, left, -2);
    e_.add(flag, left, 1);
    e_.multiply(flag, flag, left);
  }

  /// Moves the inner rows to the lanes where the next part of `down` has its weights.
  void move_lanes(std::int64_t distance) {
    const Gp left = get(kCount), row = e_.reg(c_.address(gate_rows_.row)),
             other = e_.reg(c_.address(gate_rows_.row + 1)), flag = e_.reg(), lanes = e_.reg(to_count(distance));
    e_.repeat(flag, [&] {
      for (const Gp* p : {&row, &other}) e_.shift(*p, *p, lanes, 0);
      for (const Gp* p : {&row, &other}) e_.add(*p, *p, 2 * c_.vlen());
      pairs_left(left, flag);
    });
  }

  /// out[row] += weight * y, in the order of the list.
  void scatter() {
    const Gp node = get(kStart), left = get(kCount), from = e_.reg(c_.address(y_row())), weight = e_.reg(kWeightWords),
             to = e_.reg(), t = e_.reg(c_.address(scratch_.row + kProduct));
    e_.repeat(left, [&] {
      e_.load_fp_word(kWeight, weight, 0);
      e_.load_int(to, node, 1);
      add_address(to, to, out_.row);
      for (std::int64_t slab = 0; slab < out_.slabs; ++slab) {
        e_.vector_vf(Op::V_MUL_VF, t, from, kWeight);
        e_.vector_vv(Op::V_ADD_VV, to, to, t);
        if (slab + 1 == out_.slabs) break;
        e_.add(from, from, chunk_ * c_.vlen());
        e_.add(to, to, out_.stride * c_.vlen());
      }
      e_.add(from, from, (1 - (out_.slabs - 1) * chunk_) * c_.vlen());
      e_.add(weight, weight, 1);
      e_.load_int(node, node, 0);
      e_.add(left, left, -1);
    });
  }

  // Rows of intermediate results.
  static constexpr std::int64_t kExpertLane = 0, kProduct = 1, kActivation = 2, kScratch = 4;
  // f registers; swiglu_constants() sets the first.
  static constexpr std::uint32_t kOne = 1, kWeight = 2;

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const op::Experts& o_;
  ValuePlace x_, w_, out_;
  Matrix gate_, up_, down_;
  std::int64_t chunk_ = 0;  ///< rows at once
  Buffer x_rows_, gate_rows_, up_rows_, y_rows_, scratch_, lane_;
};

}  // namespace

Expected<void> lower(StepContext& c, const op::Experts& o) { return ExpertLayer(c, o).run(); }

}  // namespace dllm::npu
