// A layer of experts: for every expert that a row chose, its rows are gathered into blocks of BLEN, multiplied, and
// added to their original rows while the next expert's are multiplied. Which experts, how many rows and how many blocks
// are data: lists in INT_MEM that op::Route made, and loops closed by C_BNZ. docs/design/npu-compiler.md, "Experts",
// describes the design.

#include <fmt/format.h>

#include <array>

#include "base/try.h"
#include "npu/compiler/context.h"

namespace dllm::npu {
namespace {

/// Words of ExpertWords::state. No register is kept between the parts of an expert, because products use all of them.
enum State : std::uint32_t {
  kCursor,  ///< word of the current expert in the list of the chosen ones
  kExpert,  ///< its number plus one
  kStart,   ///< first node of the chunk
  kRest,    ///< first node after the chunk, 0: none
  kNext,    ///< number plus one of the expert whose matrices replace this one's, 0: none
  kCount,   ///< gathered rows
  kBlocks,  ///< of BLEN gathered rows
  // Results being added back: the previous chunk's, while the current one is multiplied.
  kNode,     ///< of the next row
  kLeft,     ///< rows left
  kFrom,     ///< address of the next row's result
  kWeight,   ///< FP_MEM word of its weight
  kWeights,  ///< first word of this chunk's weights: the two halves of 2 chunks of words alternate
};
static_assert(kWeights < kExpertStateWords);

/// A matrix of every expert, and the place of the current expert's in matrix SRAM.
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
        product(gate_, 0, x_rows_.row, gate_rows_.row, [&] { scatter(rows_behind()); });
        scatter_rest();
        refill(gate_);
        product(up_, 0, x_rows_.row, up_rows_.row);
        refill(up_);
        activate();
        for (std::int64_t part = 0; part < parts(); ++part)
          product(down_, part, part == 0 ? gate_rows_.row : moved_rows_.row + (part - 1) * chunk_, y_rows_.row);
        refill(down_);
        begin_scatter();
      });
    });
    scatter_rest();
    for (const Buffer& buffer : {x_rows_, gate_rows_, up_rows_, moved_rows_, y_rows_, scratch_})
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
  std::int64_t parts() const { return down_.place->matrix.parts; }

  /// Room for all rows of the step at once, or for a half, a quarter, ...: an expert's further rows are processed in
  /// further chunks, while its matrices stay.
  Expected<void> place_buffers() {
    DLLM_TRY(scratch_, c_.acquire(kScratch, "rows of intermediate results"));
    const std::int64_t words = static_cast<std::int64_t>(m_.fp_words) / 2 / m_.blen * m_.blen;
    chunk_ = std::min(round_up(c_.value_rows(o_.x), m_.blen), words);
    if (chunk_ == 0)
      return Error{ErrorCode::kUsage, fmt::format("weights of two times {} rows need as many words of FP_MEM", m_.blen),
                   "npu compiler", "--set sram.fp_words=N with a larger N"};
    while (true) {
      const std::int64_t wanted[] = {x_.slabs, inner_slabs(), inner_slabs(), parts() - 1, out_.slabs};
      Buffer* const buffers[] = {&x_rows_, &gate_rows_, &up_rows_, &moved_rows_, &y_rows_};
      std::size_t placed = 0;
      Expected<Buffer> got = Buffer{};
      for (; placed < std::size(wanted); ++placed) {
        if (wanted[placed] == 0) continue;
        got = c_.acquire(wanted[placed] * chunk_, "rows of an expert");
        if (!got) break;
        *buffers[placed] = *got;
      }
      if (placed == std::size(wanted)) return {};
      if (chunk_ == m_.blen) return got.error();
      for (std::size_t i = 0; i < placed; ++i)
        if (wanted[i] > 0) c_.release(*buffers[i]);
      chunk_ = round_up(chunk_ / 2, m_.blen);
    }
  }

  /// The chosen experts plus one, ascending, then 0: the next one must be known before an expert is finished.
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

  /// Zeroes the sums, and lanes without a column in the input of `down`.
  void prepare_rows() {
    const std::int64_t inner = gate_.place->matrix.n;
    for (const Buffer* buffer : {&gate_rows_, &up_rows_})
      clear_tail(c_, inner, inner_slabs(), buffer->row + (inner_slabs() - 1) * chunk_, chunk_);
    clear_tail(c_, down_.place->matrix.n * parts(), out_.slabs, y_rows_.row + (out_.slabs - 1) * chunk_, chunk_);
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
      put(kLeft, Gp());
      put(kWeights, Gp());
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

  /// Loads the expert's list, and a row with 1 in its lane.
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

  /// Copies the list's rows from kStart on into blocks, and their weights into FP_MEM.
  void gather() {
    const Gp node = get(kStart), to = e_.reg(c_.address(x_rows_.row)), blocks = e_.reg(to_count(chunk_ / m_.blen)),
             room = e_.reg(), flag = e_.reg(), weight = get(kWeights), offset = e_.reg(), from = e_.reg(),
             lane = e_.reg(c_.address(scratch_.row + kExpertLane)), t = e_.reg(c_.address(scratch_.row + kProduct)),
             weights = e_.reg(c_.address(w_.row)), rows = e_.reg(c_.address(x_.row)), one = e_.reg(1);
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
    put(kRest, node);
    e_.load_int(flag, Gp(), word(kWeights));
    e_.subtract(weight, weight, flag);
    put(kCount, weight);
    e_.load(flag, to_count(chunk_ / m_.blen));
    e_.subtract(blocks, flag, blocks);
    put(kBlocks, blocks);
  }

  static std::uint32_t to_count(std::int64_t count) { return static_cast<std::uint32_t>(count); }

  /// kNext: the expert whose matrices may replace the current ones; none while there are further chunks.
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

  void product(const Matrix& matrix, std::int64_t part, std::int64_t x, std::int64_t y,
               const std::function<void()>& behind = {}) {
    lower_gathered(c_, {&matrix.place->matrix, matrix.slot, part, x, y, chunk_, word(kBlocks), behind});
  }

  /// SwiGLU of the gathered rows in place of gate's, and in the lanes where further parts of `down` have their weights.
  /// Two rows at a time; with an odd number, one extra row is processed in vain.
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
        for (std::int64_t part = 1; part < parts(); ++part) {
          const Gp to = e_.reg(), lanes = e_.reg(to_count(part * (m_.mlen / parts())));
          for (const Row& r : rows) {
            e_.add(to, r.gate, (moved_rows_.row + (part - 1) * chunk_ - gate_rows_.row) * c_.vlen());
            e_.shift(to, r.gate, lanes, 0);
          }
        }
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

  /// Schedules the chunk's results to be added to their rows; its weight words are kept until then.
  void begin_scatter() {
    const Gp weights = get(kWeights), start = get(kStart), count = get(kCount), from = e_.reg(c_.address(y_rows_.row)),
             both = e_.reg(to_count(chunk_));
    put(kWeight, weights);
    put(kNode, start);
    put(kLeft, count);
    put(kFrom, from);
    e_.subtract(both, both, weights);
    put(kWeights, both);
  }

  /// Rows to add back per block of outputs, so that a block of rows is finished within one block of gate's.
  std::int64_t rows_behind() const { return ceil_div(m_.blen, gate_.place->matrix.n / m_.blen); }

  /// out[row] += weight * y for up to `most` rows, in list order.
  void scatter(std::int64_t most) {
    const Gp left = get(kLeft);
    e_.when(left, [&] {
      const Gp node = get(kNode), from = get(kFrom), weight = get(kWeight), room = e_.reg(to_count(most)),
               to = e_.reg();
      e_.repeat(to, [&] {
        e_.load_fp_word(kFactor, weight, 0);
        e_.load_int(to, node, 1);
        e_.load_int(node, node, 0);
        e_.add(weight, weight, 1);
        e_.add(to, to, std::int64_t{c_.address(out_.row)});
        for (std::int64_t slab = 0; slab < out_.slabs; ++slab) {
          e_.vector_vf(Op::V_MUL_VF, from, from, kFactor);
          e_.vector_vv(Op::V_ADD_VV, to, to, from);
          if (slab + 1 == out_.slabs) break;
          e_.add(from, from, chunk_ * c_.vlen());
          e_.add(to, to, out_.stride * c_.vlen());
        }
        e_.add(from, from, (1 - (out_.slabs - 1) * chunk_) * c_.vlen());
        e_.add(left, left, -1);
        e_.add(room, room, -1);
        e_.multiply(to, left, room);
      });
      put(kLeft, left);
      put(kNode, node);
      put(kFrom, from);
      put(kWeight, weight);
    });
  }

  void scatter_rest() { scatter(chunk_); }

  // Rows of intermediate results.
  static constexpr std::int64_t kExpertLane = 0, kProduct = 1, kActivation = 2, kScratch = 4;
  // f registers; swiglu_constants() sets the first.
  static constexpr std::uint32_t kOne = 7, kFactor = 2;

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const op::Experts& o_;
  ValuePlace x_, w_, out_;
  Matrix gate_, up_, down_;
  std::int64_t chunk_ = 0;  ///< rows at once
  Buffer x_rows_, gate_rows_, up_rows_, y_rows_;
  Buffer moved_rows_;  ///< copies of the inner rows with shifted lanes, for parts of `down` beyond the first
  Buffer scratch_, lane_;
};

}  // namespace

Expected<void> lower(StepContext& c, const op::Experts& o) { return ExpertLayer(c, o).run(); }

}  // namespace dllm::npu
