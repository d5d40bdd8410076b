#include "npu/analytic/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/try.h"
#include "npu/analytic/schedule_attention.h"
#include "npu/analytic/schedule_shapes.h"
#include "npu/analytic/vector_kernels.h"

namespace dllm::npu {
namespace {

class Scheduler {
 public:
  Scheduler(const Device& device, const Graph& graph, const ScheduleLoad& load)
      : d_(device), a_(device.array), t_(device.latency), graph_(graph), load_(load), shapes_(graph, device.array) {}

  Expected<StepSchedule> run() {
    weight_bytes_ = d_.numerics.weight_bytes;
    kv_bytes_ = d_.numerics.kv_bytes;
    done_.resize(graph_.ops.size());
    bytes_per_cycle_ = load_.gbps / d_.clock.ghz;
    if (load_.sequences < 1 || load_.keys < 1 || graph_.shape.rows < load_.sequences || !(bytes_per_cycle_ > 0))
      return Error{ErrorCode::kUsage,
                   fmt::format("{} rows of {} sequences that see {} keys at {} GB/s", graph_.shape.rows,
                               load_.sequences, load_.keys, load_.gbps),
                   "npu schedule", "each sequence has at least one row and one key"};
    list_panels();
    start();
    for (std::size_t i = 0; i < graph_.ops.size();) {
      const std::size_t count = shapes_.group_at(i);
      if (done_[i]) {
        ++i;
        continue;
      }
      if (const auto* store = at<op::StoreKv>(i)) {
        // V after K, which was stored in a product's shadow; attention waits for it.
        kv_stored_ = static_cast<double>(rows() * lanes(store->v)) * kv_bytes_ / bytes_per_cycle_;
        ++i;
        continue;
      }
      phase_ = {};
      if (load_.phases)
        phase_.name = shapes_.name_of(
            graph_.ops[std::holds_alternative<op::Linear>(graph_.ops[i]) && !shapes_.gated(i) ? i : i + count - 1]);
      const double before = now_ - std::exchange(ahead_, 0);
      if (!lower(i, count))
        return Error{ErrorCode::kUnsupported, fmt::format("'{}' has no analytical schedule", op_name(graph_.ops[i])),
                     "npu schedule", ""};
      phase_.cycles = now_ - ahead_ - before;
      if (load_.phases) result_.phases.push_back(phase_);
      i += count;
    }
    settle();
    if (!result_.phases.empty()) result_.phases.back().cycles += ahead_;
    result_.total = now_;
    return std::move(result_);
  }

 private:
  double ports() const { return static_cast<double>(d_.sram.vector_ports); }
  const Value& value(ValueId id) const { return shapes_.value(id); }
  std::int64_t lanes(ValueId id) const { return shapes_.lanes(id); }
  double slabs(ValueId id) const { return shapes_.slabs(id); }
  bool wide(std::int64_t head_dim) const { return shapes_.wide(head_dim); }
  std::int64_t rows() const { return graph_.shape.rows; }
  std::int64_t blocks(std::int64_t rows) const { return ceil_div(rows, a_.blen); }
  template <class O>
  const O* at(std::size_t i) const {
    return shapes_.at<O>(i);
  }

  struct Product {
    std::int64_t rows = 0, n = 0, k = 0;  ///< rows, output and input lanes
    int matrices = 1;
    double tail = 0;        ///< accesses per row in the shadow of the last panel
    double tail_alone = 0;  ///< cycles of all its rows after the product, where there is no next block
  };

  /// How a matrix is cut into panels of output lanes.
  struct Panels {
    std::int64_t n = 0, k_tiles = 0, panel = 0, count = 0;
    std::int64_t lanes(std::int64_t i) const { return i + 1 < count ? panel : n - i * panel; }
  };
  Panels panels_of(std::int64_t n, std::int64_t k) const {
    Panels p{.n = round_up(n, a_.blen), .k_tiles = ceil_div(k, a_.mlen), .panel = a_.vlen};
    const std::int64_t room = weight_buffer_rows();
    while (p.panel > a_.blen && (p.panel * p.k_tiles > room || p.panel / 2 >= p.n)) p.panel /= 2;
    p.count = ceil_div(p.n, p.panel);
    return p;
  }
  double panel_cycles(const Panels& p, std::int64_t lanes) const {
    return static_cast<double>(lanes * p.k_tiles * a_.mlen) * weight_bytes_ / bytes_per_cycle_;
  }

