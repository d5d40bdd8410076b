// A layer of experts. An item is an expert that rows chose, or a chunk of its rows. Three items are in flight:
//
//   array   | gate(i) | up(i) | down(i-1) | gate(i+1) | up(i+1) | down(i) | ...
//   vector  | SwiGLU(i-1) | adding i-2 to its rows | gathering i+1 | SwiGLU(i) | ...
//   memory  | the matrices of the experts that follow, a ring of slots ahead
//
// Without room for one expert, memory is one panel ahead instead, from matrix to matrix and from item to item, and an
// expert's further chunks of rows load its matrices again.
//
// Which experts, how many rows and how many blocks are data: lists in INT_MEM that op::Route made, and loops closed by
// C_BNZ. docs/design/npu-compiler.md, "Experts", describes the design.

#include <functional>
#include <utility>

#include "base/try.h"
#include "npu_compiler/compiler/expert_rows.h"

namespace dllm::npu {
namespace {

class ExpertLayer {
 public:
  ExpertLayer(StepContext& context, const op::Experts& o)
      : c_(context),
        e_(context.e),
        m_(context.machine),
        o_(o),
        matrices_(context, o),
        rows_(context, o, matrices_),
        words_(context) {}

  Expected<void> run() {
    if (c_.routed != o_.route)
      return Error{ErrorCode::kUnsupported, "experts whose routing is not the latest", "npu compiler", ""};
    DLLM_TRY(const ValuePlace out, c_.place_output(o_.out));
    DLLM_CHECK_OK(rows_.place_buffers(out));
    if (c_.counts) {
      rows_.release_buffers();
      return {};
    }
    list_touched();
    fill_ring();
    rows_.prepare();
    initial_state();
    begin_stream();
    e_.repeat([&] {
      begin_item();
      rows_.gather();
      find_next();
      product(kGateMatrix, [&] { rows_.activate(rows_behind()); });
      refill(kGateMatrix, kNext, kSlot);
      rows_.activate(rows_.chunk());
      product(kUpMatrix, [&] { rows_.scatter(rows_behind()); });
      refill(kUpMatrix, kNext, kSlot);
      finish_previous([&] { return request_next_gate(); });
      advance();
      Gp more = words_.get(kRest);
      const Gp next = words_.get(kCursor);
      e_.load_int(next, next, 0);
      e_.add(more, more, next);  // both are far below 2^31
      return more;
    });
    ++c_.next_matrix;
    if (c_.layout.mram.experts_apart) prefetch_first_panel(c_, c_.next_matrix, c_.panels_done % 2);
    rows_.activate(rows_.chunk());
    requested_ = false;
    finish_previous([] { return false; });
    e_.set_csr(Csr::kMmRows, to_count(m_.blen));
    rows_.scatter(rows_.chunk());
    if (!c_.layout.mram.experts_apart) prefetch_first_panel(c_, c_.next_matrix, c_.panels_done % 2);
    rows_.release_buffers();
    return {};
  }

 private:
  static constexpr auto kGateMatrix = ExpertMatrices::kGate, kUpMatrix = ExpertMatrices::kUp,
                        kDownMatrix = ExpertMatrices::kDown;

  const MatrixShape& shape(ExpertMatrices::Matrix matrix) const { return matrices_.place(matrix).matrix; }
  std::int64_t parts() const { return shape(kDownMatrix).parts; }

  /// The chosen experts plus one, ascending, then zeros: those that follow must be known before an expert is finished.
  /// Experts that are loaded already count as chosen.
  void list_touched() {
    const Gp head = e_.reg(c_.expert_words.heads), to = e_.reg(c_.expert_words.touched), number = e_.reg(0),
             node = e_.reg();
    const auto append = [&] {
      e_.store_int(number, to, 0);
      e_.add(to, to, 1);
    };
    e_.loop(matrices_.ahead(), [&] {
      e_.add(number, number, 1);
      append();
    });
    e_.add(head, head, matrices_.ahead());
    e_.loop(matrices_.experts() - matrices_.ahead(), [&] {
      e_.add(number, number, 1);
      e_.load_int(node, head, 0);
      e_.add(head, head, 1);
      e_.when(node, append);
    });
    for (std::int64_t i = 0; i < matrices_.slots(); ++i) e_.store_int(Gp(), to, static_cast<std::uint32_t>(i));
  }

