#include "npu_compiler/analytic/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "npu_compiler/analytic/products.h"
#include "npu_compiler/analytic/schedule_attention.h"
#include "npu_compiler/analytic/schedule_blocks.h"
#include "npu_compiler/analytic/schedule_experts.h"
#include "npu_compiler/analytic/schedule_panels.h"
#include "npu_compiler/analytic/schedule_shapes.h"
#include "npu_compiler/analytic/vector_kernels.h"
#include "npu_compiler/lowering/kept_lowering.h"

namespace dllm::npu {
namespace {

class Scheduler {
 public:
  Scheduler(const Device& device, const Graph& graph, const ScheduleAssumptions& load, KeptLowering& kept)
      : d_(device),
        a_(device.array),
        t_(device.latency),
        graph_(graph),
        load_(load),
        shapes_(graph, device.array, kept),
        sram_(sram_shape(device)),
        mapping_(load.mapping != nullptr ? *load.mapping : rule_mapping(sram_)),
        phases_(kept.phases(schedule_rules(device, load.segment, load.overlap))) {}

  Expected<StepSchedule> run() {
    bytes_per_cycle_ = load_.gbps / d_.clock.ghz;
    if (load_.sequences < 1 || load_.keys < 1 || graph_.shape.rows < load_.sequences || !(bytes_per_cycle_ > 0))
      return Error{ErrorCode::kUsage,
                   fmt::format("{} rows of {} sequences that see {} keys at {} GB/s", graph_.shape.rows,
                               load_.sequences, load_.keys, load_.gbps),
                   "npu schedule", "each sequence has at least one row and one key"};
    start();
    for (const Phase& phase : phases_) {
      if (phase.in_stream) continue;
      if (const auto* store = at<op::StoreKv>(phase.first)) {
        const double lane = static_cast<double>(graph_.shape.rows) * d_.numerics.kv_bytes / bytes_per_cycle_;
        const auto keys = static_cast<double>(lanes(store->k)), values = static_cast<double>(lanes(store->v));
        stores_ = {lane * keys, lane * values, slabs(store->k), phase.keys_stored};
        continue;
      }
      phase_ = {};
      if (load_.phases) phase_.name = phase_name(graph_, phase);
      const double before = now_ - std::exchange(ahead_, 0);
      if (!price(phase))
        return Error{ErrorCode::kUnsupported,
                     fmt::format("'{}' has no analytical schedule", op_name(graph_.ops[phase.first])), "npu schedule",
                     ""};
      phase_.cycles = now_ - ahead_ - before;
      if (load_.phases) result_.phases.push_back(phase_);
    }
    settle();
    if (end() < graph_.ops.size()) now_ = std::max(now_, panels_.dma) + waiting_cycles(end());
    if (!result_.phases.empty()) result_.phases.back().cycles += ahead_;
    result_.total = now_;
    return std::move(result_);
  }