  /// The order of panels from memory: each is requested when the multiplication of the previous one begins.
  void list_panels() {
    const auto list = [this](std::int64_t n, std::int64_t k, std::int64_t matrices) {
      const Panels p = panels_of(n, k);
      for (std::int64_t i = 0; i < p.count * matrices; ++i) loads_.push_back(panel_cycles(p, p.lanes(i / matrices)));
    };
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (const auto* o = at<op::Linear>(i)) {
        const bool two = shapes_.gated(i);
        list(lanes(o->out), lanes(o->x), two ? 2 : 1);
        if (two) ++i;
      } else if (const auto* head = at<op::ScoreHead>(i); head != nullptr && value(head->x).rows > 0) {
        list(graph_.weights[static_cast<std::size_t>(head->weight)].shape[1], lanes(head->x), 1);
      }
    }
  }
  /// The next panel's transfer, into the buffer whose product has finished.
  void ask() {
    if (asked_ == loads_.size()) return;
    dma_ = std::max({dma_, buffer_free_[asked_ % 2], alone_until_}) + loads_[asked_];
    there_[asked_++ % 2] = dma_;
  }

  /// Panels stream through two buffers. A block of rows of a panel takes as long as the slower of its tiles and the
  /// concurrent accesses of vector SRAM.
  void product(const Product& p) {
    const Panels shape = panels_of(p.n, p.k);
    const std::int64_t count = blocks(p.rows);
    const double operand_rows = std::min(static_cast<double>(a_.blen), std::floor(a_.tile_cycles));
    if (count < 2) flush();
    double stream = std::exchange(streams_, 0);
    const double all_blocks = static_cast<double>(p.matrices * shape.count * count);
    for (std::int64_t i = 0; i < p.matrices * shape.count; ++i) {
      const std::int64_t index = i / p.matrices;  // two matrices alternate slab by slab
      const std::int64_t lanes = shape.lanes(index);
      const auto columns = static_cast<double>(lanes / a_.blen);
      const double tiles = columns * static_cast<double>(shape.k_tiles);
      // With one port of matrix SRAM, arriving rows and the array alternate.
      const double arriving =
          d_.sram.matrix_ports > 1 ? 0 : static_cast<double>(lanes * shape.k_tiles) / static_cast<double>(count);
      const double array = tiles * a_.tile_cycles + arriving;
      const double own = tiles * operand_rows + static_cast<double>(lanes);
      const double issue = 2 * tiles;  // pointers of x and of the weights
      const bool last = i + 1 == p.matrices * shape.count;
      ask();
      double time = 0, block = 0;
      for (std::int64_t b = 0; b < count; ++b) {
        double shadow = 0;
        if (i == 0 && b == 0 && carry_ports_ > 0) {
          shadow = std::exchange(carry_ports_, 0);
        } else if (last && b > 0) {
          shadow = p.tail * static_cast<double>(a_.blen);
        } else if (stream > 0) {
          // Spread evenly, but a block gets no more rows than the array has cycles for.
          shadow = std::min(
              {stream, std::ceil(stream_rows_ / all_blocks) * stream_accesses_, std::max(array, stream_accesses_)});
          stream -= shadow;
        }
        if (p.matrices == 2 && index > 0 && i % 2 == 0)
          shadow += swiglu_kernel().accesses * static_cast<double>(a_.blen);
        block = std::max({array, issue, (own + shadow) / ports()});
        time += block;
        phase_.array += array;
        phase_.ports += own + shadow;
      }
      const double load = loads_[panel_], there = there_[panel_ % 2];
      phase_.memory += load;
      // A panel is stored as [tile of K][output]: its first column of blocks needs the last tile's first rows, and the
      // last one the last rows. Later blocks of rows find all of it loaded.
      const double per_block = time / static_cast<double>(count);
      now_ = std::max({now_ + time, there - load / static_cast<double>(shape.k_tiles) + time,
                       there + time - per_block + per_block / columns});
      buffer_free_[panel_++ % 2] = now_;
    }
    leftover_ = stream;
    // The front end has dispatched everything in the array's queue, tiles and write-outs.
    const auto k_tiles = static_cast<double>(shape.k_tiles);
    ahead_ = static_cast<double>(load_.queue) * k_tiles / (k_tiles + 1) * a_.tile_cycles;
    if (p.tail > 0) {
      if (count > 1) {
        carry_ports_ = p.tail * static_cast<double>(a_.blen);
      } else {
        tail_alone_ = result_delay(a_) + p.tail_alone;
      }
    }
  }
  /// Work that did not fit into any product's shadow.
  void flush() {
    now_ += (std::exchange(carry_ports_, 0) + std::exchange(leftover_, 0)) / ports() + std::exchange(tail_alone_, 0);
    alone_until_ = now_;
  }
  /// Waits until the product's last results are there.
  void settle() {
    flush();
    now_ += std::exchange(streams_, 0) / ports();
    now_ += result_delay(a_);
  }