  /// The first experts of the list into the slots that are still empty.
  void fill_ring() {
    if (matrices_.streamed()) return;
    for (std::int64_t slot = matrices_.ahead(); slot < matrices_.slots(); ++slot) {
      const std::uint32_t first = c_.expert_words.touched + static_cast<std::uint32_t>(slot);
      const Gp at = e_.reg(static_cast<std::uint32_t>(slot * matrices_.slot_elements())), number = e_.reg();
      e_.load_int(number, Gp(), first);
      e_.when(number, [&] {
        for (const auto matrix : {kGateMatrix, kUpMatrix, kDownMatrix}) {
          Gp copy = e_.reg();
          e_.copy(copy, number);
          matrices_.fetch(matrix, std::move(copy), at);
        }
      });
    }
  }

  void initial_state() {
    rows_.initial_state();
    words_.put(kCursor, c_.expert_words.touched);
    words_.put(kSlot, last_slot());  // the first expert moves on to slot 0
  }
  std::int64_t last_slot() const { return (matrices_.slots() - 1) * matrices_.slot_elements(); }

  /// The next chunk of the expert, or the next expert.
  void begin_item() {
    const Gp rest = words_.get(kRest);
    words_.put(kStart, rest);
    e_.unless(rest, [&] { begin_expert(); });
  }

  /// Its list, a row with 1 in its lane, and its slot.
  void begin_expert() {
    {
      const Gp number = words_.get(kCursor), t = e_.reg();
      e_.add(t, number, 1);
      words_.put(kCursor, t);
      e_.load_int(number, number, 0);
      e_.add(number, number, -1);
      e_.load_int(t, number, c_.expert_words.heads);
      words_.put(kStart, t);
      words_.put(kNumber, number);
      rows_.select(number);
    }
    if (matrices_.slots() == 1) return;
    const Gp slot = words_.get(kSlot), flag = e_.reg();
    e_.add(flag, slot, -last_slot());
    words_.put(kSlot, 0);
    e_.when(flag, [&] {
      e_.add(slot, slot, matrices_.slot_elements());
      words_.put(kSlot, slot);
    });
  }

  static std::uint32_t to_count(std::int64_t count) { return static_cast<std::uint32_t>(count); }

  /// kNext: the expert whose matrices may replace the current ones; none while there are further chunks.
  void find_next() {
    if (matrices_.streamed()) return;
    words_.put(kNext, 0);
    const Gp rest = words_.get(kRest);
    e_.unless(rest, [&] {
      const Gp cursor = words_.get(kCursor), number = e_.reg();
      e_.load_int(number, cursor, to_count(matrices_.slots() - 1));
      words_.put(kNext, number);
    });
  }

  void refill(ExpertMatrices::Matrix matrix, ExpertState next, ExpertState slot) {
    if (matrices_.streamed()) return;
    const Gp number = words_.get(next);
    e_.when(number, [&] {
      const Gp at = words_.get(slot);
      Gp copy = e_.reg();
      e_.copy(copy, number);
      matrices_.fetch(matrix, std::move(copy), at);
    });
  }

  /// gate or up of the item.
  void product(ExpertMatrices::Matrix matrix, const std::function<void()>& behind) {
    GatheredProduct p;
    p.shape = &shape(matrix), p.slot = matrices_.base(matrix), p.stride = rows_.chunk();
    p.x_row = rows_.x_row(), p.y_row = matrix == kGateMatrix ? rows_.gate_row() : rows_.up_row();
    p.blocks_word = words_.word(kBlocks), p.last_rows_word = words_.word(kLast);
    p.slot_word = words_.word(kSlot), p.y_word = words_.word(kInner);
    p.behind = behind;
    if (!matrices_.streamed()) return lower_gathered(c_, p);
    if (matrix == kGateMatrix) buffer_ = 0, requested_ = loop_requests();
    stream(matrix, p, kNumber, [&] {
      if (matrix == kGateMatrix)
        request(kUpMatrix, kBlocks, kNumber, 0);
      else
        request(kDownMatrix, kPreviousBlocks, kPreviousNumber, 0);
      return true;
    });
  }

  // Streamed matrices: panels alternate between the two buffers, and the first panel of the matrix that follows is
  // requested before the last one of a matrix is multiplied, so that memory never waits for the front end.

  /// Whether an item's panels are even in number. Only then the next item begins with the buffer that the loop's code
  /// names while the last panel is still in the other one.
  bool loop_requests() const {
    return (shape(kGateMatrix).panels() + shape(kUpMatrix).panels() + shape(kDownMatrix).panels()) % 2 == 0;
  }

  /// A panel into the buffer of the next one, unless the item has no rows.
  void request(ExpertMatrices::Matrix matrix, ExpertState blocks, ExpertState number, std::int64_t panel) {
    const Gp some = words_.get(blocks);
    e_.when(some, [&] { matrices_.fetch_panel(matrix, words_.get(number), panel, buffer_); });
  }