 private:
  using Shadow = PanelBlocks::Shadow;
  std::size_t end() const { return load_.segment.end == 0 ? graph_.ops.size() : load_.segment.end; }
  double waiting_cycles(std::size_t at) const { return shapes_.waiting_bytes(at) / bytes_per_cycle_; }
  double cycles_per_weight() const { return npu::cycles_per_weight(d_, bytes_per_cycle_); }
  double ports() const { return static_cast<double>(d_.sram.vector_ports); }
  const WeightDecl& weight(WeightId id) const { return graph_.weight(id); }
  bool given(WeightId id) const { return id != kNoId && weight(id).required; }
  std::int64_t lanes(ValueId id) const { return shapes_.lanes(id); }
  double slabs(ValueId id) const { return shapes_.slabs(id); }
  bool near(std::int64_t rows) const { return round_up(rows, a_.blen) * a_.vlen < std::int64_t{1} << 18; }
  template <class O>
  const O* at(std::size_t i) const {
    return shapes_.at<O>(i);
  }
  /// The order of panels from memory: each is requested when the multiplication of the previous one begins.
  void list_panels() {
    for (const StreamedMatrix& m : streamed_matrices(graph_, phases_)) {
      if (m.weight == kNoId) {
        panels_.add_stop();
        continue;
      }
      const auto* linear = at<op::Linear>(m.op);
      const std::int64_t matrices = m.second == kNoId ? 1 : 2;
      const MatrixShape p =
          matrix_shape(mapping_, sram_, linear != nullptr ? lanes(linear->out) : weight(m.weight).shape[1],
                       lanes(inputs(graph_.ops[m.op]).front()));
      largest_panel_ = std::max(largest_panel_, p.panel * p.k_tiles);
      for (std::int64_t i = 0; i < p.panels() * matrices; ++i)
        panels_.add(static_cast<double>(p.panel_lanes(i / matrices) * p.k_tiles * a_.mlen) * cycles_per_weight());
    }
  }
  /// Panels stream through two buffers.
  void product(const ScheduledProduct& p) {
    const MatrixShape shape = matrix_shape(mapping_, sram_, p.n, p.k);
    const std::int64_t count = ceil_div(p.rows, a_.blen), panels = p.matrices * shape.panels();
    if (count < 2) flush();
    double stream = std::exchange(streams_, 0);
    const auto k_tiles = static_cast<double>(shape.k_tiles);
    const PanelBlocks whole(d_, shape, shape.panel_lanes(0), count, load_.queue, p.stored),
        last(d_, shape, shape.panel_lanes(shape.panels() - 1), count, load_.queue, p.stored);
    for (std::int64_t i = 0; i < panels; ++i) {
      const std::int64_t index = i / p.matrices;  // two matrices alternate slab by slab
      const PanelBlocks& blocks = index + 1 < shape.panels() ? whole : last;
      const Shadow behind = p.matrices == 2 && index > 0 && i % 2 == 0 ? blocks.behind() : Shadow{};
      free_ports_ = blocks.free_ports();
      panels_.ask(alone_until_);
      const Shadow streamed =
          stream > 0 ? blocks.beside_ropes(stream_rows_, stream_accesses_, panels * count) : Shadow{};
      Shadow tail;
      if (p.tail_slabs > 0 && i + 1 == panels && count > 1) tail = blocks.beside(p.tail, p.tail_slabs, a_.blen, true);
      double time = index * shape.panel % a_.vlen == 0 ? 0 : kPanelSwitch * (shape.panel == a_.blen ? 2 : 1);
      for (std::int64_t b = 0; b < count; ++b) {
        Shadow shadow;
        if (i == 0 && b == 0 && carry_slabs_ > 0) {
          shadow = blocks.beside(carry_, std::exchange(carry_slabs_, 0), a_.blen, true);
        } else if (tail.accesses > 0 && b > 0) {
          shadow = tail;
        } else if (stream > 0) {
          shadow = streamed;
          shadow.accesses = std::min(shadow.accesses, stream);
          stream -= shadow.accesses;
        }
        shadow.accesses += behind.accesses;
        shadow.waits += behind.waits;
        time += blocks.cycles(shadow);
        phase_.array += blocks.array();
        phase_.ports += blocks.own() + shadow.accesses;
      }
      const double load = panels_.load(), there = panels_.there();
      phase_.memory += load;
      // A panel is stored as [tile of K][output]: its first column of blocks needs the last tile's first rows, and the
      // last one the last rows. Later blocks of rows find all of it loaded.
      const double per_block = time / static_cast<double>(count);
      now_ = std::max(
          {now_ + time, there - load / k_tiles + time, there + time - per_block + per_block / blocks.columns()});
      panels_.finish(now_);
    }
    leftover_ = stream;
    end_product(p, k_tiles);
  }
  /// The front end has dispatched everything in the array's queue; the last block of rows has its own work to come.
  void end_product(const ScheduledProduct& p, double k_tiles) {
    lead_ = ahead_ = queue_lead(a_, static_cast<double>(load_.queue), k_tiles);
    drained_ = now_ + result_delay(a_);
    if (p.tail_slabs > 0 && p.rows > a_.blen)
      carry_ = p.tail, carry_slabs_ = p.tail_slabs;
    else if (p.tail_slabs > 0)
      tail_alone_ = row_cycles(d_, p.tail, static_cast<double>(round_up(p.rows, a_.blen)), p.tail_slabs, p.together);
  }
  /// Work that did not fit into any product's shadow.
  void flush() {
    if (const double n = std::exchange(carry_slabs_, 0); n > 0)
      tail_alone_ = row_cycles(d_, carry_, static_cast<double>(a_.blen), n, 2);
    if (tail_alone_ > 0) now_ = std::max(now_, drained_) + std::exchange(tail_alone_, 0);
    now_ += std::exchange(leftover_, 0) / ports();
    alone_until_ = now_;
  }
  /// Waits until the product's last results are there.
  void settle() {
    flush();
    now_ += std::exchange(streams_, 0) / ports();
    now_ = std::max(now_, drained_);
    lead_ = 0;
  }
  /// Lanes without a column are zeroed before a product, two cycles per row: while the array is at its queue, as far as
  /// it leaves ports for that, or while the rows to be carried are not there yet.
  void clear_lanes(ValueId id) {
    if (round_up(lanes(id), a_.blen) >= ceil_div(lanes(id), a_.vlen) * a_.vlen) return;
    const double hidden = carry_slabs_ > 0 ? lead_ + result_delay(a_) : lead_ * free_ports_;
    now_ += std::max(0.0, 2 * static_cast<double>(round_up(shapes_.value(id).rows, a_.blen)) - hidden);
  }