  std::int64_t weight_buffer_rows() const {
    const std::int64_t unit = std::max(a_.blen, a_.hlen);
    return d_.sram.matrix_tiles * a_.mlen * 3 / 8 / unit * unit;
  }

  /// Constants, the first panel and the embedded rows come from memory in sequence.
  void start() {
    double bytes = 0;
    for (const Op& any : graph_.ops) {
      if (const auto* o = std::get_if<op::RmsNorm>(&any)) bytes += 2.0 * static_cast<double>(a_.vlen) * slabs(o->x);
      if (const auto* o = std::get_if<op::Rope>(&any); o != nullptr && !roped_) {
        const double tables = o->dims == a_.hlen || wide(o->head_dim) ? 2 : 3;
        bytes += 2.0 * tables * static_cast<double>(rows() * a_.vlen);
        roped_ = true;
      }
    }
    dma_ = bytes / bytes_per_cycle_;
    ask();
  }

  bool lower(std::size_t i, std::size_t count) {
    if (shapes_.gated(i)) {
      const auto& gate = *at<op::Linear>(i);
      const double accesses = swiglu_kernel().accesses;
      product({.rows = value(gate.x).rows,
               .n = lanes(gate.out),
               .k = lanes(gate.x),
               .matrices = 2,
               .tail = accesses,
               .tail_alone =
                   row_cycles(d_, swiglu_kernel(), static_cast<double>(round_up(value(gate.x).rows, a_.blen)), 1, 1)});
      return true;
    }
    if (const auto* o = at<op::Linear>(i)) return linear(*o, i, count);
    if (const auto* o = at<op::Embed>(i)) return embed(*o);
    if (const auto* o = at<op::RmsNorm>(i); o != nullptr && o->groups > 1) return norm_by_head(*o);
    if (const auto* o = at<op::RmsNorm>(i)) {
      settle();
      now_ += row_cycles(d_, norm_kernel(t_), static_cast<double>(value(o->x).rows), slabs(o->x), 4);
      phase_.ports = norm_kernel(t_).accesses * static_cast<double>(value(o->x).rows) * slabs(o->x);
      return true;
    }
    if (const auto* o = at<op::Rope>(i)) {
      settle();
      const RowKernel k = wide(o->head_dim) ? wide_rope_kernel() : rope_kernel();
      now_ += row_cycles(d_, k, static_cast<double>(rows()), slabs(o->x), 2);
      return true;
    }
    if (const auto* o = at<op::Attention>(i)) return attention(*o);
    if (const auto* o = at<op::Add>(i)) {
      settle();
      now_ += row_cycles(d_, add_kernel(), static_cast<double>(value(o->out).rows), slabs(o->out), 1);
      return true;
    }
    if (const auto* o = at<op::GatherScored>(i)) {
      settle();
      if (value(o->out).rows == value(o->x).rows) return true;
      now_ += 2.0 * static_cast<double>(value(o->out).rows) * slabs(o->out);
      return true;
    }
    if (const auto* o = at<op::ScoreHead>(i)) return head(*o);
    return false;
  }

  /// All heads of a row at once, four rows interleaved for the sum, then two by two for the factor and the products: a
  /// pair takes the latencies of its chain, and a cycle in which the second product waits for the pipe.
  bool norm_by_head(const op::RmsNorm& o) {
    if (wide(value(o.x).width / o.groups)) return false;
    settle();
    constexpr double kRows = 4, kAccesses = 12, kSquares = 3;  // at once; accesses per row, and those for the squares
    const double pair = static_cast<double>(3 * t_.vector_mul + t_.vector_add + 2 * t_.vector_reci) + 2;
    const double sums = std::max(static_cast<double>(t_.vector_mul + t_.vector_sum), kRows * kSquares / ports());
    const double four = std::max(sums + 2 * pair, kRows * kAccesses / ports());
    phase_.ports = kAccesses * static_cast<double>(value(o.x).rows) * slabs(o.x);
    now_ += four / kRows * static_cast<double>(value(o.x).rows) * slabs(o.x);
    return true;
  }

  bool embed(const op::Embed& o) {
    const double bytes = 2.0 * static_cast<double>(value(o.out).rows * a_.vlen) * slabs(o.out);
    phase_.memory = bytes / bytes_per_cycle_;
    now_ = dma_ += phase_.memory;
    return true;
  }

