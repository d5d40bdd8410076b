#include "npu_compiler/analytic/schedule_experts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/integers.h"
#include "base/to_size.h"
#include "npu_compiler/analytic/schedule_attention.h"
#include "npu_compiler/lowering/mapping.h"
#include "npu_core/device/device.h"

namespace dllm::npu {
namespace {

// Cycles of the front end for the code between the products of an item, counted from what the compiler emits: one
// integer instruction per cycle, and three cycles for a taken branch.
constexpr double kFetch = 11;   // number and slot of a matrix, address registers, the transfer
constexpr double kCheck = 5;    // a condition that does not hold
constexpr double kBegin = 27;   // the next expert: list, lane, slot
constexpr double kGather = 25;  // registers before the rows of an item, words after them
constexpr double kFindNext = 5;
constexpr double kProductBegin = 21, kProductEnd = 5;
constexpr double kAdvance = 60;                  // words of the three items in flight
constexpr double kSaved = 15;                    // a product's registers, while other code uses them
constexpr double kActivate = 15, kScatter = 11;  // registers and words of such code
constexpr double kListed = 7, kListedAhead = 3;  // per expert
constexpr double kState = 20;

/// Rounds of the ring that are followed item by item.
constexpr std::int64_t kRounds = 3;

double biggest(double a, double b, double c) { return std::max({a, b, c}); }

/// Every lane learns the two best keys of its group, and the best groups are taken one by one: two rows, whose vector
/// instructions wait for each other. The integer instructions that set the pointers come before, because the front end
/// has waited for the last group's lane.
double group_pair_cycles(const LatencyKeys& t, std::int64_t lanes, std::int32_t used) {
  constexpr double kRows = 2, kPointers = 17;
  const auto maximum = std::max(static_cast<double>(t.vector_max), kRows), shift = static_cast<double>(t.shift);
  const double steps = log2_ceil(lanes);
  const double first = shift + kRows + maximum, later = 3 * kRows + shift + 2 * maximum;
  const double best_two = steps > 0 ? first + (steps - 1) * later + static_cast<double>(t.vector_add) : shift;
  return kPointers + best_two + kRows * used * (static_cast<double>(t.vector_max) + shift + 3) + kRows;
}

/// Pools of experts per block of rows: maxima of its keys one after the other, the mask, then each key.
double pool_cycles(const LatencyKeys& t, const op::Route& o, std::int64_t rows, std::int64_t experts) {
  const auto blocks = static_cast<double>(ceil_div(rows, std::max<std::int64_t>(1, o.block)));
  constexpr double kPerRow = 3;  // two vector instructions, the pointer, the end of the loop
  return static_cast<double>(rows) * (static_cast<double>(t.vector_max) + kPerRow) +
         blocks * static_cast<double>(experts + t.vector_add + t.vector_mul);
}

/// What is added if a row's experts fill several rows of lanes: each step for each of them, with their pointers; rounds
/// of two rows instead of four, and the place of each chosen key; a table of places.
double slab_cycles(const LatencyKeys& t, const op::Route& o, std::int64_t rows, std::int64_t experts, double slabs) {
  const double pairs = static_cast<double>(ceil_div(rows, 2)), more = slabs - 1;
  const bool softmax = o.score == GateScore::kSoftmax;
  constexpr double kRows = 2, kPointers = 3 * kRows;
  const double scores = softmax ? 3 * kPointers + 7 * kRows : kPointers + 5 * kRows;
  const double weigh = 2 * kPointers + 6 * kRows;
  const double round = more * (kRows + kRows + 1) + 2 + static_cast<double>(t.vector_max) + 3 * kRows;
  double row = 0;
  if (o.groups > 1)
    row = more * (group_pair_cycles(t, experts / o.groups, 0) + 10) +
          o.groups_used * (3 * slabs + static_cast<double>(t.vector_max) + static_cast<double>(t.shift));
  return pairs * (more * (scores + weigh) + o.used * round) + static_cast<double>(rows) * row +
         2 * static_cast<double>(experts);
}

}  // namespace

double route_cycles(const Device& device, const op::Route& o, std::int64_t rows, std::int64_t experts, bool biased) {
  const LatencyKeys& t = device.latency;
  const auto ports = static_cast<double>(device.sram.vector_ports);
  const double pairs = static_cast<double>(ceil_div(rows, 2));
  const bool grouped = o.groups > 1, by_score = biased || grouped;
  const auto add = static_cast<double>(t.vector_add), maximum = static_cast<double>(t.vector_max),
             scalar = static_cast<double>(t.scalar_fp), special = static_cast<double>(t.scalar_special);
  // Two rows at a time: pointers one by one, vector instructions in twos, or each step's latency; the first operands of
  // a pair wait for the last results of the one before.
  double pair = 0;
  if (o.score == GateScore::kSoftmax) {
    const double mask = experts == device.array.vlen ? 0 : static_cast<double>(t.vector_mul);
    const double chain =
        2 * maximum + add + static_cast<double>(t.vector_exp) + mask + static_cast<double>(t.vector_sum) + special + 1;
    pair += std::max(chain + 6 / ports, 13 + (mask > 0 ? 1.0 : 0.0));
  } else {
    const double chain = 2 * add + static_cast<double>(t.vector_exp) + 1;
    pair += std::max(chain + 4 / ports, by_score ? 10.0 : 11.0);
  }
  if (by_score) pair += biased ? std::max(6.0, add + 1) : 5;
  if (grouped) pair += group_pair_cycles(t, experts / o.groups, o.groups_used);
  // Weights.
  double weigh = 2 * add + 2 * maximum - 1;
  if (o.normalize) {
    weigh = 2 * add + 2 * maximum + static_cast<double>(t.vector_sum) + scalar + special +
            (o.scale != 1.0f ? scalar : 0) + 4 / ports;
  } else if (o.scale != 1.0f) {
    weigh += 1;
  }
  pair += std::max(weigh, 10.0);
  // Rounds of four rows: registers and maxima, the first one's latency, then five integer instructions for each row's
  // list.
  constexpr double kRows = 4, kLists = 5, kPointers = 5;
  const double round = kRows / 2 + std::max(kRows, maximum) + kRows * kLists + 0.5;
  const double choose = std::ceil(static_cast<double>(rows) / kRows) * (o.used * round + kPointers);
  double cycles = pairs * pair + choose + 2 * static_cast<double>(experts);
  if (const auto slabs = static_cast<double>(ceil_div(experts, device.array.vlen)); slabs > 1)
    cycles += slab_cycles(t, o, rows, experts, slabs);
  if (o.capacity > 0) cycles += pool_cycles(t, o, rows, experts);
  return cycles;
}

ExpertSchedule::ExpertSchedule(const Device& device, const ExpertShape& shape, const ChoiceAssumption& choices,
                               const Mapping& mapping)
    : d_(device), a_(device.array), shape_(shape) {
  slabs_ = ceil_div(shape.width, a_.vlen);
  inner_slabs_ = ceil_div(shape.inner, a_.vlen);
  out_slabs_ = ceil_div(shape.out_width, a_.vlen);
  const SramShape sram = sram_shape(device);
  plan_matrices(mapping, sram);
  plan_rows(choices, sram);
  plan_products();
}

/// How the compiler packs `down`, and how many slots fit.
void ExpertSchedule::plan_matrices(const Mapping& mapping, const SramShape& sram) {
  parts_ = packed_outputs(sram, shape_.inner, shape_.out_width, 1);
  products_[kGate] = products_[kUp] = product(shape_.inner, shape_.width);
  products_[kDown] = product(ceil_div(round_up(shape_.out_width, parts_ * a_.blen), parts_), shape_.inner);
  std::int64_t slot = 0;
  for (const Product& p : products_) slot += static_cast<std::int64_t>(p.panel_columns * p.k_tiles) * a_.blen;
  const ExpertRing ring = expert_ring(mapping, slot, shape_.largest_panel);
  streamed_ = ring.slots == 0;
  apart_ = ring.apart;
  slots_ = std::max<std::int64_t>(1, ring.slots);
  ahead_ = experts_ahead(ring, shape_.experts, shape_.rows * shape_.used);
  there_.resize(to_size(slots_));
}

ExpertSchedule::Product ExpertSchedule::product(std::int64_t lanes, std::int64_t contraction) const {
  const std::int64_t n = round_up(lanes, a_.blen), k = ceil_div(contraction, a_.mlen);
  return {.k_tiles = static_cast<double>(k),
          .panel_columns = static_cast<double>(n / a_.blen),
          .load = static_cast<double>(n * k * a_.mlen) * shape_.cycles_per_weight,
          .columns = {}};
}

/// Integer instructions that move a pointer by so many rows of vector SRAM: immediates have 18 bits and no sign.
double ExpertSchedule::constant_step(std::int64_t rows) const {
  return rows >= 0 && rows * a_.vlen < std::int64_t{1} << 18 ? 1 : 2;
}

void ExpertSchedule::plan_rows(const ChoiceAssumption& choices, const SramShape& sram) {
  chunk_ = std::max(a_.blen, expert_chunk(sram, d_.sram.fp_words, shape_.rows));
  const ExpertLoad chunks = expert_load(shape_.rows, shape_.experts, shape_.used, chunk_, choices),
                   blocks = expert_load(shape_.rows, shape_.experts, shape_.used, a_.blen, choices);
  experts_read_ = std::max(chunks.touched, static_cast<double>(ahead_));
  blocks_in_all_ = blocks.blocks;
  // Streamed matrices are loaded again for every chunk.
  if (streamed_) experts_read_ = std::max(1.0, chunks.blocks);
  experts_ = std::max<std::int64_t>(1, std::llround(experts_read_));
  items_ = std::max<std::int64_t>(experts_, std::llround(chunks.blocks));
  rows_ = static_cast<double>(shape_.rows * shape_.used) / static_cast<double>(items_);
  blocks_ = blocks.blocks / static_cast<double>(items_);
  block_rows_ = std::min(rows_ / std::max(blocks_, 1e-9), static_cast<double>(a_.blen));
}

/// Cycles of the rows' work, and of column blocks with that work between them.
void ExpertSchedule::plan_products() {
  const LatencyKeys& t = d_.latency;
  const auto ports = static_cast<double>(d_.sram.vector_ports);
  const std::int64_t stride = round_up(shape_.rows, a_.blen);
  for (Product& p : products_) {
    const double tiles = p.k_tiles * a_.tile_cycles;
    // One port of matrix SRAM: arriving rows and the array alternate.
    const double uses = blocks_ * static_cast<double>(&p == &products_[kDown] ? parts_ : 1);
    const double arriving = d_.sram.matrix_ports > 1 ? 0 : p.k_tiles * static_cast<double>(a_.blen) / uses;
    const double own = p.k_tiles * std::min(block_rows_, std::floor(a_.tile_cycles)) + block_rows_;
    p.columns[1] = {p.panel_columns * blocks_, std::max(tiles + arriving, own / ports), 2 * p.k_tiles};
    p.lead = queue_lead(a_, static_cast<double>(shape_.queue), p.k_tiles);
  }
  const Columns& column = products_[kGate].columns[1];
  const double own = products_[kGate].k_tiles * std::min(block_rows_, a_.tile_cycles) + block_rows_;
  const double free = std::max(ports / 2, ports - own / column.array);
  // A gathered row: its weight by a product with the expert's lane and a sum, a copy of each slab, its list.
  const double walk = static_cast<double>(slabs_ - 1) * (constant_step(stride) + constant_step(chunk_)) +
                      constant_step(1 - (slabs_ - 1) * chunk_);
  gather_row_ = std::max(12 + walk, static_cast<double>(t.vector_sum + t.scalar_fp) + 1);
  // An added row: its weight from FP_MEM, product and sum of each slab, its list.
  scatter_row_ = 10 + static_cast<double>(out_slabs_) +
                 static_cast<double>(out_slabs_ - 1) * (constant_step(chunk_) + constant_step(stride)) +
                 constant_step(1 - (out_slabs_ - 1) * chunk_);
  // Two rows of SwiGLU, and the copies that the parts of `down` need.
  const auto inner = static_cast<double>(inner_slabs_), moves = 2 * static_cast<double>(parts_ - 1);
  // GELU squares, and forms a polynomial, before.
  const double form = shape_.gelu ? 4 : 0;
  const double issue = inner * (6 + form + 4 * constant_step(inner_slabs_ > 1 ? chunk_ : 1) + moves) + 6;
  const double chain =
      inner * (static_cast<double>(2 * t.vector_add + t.vector_exp + t.vector_reci + 2 * t.vector_mul + 1) +
               (shape_.gelu ? static_cast<double>(3 * t.vector_mul + t.vector_add) : 0));
  const double accesses = inner * (18 + 3 * form + 2 * moves);
  pair_ = biggest(issue, chain, accesses / free);
  pair_alone_ = biggest(issue, chain, accesses / ports);
  const std::int64_t usual = ceil_div(shape_.rows * shape_.used, shape_.experts);
  const std::int64_t most =
      ceil_div(std::min(a_.blen, usual), static_cast<std::int64_t>(products_[kGate].panel_columns));
  const auto pairs = static_cast<double>(ceil_div(most, 2));
  const double left = put_between(products_[kGate], 2 * pairs, kActivate + pairs * pair_, pairs * accesses);
  activate_left_ = left > 0 ? kActivate + left / 2 * pair_ : kCheck;
  const auto rows = static_cast<double>(most);
  const double unadded =
      put_between(products_[kUp], rows, kScatter + rows * scatter_row_, rows * 4 * static_cast<double>(out_slabs_));
  scatter_left_ = unadded > 0 ? kScatter + unadded * scatter_row_ : kCheck;
}

/// Work on `rows` rows after each column block, as long as there are rows. Returns how many are left.
double ExpertSchedule::put_between(Product& p, double rows, double issue, double accesses) const {
  const auto ports = static_cast<double>(d_.sram.vector_ports);
  Columns& plain = p.columns[1];
  plain.issue += kSaved;
  const double own = p.k_tiles * std::min(block_rows_, std::floor(a_.tile_cycles)) + block_rows_;
  p.columns[0] = {std::min(plain.count, rows_ / rows), std::max(plain.array, (own + accesses) / ports),
                  plain.issue + issue};
  plain.count -= p.columns[0].count;
  return rows_ - p.columns[0].count * rows;
}

double ExpertSchedule::array() const {
  double tiles = 0;
  for (const Product& p : products_) tiles += p.panel_columns * p.k_tiles;
  tiles += (static_cast<double>(parts_) - 1) * products_[kDown].panel_columns * products_[kDown].k_tiles;
  return tiles * blocks_in_all_ * a_.tile_cycles;
}

double ExpertSchedule::accesses() const {
  double own = 0;
  for (const Product& p : products_)
    own += p.panel_columns * (p.k_tiles + 1) * (&p == &products_[kDown] ? static_cast<double>(parts_) : 1);
  const double vector = static_cast<double>(3 + 2 * slabs_ + 4 * out_slabs_ + (9 + 2 * (parts_ - 1)) * inner_slabs_);
  return static_cast<double>(shape_.rows * shape_.used) * (own + vector);
}

/// Rows of results, and of buffers with lanes without a column, are zeroed: two cycles each.
double ExpertSchedule::cleared_rows() const {
  const std::int64_t inner = round_up(shape_.inner, a_.blen), out = round_up(shape_.out_width, parts_ * a_.blen);
  std::int64_t rows = out_slabs_ * round_up(shape_.rows, a_.blen);
  if (inner < inner_slabs_ * a_.vlen) rows += 4 * chunk_;
  if (out < out_slabs_ * a_.vlen) rows += chunk_;
  return static_cast<double>(rows);
}

struct ExpertSchedule::State {
  double now = 0;             ///< front end
  double array = 0, dma = 0;  ///< when they have finished everything so far
  double up = 0, down = 0;    ///< when the latest results are in vector SRAM
  std::int64_t items = 0, expert = 0;
  std::int64_t previous = -1;  ///< the expert whose `down` comes next, -1: none
  bool previous_done = false;  ///< it was the last of its chunks
};

double ExpertSchedule::load_ahead(double at, double& dma) {
  for (std::int64_t i = 0; i < ahead_; ++i)
    for (const Matrix m : {kGate, kUp, kDown}) {
      dma = std::max(dma, at) + products_[m].load;
      there_[to_size(i)][m] = dma;
    }
  return static_cast<double>(ahead_ * kCount) * kFetch / 3;
}

/// An expert's matrix replaces one that is in use until `free`.
void ExpertSchedule::request(State& s, Matrix matrix, std::int64_t expert, double free) {
  if (expert >= experts_) {
    s.now += kCheck;
    return;
  }
  s.now += kCheck + kFetch;
  s.dma = biggest(s.dma, s.now, free) + products_[matrix].load;
  there_[to_size(expert % slots_)][matrix] = s.dma;
}

/// The front end waits for the rows of matrix SRAM that a column block needs, which are stored as [tile of K][output].
void ExpertSchedule::multiply(State& s, const Product& p, double there) const {
  s.now = std::max(s.now + kProductBegin, there - p.load / p.k_tiles * (1 - 1 / p.panel_columns));
  double column = 0;
  for (const Columns& c : p.columns) {
    if (c.count <= 0) continue;
    column = std::max(c.array, c.issue);
    s.array =
        std::max(std::max(s.array, s.now) + c.count * c.array, s.now + std::max(0.0, c.count - 1) * c.issue + c.array);
    s.now = std::max(s.now + c.count * c.issue, s.array - p.lead);
  }
  const double columns = p.columns[0].count + p.columns[1].count;
  s.array = std::max(s.array, there + std::max(1.0, columns - p.panel_columns + 1) * column);
  s.now = std::max(s.now, s.array - p.lead) + kProductEnd;
}

/// One turn of the loop: gate and up of an item, down of the item before.
void ExpertSchedule::item(State& s) {
  const std::int64_t next = ++s.items * experts_ / items_;  // chunks of an expert are adjacent
  const bool last = next != s.expert;
  const auto& mine = there_[to_size(s.expert % slots_)];
  const std::int64_t replaced = last ? s.expert + slots_ : experts_;
  s.now += kBegin + kGather + kFindNext + rows_ * gather_row_;
  s.now = std::max(s.now, s.up - products_[kGate].columns[0].issue);
  multiply(s, products_[kGate], mine[kGate]);
  request(s, kGate, replaced, s.array);
  s.now = std::max(s.now + activate_left_, s.down - products_[kUp].columns[0].issue);
  multiply(s, products_[kUp], mine[kUp]);
  s.up = s.array + result_delay(a_);
  request(s, kUp, replaced, s.array);
  s.now += scatter_left_;
  if (s.previous >= 0) {
    const double there = there_[to_size(s.previous % slots_)][kDown];
    for (std::int64_t part = 0; part < parts_; ++part) multiply(s, products_[kDown], there);
    s.down = s.array + result_delay(a_);
    request(s, kDown, s.previous_done ? s.previous + slots_ : experts_, s.array);
  }
  s.now += kAdvance;
  s.previous = s.expert;
  s.previous_done = last;
  s.expert = next;
}

/// The items after those that were followed; `done` experts have begun.
void ExpertSchedule::extrapolate(State& s, double period, std::int64_t left) const {
  const double skipped = static_cast<double>(left) * period;
  for (double* clock : {&s.now, &s.array, &s.up, &s.down}) *clock += skipped;
  // Every expert's transfer, if the load engine never waits for a slot.
  const std::int64_t requested = std::min(experts_, s.expert + slots_);
  s.dma += static_cast<double>(experts_ - requested) * load_of_expert();
  const Product& down = products_[kDown];
  s.array = std::max(s.array, s.dma - down.load + products_[kUp].columns[1].array);
  s.now = std::max(s.now, s.array - down.lead);
}

/// The last item's SwiGLU, down and addition; nothing overlaps with them but the products before.
void ExpertSchedule::finish(State& s, ExpertClocks& clocks) const {
  clocks.next_panel = s.now;
  s.now = std::max(s.now, s.up) + kActivate + std::ceil(rows_ / 2) * pair_alone_;
  s.now = std::max(s.now, s.down) + kScatter + rows_ * scatter_row_;
  const double there = s.items < items_ ? s.dma : there_[to_size((experts_ - 1) % slots_)][kDown];
  for (std::int64_t part = 0; part < parts_; ++part) multiply(s, products_[kDown], there);
  s.now = std::max(s.now, s.array + result_delay(a_)) + kScatter + rows_ * scatter_row_;
  if (!apart_) clocks.next_panel = s.now;
  clocks.now = s.now;
  clocks.dma = s.dma;
}

void ExpertSchedule::run(ExpertClocks& clocks) {
  State s;
  s.now =
      clocks.now + static_cast<double>(ahead_) * kListedAhead + static_cast<double>(shape_.experts - ahead_) * kListed;
  s.dma = clocks.dma;
  s.array = clocks.now;
  for (std::int64_t i = ahead_; i < std::min(slots_, experts_); ++i)
    for (const Matrix m : {kGate, kUp, kDown}) request(s, m, i, 0);
  s.now += 2 * cleared_rows() + kState;
  const std::int64_t round = std::max<std::int64_t>(1, slots_ * items_ / experts_);
  const std::int64_t followed = std::min(items_, kRounds * round);
  double before = 0;
  for (std::int64_t i = 0; i < followed; ++i) {
    if (i == followed - round) before = s.now;
    item(s);
  }
  if (followed < items_) extrapolate(s, (s.now - before) / static_cast<double>(round), items_ - followed);
  finish(s, clocks);
}

}  // namespace dllm::npu