  /// Constants, the first panel and the embedded rows come from memory in sequence.
  void start() {
    list_panels();
    panels_.dma = shapes_.constant_bytes(load_.segment.first, end()) / bytes_per_cycle_;
    panels_.ask(alone_until_);
    if (load_.segment.first > 0) now_ = panels_.dma += waiting_cycles(load_.segment.first);
  }

  bool price(const Phase& phase) {
    const std::size_t i = phase.first;
    if (phase.gated) {
      const op::Linear& gate = *phase.gated->gate;
      clear_lanes(gate.out);
      product({.rows = shapes_.value(gate.x).rows,
               .n = lanes(gate.out),
               .k = lanes(gate.x),
               .matrices = 2,
               .tail = swiglu_kernel(t_),
               .tail_slabs = load_.overlap ? 1.0 : 0.0});
      return load_.overlap || alone(swiglu_kernel(t_), gate.out, 2, 1);
    }
    if (const auto* o = at<op::Linear>(i)) return linear(*o, phase);
    if (const auto* o = at<op::Embed>(i))
      return move(o->out, false, true) &&
             (o->scale == 1.f || o->part == EmbedPart::kMixture || alone(scale_kernel(1), o->out, 1));
    if (at<op::Select>(i) != nullptr) return true;  // a step's rows are of one region: no row moves
    if (const auto* o = at<op::RmsNorm>(i); o != nullptr && o->groups > 1) return norm_by_head(*o);
    if (const auto* o = at<op::HiddenIn>(i)) return move(o->out, false, true);
    if (const auto* o = at<op::HiddenOut>(i)) return move(o->x, true, i + 1 == end());
    if (const auto* o = at<op::Rope>(i)) return rope(*o);
    if (const auto* o = at<op::Attention>(i)) return attention(*o);
    if (const auto* o = at<op::GatherScored>(i)) {
      settle();
      if (shapes_.value(o->out).rows != shapes_.value(o->x).rows)
        now_ += 2.0 * static_cast<double>(shapes_.value(o->out).rows) * slabs(o->out);
      return true;
    }
    if (const auto* o = at<op::Route>(i)) return route(*o);
    if (at<op::Experts>(i) != nullptr && experts_) return experts();
    if (const auto* o = at<op::ScoreHead>(i)) return head(*o);
    const ValueId x = inputs(graph_.ops[i]).front();
    const auto row = row_operator(d_, graph_.ops[i], slabs(x), near(shapes_.value(x).rows));
    return row && alone(row->kernel, x, row->together);
  }

  /// All rows of a value, `together` of them interleaved; nothing else runs.
  bool alone(const RowKernel& k, ValueId id, double together) { return alone(k, id, together, slabs(id)); }
  bool alone(const RowKernel& k, ValueId id, double together, double slabs) {
    settle();
    const auto count = static_cast<double>(shapes_.value(id).rows);
    now_ += row_cycles(d_, k, count, slabs, together);
    phase_.ports += k.accesses * count * slabs;
    return true;
  }