  bool linear(const op::Linear& o, std::size_t i, std::size_t count) {
    Product p{.rows = value(o.x).rows, .n = lanes(o.out), .k = lanes(o.x)};
    const double padded = static_cast<double>(round_up(p.rows, a_.blen));
    if (count > 1) {
      const RowKernel k = count == 3 ? residual_norm_kernel(t_) : add_kernel();
      const double n = slabs(at<op::Add>(i + 1)->out);
      p.tail = k.accesses * n;
      p.tail_alone = row_cycles(d_, k, padded, n, 2);
    }
    product(p);
    if (o.bias != kNoId && graph_.weights[static_cast<std::size_t>(o.bias)].required) {
      settle();
      now_ += row_cycles(d_, add_kernel(), static_cast<double>(p.rows), slabs(o.out), 1);
    }
    // RoPE of the result overlaps with the next products.
    for (std::size_t j = i + 1; j < graph_.ops.size(); ++j)
      if (const auto* r = at<op::Rope>(j); r != nullptr && r->x == o.out && !wide(r->head_dim) && r->dims == a_.hlen) {
        done_[j] = true;
        stream_accesses_ = rope_kernel().accesses * slabs(o.out);
        stream_rows_ = static_cast<double>(rows());
        streams_ = leftover_ + stream_rows_ * stream_accesses_;
        leftover_ = 0;
      }
    return true;
  }

  /// K and V come from memory after V's stores, sequence by sequence; the work overlaps with them.
  bool attention(const op::Attention& o) {
    settle();
    const AttentionWork work = attention_work(d_, o,
                                              {.rows = ceil_div(rows(), load_.sequences),
                                               .keys = load_.keys,
                                               .query_slabs = slabs(o.q),
                                               .weight_buffer_rows = weight_buffer_rows()});
    const auto sequences = static_cast<double>(load_.sequences);
    phase_.array += work.array * sequences;
    phase_.ports += work.accesses * sequences;
    const double keys_bytes = work.key_lanes * sequences * kv_bytes_ / bytes_per_cycle_;
    phase_.memory = 2 * keys_bytes * work.key_loads + kv_stored_;
    // Before everything: K of the first two jobs, V's stores, V of the first; a job is what one buffer of matrix SRAM
    // holds.
    const double begin = std::max(now_, dma_);
    const double lead = 3 * keys_bytes / (sequences * work.jobs) + std::exchange(kv_stored_, 0);
    const double moved = begin + phase_.memory;
    now_ = std::max(begin + lead + work.cycles * sequences, moved + work.unit_cycles) + result_delay(a_);
    dma_ = moved;
    alone_until_ = now_;
    return true;
  }

  bool head(const op::ScoreHead& o) {
    const std::int64_t vocab = graph_.weights[static_cast<std::size_t>(o.weight)].shape[1];
    const std::int64_t scored = value(o.x).rows;
    if (scored == 0) return true;
    product({.rows = scored, .n = vocab, .k = lanes(o.x)});
    const double bytes =
        load_.logits ? load_.logit_bytes * static_cast<double>(round_up(scored, a_.blen) * round_up(vocab, a_.vlen))
                     : 0;
    const double weights = phase_.memory;
    phase_.memory += bytes / bytes_per_cycle_;
    // Logits share the memory with the weights; the last slab's are stored after everything else.
    const double slab = bytes / bytes_per_cycle_ / static_cast<double>(ceil_div(vocab, a_.vlen));
    const double begin = now_ - std::max(phase_.array, weights);
    now_ = std::max(now_, begin + phase_.memory) + result_delay(a_) + slab;
    return true;
  }

  const Device& d_;
  const Device::Array& a_;
  const Device::Latency& t_;
  const Graph& graph_;
  const ScheduleLoad& load_;
  ScheduleShapes shapes_;
  std::vector<bool> done_;
  double weight_bytes_ = 0, kv_bytes_ = 0, bytes_per_cycle_ = 0;
  double now_ = 0;             ///< time at which the array and the vector unit have finished all earlier work
  double dma_ = 0;             ///< the same for the load engine
  std::vector<double> loads_;  ///< cycles of memory of all panels
  std::size_t asked_ = 0, panel_ = 0;
  double buffer_free_[2] = {0, 0}, there_[2] = {0, 0};
  bool roped_ = false;
  double ahead_ = 0;        ///< lead of the front end over the array at the end of a phase
  double alone_until_ = 0;  ///< until then the front end waited for the vector unit's separate work
  double tail_alone_ = 0;   ///< rows of the previous product, if it has only one block
  double carry_ports_ = 0, streams_ = 0, leftover_ = 0, stream_rows_ = 0, stream_accesses_ = 0;
  double kv_stored_ = 0;
  ScheduledPhase phase_;
  StepSchedule result_;
};

}  // namespace

Expected<StepSchedule> schedule_step(const Device& device, const Graph& graph, const ScheduleLoad& load) {
  return Scheduler(device, graph, load).run();
}

}  // namespace dllm::npu