  /// The first panel of gate for the expert number - 1; none for 0.
  void request_gate(Gp number) {
    e_.when(number, [&] {
      e_.add(number, number, -1);
      matrices_.fetch_panel(kGateMatrix, std::move(number), 0, 0);
    });
  }

  /// Before the loop: the first of the chosen experts.
  void begin_stream() {
    if (!matrices_.streamed() || !loop_requests()) return;
    Gp number = e_.reg();
    e_.load_int(number, Gp(), c_.expert_words.touched);
    request_gate(std::move(number));
  }

  /// For the next chunk of the expert, or for the next expert. Returns whether the code of gate finds it requested.
  bool request_next_gate() {
    if (!loop_requests()) return false;
    Gp number = words_.get(kNumber);
    e_.add(number, number, 1);
    const Gp rest = words_.get(kRest);
    e_.unless(rest, [&] {
      e_.load_int(number, Gp(), words_.word(kCursor));
      e_.load_int(number, number, 0);
    });
    request_gate(std::move(number));
    return true;
  }

  /// A product panel by panel, each loaded while the one before is multiplied. `next` requests the first panel of what
  /// follows into `buffer_`, and returns whether it has.
  void stream(ExpertMatrices::Matrix matrix, GatheredProduct p, ExpertState number, const std::function<bool()>& next) {
    const MatrixShape& whole = shape(matrix);
    const ExpertState blocks = matrix == kDownMatrix ? kPreviousBlocks : kBlocks;
    MatrixShape part = whole;
    p.shape = &part;
    p.slot_word.reset();
    if (!requested_) request(matrix, blocks, number, 0);
    for (std::int64_t panel = 0; panel < whole.panels(); ++panel) {
      const std::int64_t mine = std::exchange(buffer_, 1 - buffer_);
      if (panel + 1 < whole.panels())
        request(matrix, blocks, number, panel + 1);
      else
        requested_ = next();
      part.n = whole.panel_lanes(panel);
      p.first = panel * whole.panel;
      p.slot = matrices_.buffer_base(mine);
      lower_gathered(c_, p);
    }
  }

  /// down of the previous item, after the results before it have been added to their rows. `next`: of stream().
  void finish_previous(const std::function<bool()>& next) {
    rows_.scatter(rows_.chunk());
    for (std::int64_t part = 0; part < parts(); ++part) {
      GatheredProduct p;
      p.shape = &shape(kDownMatrix), p.slot = matrices_.base(kDownMatrix), p.first = part * shape(kDownMatrix).n;
      p.x_row = part == 0 ? rows_.gate_row() : rows_.moved_row(part), p.y_row = rows_.y_row();
      p.stride = rows_.chunk();
      p.blocks_word = words_.word(kPreviousBlocks), p.last_rows_word = words_.word(kPreviousLast);
      p.slot_word = words_.word(kPreviousSlot), p.x_word = words_.word(kPreviousInner);
      if (matrices_.streamed())
        stream(kDownMatrix, p, kPreviousNumber, next);  // never packed: there is one part
      else
        lower_gathered(c_, p);
    }
    refill(kDownMatrix, kPreviousNext, kPreviousSlot);
    rows_.begin_scatter();
  }

  /// The current item becomes the previous one. What the oldest used becomes free for the next.
  void advance() {
    for (const auto& [to, from] : {std::pair{kPreviousStart, kStart},
                                   {kPreviousCount, kCount},
                                   {kPreviousBlocks, kBlocks},
                                   {kPreviousLast, kLast},
                                   {kPreviousSlot, kSlot},
                                   {kPreviousNumber, kNumber},
                                   {kPreviousNext, kNext}})
      words_.move(to, from);
    words_.swap(kInner, kPreviousInner);
    words_.swap(kPreviousWeights, kOldWeights);
    words_.swap(kWeights, kPreviousWeights);
    rows_.begin_activation();
  }

  /// Rows per block of outputs, so that vector work on an expert's usual rows ends with one block of rows of gate, or
  /// of up.
  std::int64_t rows_behind() const {
    return ceil_div(std::min<std::int64_t>(m_.blen, matrices_.usual_rows()), shape(kGateMatrix).n / m_.blen);
  }

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const op::Experts& o_;
  ExpertMatrices matrices_;
  ExpertRows rows_;
  ExpertWordAccess words_;
  std::int64_t buffer_ = 0;  ///< of the next streamed panel, where the emitted code is
  bool requested_ = false;   ///< that panel has been requested
};

}  // namespace

Expected<void> lower(StepContext& c, const op::Experts& o) {
  if (o.hadamard != 0)
    return Error{ErrorCode::kUnsupported, "Hadamard transforms within experts are not compiled", "npu compiler",
                 "dllm quantize --rotate offline"};
  return ExpertLayer(c, o).run();
}

}  // namespace dllm::npu