  bool rope(const op::Rope& o) {
    const RopeForm form = shapes_.rope(o);
    if (form.halves) return alone(wide_rope_kernel(), o.x, 2);
    const double turned = slabs(o.x) / static_cast<double>(form.slabs);
    return form.tables == 2 ? alone(rope_kernel(), o.x, 2, turned) : alone(part_rope_kernel(t_), o.x, 1, turned);
  }

  /// q is complete while the array is still at v. Heads of whole slabs are processed one after the other.
  bool norm_by_head(const op::RmsNorm& o) {
    const std::int64_t head = shapes_.value(o.x).width / o.groups, count = shapes_.value(o.x).rows;
    flush();
    now_ += shapes_.wide(head) ? row_cycles(d_, norm_kernel(t_, near(count)), static_cast<double>(count * o.groups),
                                            static_cast<double>(ceil_div(head, a_.vlen)), 1)
                               : head_norm_cycles(d_, static_cast<double>(count) * slabs(o.x));
    phase_.ports = kHeadNormAccesses * static_cast<double>(count) * slabs(o.x);
    return true;
  }

  /// The schedule of the layer of experts that reads a route's choices; nullptr: none does.
  ExpertSchedule* experts_of(const op::Route& route) {
    const op::Experts* o = shapes_.reader_of(route);
    if (o == nullptr) return nullptr;
    ExpertShape shape = shapes_.experts(route, *o);
    shape.largest_panel = largest_panel_;
    shape.cycles_per_weight = cycles_per_weight(), shape.queue = load_.queue;
    if (!experts_ || experts_->shape() != shape) experts_.emplace(d_, shape, load_.choices, mapping_);
    return &*experts_;
  }

  bool route(const op::Route& o) {
    ExpertSchedule* experts = experts_of(o);
    if (experts == nullptr) return false;
    settle();
    now_ += experts->load_ahead(now_, panels_.dma);
    now_ += route_cycles(d_, o, shapes_.value(o.logits).rows, shapes_.value(o.logits).width, given(o.bias));
    return true;
  }
  bool experts() {  // of the latest route
    ExpertClocks clocks{.now = now_, .dma = panels_.dma};
    experts_->run(clocks);
    phase_.array = experts_->array(), phase_.ports = experts_->accesses(), phase_.memory = experts_->memory();
    now_ = clocks.now;
    panels_.dma = clocks.dma;
    panels_.pass_stop();
    panels_.ask(clocks.next_panel);
    alone_until_ = now_;
    return true;
  }

  /// Rows from memory, or to it: `waits` for the last ones.
  bool move(ValueId id, bool out, bool waits) {
    if (out) settle(), panels_.dma = std::max(panels_.dma, now_);
    phase_.memory = 2.0 * static_cast<double>(shapes_.value(id).rows * a_.vlen) * slabs(id) / bytes_per_cycle_;
    panels_.dma += phase_.memory;
    if (waits) now_ = panels_.dma;
    return true;
  }

  bool linear(const op::Linear& o, const Phase& phase) {
    ScheduledProduct p{.rows = shapes_.value(o.x).rows, .n = lanes(o.out), .k = lanes(o.x)};
    clear_lanes(o.out);
    if (phase.residual) {
      p.tail = phase.residual->norm != nullptr ? residual_norm_kernel(t_, near(p.rows)) : add_kernel();
      p.tail_slabs = slabs(phase.residual->sum->out);
      p.together = 2;
    }
    product(p);
    if (given(o.bias)) {
      settle();
      now_ += row_cycles(d_, add_kernel(), static_cast<double>(p.rows), slabs(o.out), 1);
    }
    if (phase.streamed == Phase::kNone) return true;
    stream_accesses_ = rope_kernel().accesses * slabs(o.out);
    stream_rows_ = static_cast<double>(graph_.shape.rows);
    streams_ = leftover_ + stream_rows_ * stream_accesses_;
    leftover_ = 0;
    return true;
  }

  /// K and V come from memory after V's stores, sequence by sequence; the work overlaps with them.
  bool attention(const op::Attention& o) {
    const double lead = lead_;
    settle();
    const std::int64_t rows = ceil_div(graph_.shape.rows, load_.sequences);
    const AttentionWork work = attention_work(d_, o,
                                              {.rows = rows,
                                               .keys = seen_keys(o, std::max(rows, load_.all_rows), load_.keys),
                                               .query_slabs = slabs(o.q),
                                               .chunk_tiles = chunk_tiles(mapping_, sram_, o.head_dim)});
    const auto sequences = static_cast<double>(load_.sequences);
    phase_.array += work.array * sequences;
    phase_.ports += work.accesses * sequences;
    now_ += stores_.front_end_wait(static_cast<double>(load_.queue), sequences, lead);
    const double keys_bytes = work.key_lanes * sequences * d_.numerics.kv_bytes / bytes_per_cycle_;
    phase_.memory = 2 * keys_bytes * work.key_loads + stores_.values;
    // Before everything: K of the first two jobs, V's stores, V of the first; a job is what one buffer of matrix SRAM
    // holds.
    const double begin =
        std::max(now_ + work.smoothing * sequences, panels_.dma) + (stores_.streamed ? 0 : stores_.keys);
    const double first = 3 * keys_bytes / (sequences * work.jobs) + stores_.values;
    const double moved = begin + phase_.memory;
    now_ = std::max(begin + first + work.cycles * sequences, moved + work.unit_cycles) + result_delay(a_);
    panels_.dma = moved;
    alone_until_ = now_;
    return true;
  }

  bool head(const op::ScoreHead& o) {
    const std::int64_t vocab = weight(o.weight).shape[1];
    const std::int64_t scored = shapes_.value(o.x).rows;
    if (scored == 0) return true;
    product({.rows = scored, .n = vocab, .k = lanes(o.x), .stored = load_.logits});
    const double bytes =
        load_.logits ? load_.logit_bytes * static_cast<double>(round_up(scored, a_.blen) * round_up(vocab, a_.vlen))
                     : 0;
    const double weights = std::exchange(phase_.memory, phase_.memory + bytes / bytes_per_cycle_);
    // Logits share the memory with the weights; the last slab's are stored after everything else.
    const double slab = bytes / bytes_per_cycle_ / static_cast<double>(ceil_div(vocab, a_.vlen));
    const double begin = now_ - std::max(phase_.array, weights);
    now_ = std::max(now_, begin + phase_.memory) + result_delay(a_) + slab;
    if (o.softcap != 0.f) now_ += softcap_cycles(d_, scored, vocab, lead_);
    return true;
  }

  const Device& d_;
  const ArrayKeys& a_;
  const LatencyKeys& t_;
  const Graph& graph_;
  const ScheduleAssumptions& load_;
  ScheduleShapes shapes_;
  const SramShape sram_;
  const Mapping mapping_;
  const std::vector<Phase>& phases_;
  double bytes_per_cycle_ = 0;
  KvStores stores_;  ///< of the latest layer
  double now_ = 0;   ///< time at which the array and the vector unit have finished all earlier work
  PanelStream panels_;
  std::int64_t largest_panel_ = 0;         ///< rows of matrix SRAM
  std::optional<ExpertSchedule> experts_;  ///< of the latest route
  double lead_ = 0, free_ports_ = 0;       ///< of the front end, in the latest product; share that the array leaves
  double drained_ = 0;                     ///< when the latest product's results are in vector SRAM
  double ahead_ = 0;                       ///< lead of the front end over the array at the end of a phase
  double alone_until_ = 0;                 ///< until then the front end waited for the vector unit's separate work
  double tail_alone_ = 0;                  ///< rows of the previous product, if it has only one block
  RowKernel carry_;                        ///< of its last block
  double carry_slabs_ = 0, streams_ = 0, leftover_ = 0, stream_rows_ = 0, stream_accesses_ = 0;
  ScheduledPhase phase_;
  StepSchedule result_;
};

}  // namespace

Expected<StepSchedule> schedule_step(const Device& device, const Graph& graph, const ScheduleAssumptions& load) {
  KeptLowering kept(graph);
  return schedule_step(device, graph, load, kept);
}

Expected<StepSchedule> schedule_step(const Device& device, const Graph& graph, const ScheduleAssumptions& load,
                                     KeptLowering& kept) {
  return Scheduler(device, graph, load, kept).run();
}

}  // namespace dllm::npu
