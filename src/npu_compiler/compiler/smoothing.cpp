#include "npu_compiler/compiler/smoothing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/channel_statistics.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kFactorAddress = 4;
constexpr std::int64_t kTogether = 8;  // rows, to hide latency

/// The attention that reads what `o` stores.
const op::Attention* reader_of(const Graph& graph, std::int32_t layer) {
  for (const dllm::Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Attention>(&any); o != nullptr && o->layer == layer) return o;
  return nullptr;
}

/// A row of factors in the lanes of K <- in those of the queries: every slot of a query head gets those of its KV head.
class Spreader {
 public:
  Spreader(StepContext& c, const LaneMap& kv, const LaneMap& q) : c_(c), kv_(kv), q_(q) {}

  Expected<void> run(const Buffer& from, const Buffer& to) {
    if (q_.slots == 1) {  // a slot each, in the same order
      for (std::int64_t slab = 0; slab < to.rows; ++slab) copy(to.row + slab, from.row + slab);
      return {};
    }
    DLLM_TRY(const Buffer zero, c_.constant_row(std::vector<Bf16>(to_size(c_.vlen()))));
    DLLM_TRY(const Buffer moved, c_.acquire(1, "a row of factors"));
    for (std::int64_t slab = 0; slab < to.rows; ++slab) {
      copy(to.row + slab, zero.row);
      for (const auto& [move, slots] : moves(slab)) DLLM_CHECK_OK(add(from, to.row + slab, moved.row, move, slots));
    }
    c_.release(moved);
    return {};
  }

 private:
  struct Move {
    std::int64_t slab = 0, lanes = 0;  ///< of K; rotation of its row
    friend auto operator<=>(const Move&, const Move&) = default;
  };
  std::map<Move, std::vector<std::int64_t>> moves(std::int64_t slab) const {
    std::map<Move, std::vector<std::int64_t>> result;
    const std::int64_t vlen = c_.vlen(), sections = vlen / q_.hlen;
    for (std::int64_t p = 0; p < sections && slab * sections + p < q_.slot_count(); ++p) {
      const std::int64_t slot = slab * sections + p, from = slot / q_.slots * kv_.hlen;
      if (slot % q_.slots >= q_.group) continue;
      result[{from / vlen, (p * q_.hlen - from % vlen + vlen) % vlen}].push_back(p);
    }
    return result;
  }

  Expected<void> add(const Buffer& from, std::int64_t to, std::int64_t moved, const Move& move,
                     const std::vector<std::int64_t>& slots) {
    std::vector<Bf16> mask(to_size(c_.vlen()));
    for (const std::int64_t p : slots) std::fill_n(mask.begin() + p * q_.hlen, q_.hlen, c_.one());
    DLLM_TRY(const Buffer kept, c_.constant_row(mask));
    if (c_.counts) return {};
    Emitter& e = c_.e;
    const Gp source = e.reg(c_.address(from.row + move.slab)), t = e.reg(c_.address(moved)),
             out = e.reg(c_.address(to)), keep = e.reg(c_.address(kept.row)),
             lanes = e.reg(static_cast<std::uint32_t>(move.lanes));
    e.shift(t, source, lanes, 1);
    e.vector_vv(Op::V_MUL_VV, t, t, keep);
    e.vector_vv(Op::V_ADD_VV, out, out, t);
    return {};
  }
  void copy(std::int64_t to, std::int64_t from) {
    if (c_.counts) return;
    const Gp target = c_.e.reg(c_.address(to)), source = c_.e.reg(c_.address(from));
    c_.e.shift(target, source, Gp(), 1);
  }

  StepContext& c_;
  const LaneMap &kv_, &q_;
};

/// What a cache keeps, in this order.
KvFactors rows_of(const Buffer& all, std::int64_t kv_slabs, std::int64_t q_slabs) {
  KvFactors f{.rows = all,
              .k_centre = {},
              .k_inverse = {},
              .v_centre = {},
              .v_inverse = {},
              .query_factor = {},
              .output_factor = {},
              .output_centre = {}};
  std::int64_t at = all.row;
  for (Buffer* b : {&f.k_centre, &f.k_inverse, &f.v_centre, &f.v_inverse}) *b = {at, kv_slabs}, at += kv_slabs;
  for (Buffer* b : {&f.query_factor, &f.output_factor, &f.output_centre}) *b = {at, q_slabs}, at += q_slabs;
  return f;
}

class Smoother {
 public:
  Smoother(StepContext& c, const op::StoreKv& o)
      : c_(c),
        o_(o),
        smoothing_(c.machine.smoothing),
        q_(c.map(reader_of(c.graph, o.layer)->q)),
        kv_slabs_(c.place(o.k).slabs),
        q_slabs_(c.layout.slabs(q_)) {}

  /// Factors of all sequences first: transfers from the cache do not wait for each other.
  Expected<void> prepare() {
    const std::int64_t each = KvFactors::count(kv_slabs_, q_slabs_);
    // One place for all layers: holes that each would leave may be too small for what follows.
    const std::int64_t all = each * c_.spec.alike * static_cast<std::int64_t>(c_.spec.sequences.size());
    if (c_.factor_rows.rows < all) {
      DLLM_TRY(c_.factor_rows, c_.acquire_forever(all, "factors of K and V"));
    }
    c_.kv_factors.clear();
    std::int64_t first = 0;
    for (const SequenceSpec& s : c_.spec.sequences) {
      const auto at = static_cast<std::int64_t>(c_.kv_factors.size()) * each;
      c_.kv_factors.push_back(rows_of({c_.factor_rows.row + at, each}, kv_slabs_, q_slabs_));
      const auto count = static_cast<std::int64_t>(s.positions.size());
      if (s.takes_statistics) DLLM_CHECK_OK(take(c_.kv_factors.back(), first, count));
      DLLM_CHECK_OK(move(s, s.takes_statistics));
      first += count;
    }
    return {};
  }

  void smooth(bool value) {
    if (!(value ? values() : keys())) return;
    std::int64_t first = 0;
    for (std::size_t s = 0; s < c_.spec.sequences.size(); ++s) {
      const KvFactors& f = c_.kv_factors[s];
      const auto count = static_cast<std::int64_t>(c_.spec.sequences[s].positions.size());
      smooth(part(value ? o_.v : o_.k, first), count, value ? f.v_centre : f.k_centre,
             value ? f.v_inverse : f.k_inverse);
      first += count;
    }
  }

 private:
  bool keys() const { return smoothing_.keys != SmoothingCentre::kNone; }
  bool values() const { return smoothing_.values != SmoothingCentre::kNone; }
  ValuePlace part(ValueId id, std::int64_t first) const {
    ValuePlace x = c_.place(id);
    x.row += first;
    return x;
  }

  Expected<void> take(const KvFactors& f, std::int64_t first, std::int64_t count) {
    DLLM_TRY(const Buffer factor, c_.acquire(kv_slabs_, "factors of channels"));
    Spreader spread(c_, c_.map(o_.k), q_);
    if (keys()) {
      DLLM_CHECK_OK(
          channel_statistics(c_, smoothing_.keys, part(o_.k, first), count, {f.k_centre, factor, f.k_inverse}));
      DLLM_CHECK_OK(spread.run(factor, f.query_factor));
    }
    if (values()) {
      DLLM_CHECK_OK(
          channel_statistics(c_, smoothing_.values, part(o_.v, first), count, {f.v_centre, factor, f.v_inverse}));
      DLLM_CHECK_OK(spread.run(factor, f.output_factor));
      DLLM_CHECK_OK(spread.run(f.v_centre, f.output_centre));
    }
    c_.release(factor);
    return {};
  }

  /// Between the cache and vector SRAM.
  Expected<void> move(const SequenceSpec& s, bool store) {
    DLLM_TRY(const KvPlace place, c_.kv_place(s.capacity, o_.layer));
    if (c_.counts) return {};
    Emitter& e = c_.e;
    const Buffer& rows = c_.kv_factors.back().rows;
    e.set_address(kFactorAddress, s.cache + place.factors);
    e.set_csr(Csr::kFormatActivation, mx_format_number(c_.machine.lane_format()));
    e.set_csr(store ? Csr::kStoreVRows : Csr::kPrefetchVRows, static_cast<std::uint32_t>(rows.rows));
    const Gp at = e.reg(c_.address(rows.row));
    e.transfer(store ? Op::H_STORE_V : Op::H_PREFETCH_V, at, Gp(), kFactorAddress, false, 0, store ? kKeyStoreTag : 0);
    return {};
  }

  void smooth(const ValuePlace& x, std::int64_t count, const Buffer& centre, const Buffer& inverse) {
    const Gp c = c_.e.reg(), i = c_.e.reg();
    for (std::int64_t slab = 0; slab < x.slabs; ++slab) {
      c_.e.load(c, c_.address(centre.row + slab));
      c_.e.load(i, c_.address(inverse.row + slab));
      interleave_rows(c_, count, kTogether, std::array{x.row + slab * x.stride},
                      [&](std::span<const std::vector<Gp>> rows) {
                        for (const auto& row : rows) c_.e.vector_vv(Op::V_SUB_VV, row[0], row[0], c);
                        for (const auto& row : rows) c_.e.vector_vv(Op::V_MUL_VV, row[0], row[0], i);
                      });
    }
  }

  StepContext& c_;
  const op::StoreKv& o_;
  const Smoothing& smoothing_;
  const LaneMap& q_;
  std::int64_t kv_slabs_, q_slabs_;
};

}  // namespace

Expected<void> store_smoothed(StepContext& c, const op::StoreKv& o) {
  if (!c.machine.smoothing.by_roots())
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the vector unit has no power {}, only square roots", c.machine.smoothing.alpha),
                 "npu compiler, numerics.smooth_alpha", "0, 0.25, 0.5, 0.75 or 1"};
  if (const op::Attention* reader = reader_of(c.graph, o.layer); c.map(reader->q).hlen > c.machine.hlen)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("heads of {} lanes cannot be smoothed on a device with HLEN {}", c.map(reader->q).hlen,
                             c.machine.hlen),
                 "npu compiler, numerics.smooth_keys and smooth_values",
                 "set both to none, or a device with longer heads"};
  Smoother smoother(c, o);
  DLLM_CHECK_OK(smoother.prepare());
  if (c.counts) return {};
  smoother.smooth(false);
  DLLM_CHECK_OK(store_rows(c, o, false));
  smoother.smooth(true);
  if (!c.overlap) return store_rows(c, o, true);
  c.values_unstored = &o;
  return {};
}

void scale_queries(StepContext& c, const op::Attention& o) {
  if (c.machine.smoothing.keys == SmoothingCentre::kNone) return;
  ValuePlace q = c.place(o.q);
  for (std::size_t s = 0; s < c.spec.sequences.size(); ++s) {
    const auto count = static_cast<std::int64_t>(c.spec.sequences[s].positions.size());
    for (std::int64_t slab = 0; slab < q.slabs; ++slab) {
      const Gp factor = c.e.reg(c.address(c.kv_factors[s].query_factor.row + slab));
      interleave_rows(c, count, kTogether, std::array{q.row + slab * q.stride},
                      [&](std::span<const std::vector<Gp>> rows) {
                        for (const auto& row : rows) c.e.vector_vv(Op::V_MUL_VV, row[0], row[0], factor);
                      });
    }
    q.row += count;
  }
}

Expected<void> load_ones(StepContext& c) {
  if (c.ones_loaded) return {};
  const MxFormat& format = c.machine.matrix_kv;
  const auto count = to_size(c.machine.hlen * c.machine.mlen);
  if (c.counts) {
    c.ones_loaded = true;
    const Expected<std::uint64_t> at = c.hbm_area(format.element_bytes(count) + format.scale_bytes(count), "ones");
    return at ? Expected<void>{} : at.error();
  }
  std::vector<std::uint16_t> codes(count);
  std::vector<std::uint8_t> scales(format.scale_bytes(count));
  mx_quantize(format, std::vector<float>(count, 1.0f).data(), count, codes.data(), scales.data());
  const std::size_t elements = format.element_bytes(count);
  std::vector<std::byte> bytes(elements + scales.size());
  mx_pack(format.bits(), codes.data(), count, bytes.data());
  std::ranges::copy(std::as_bytes(std::span(scales)), bytes.begin() + static_cast<std::ptrdiff_t>(elements));
  DLLM_TRY(const std::uint64_t at, c.hbm_area(bytes.size(), "ones"));
  c.result.constants.push_back({at, std::move(bytes)});
  c.load_matrix(c.layout.mram.ones, c.machine.hlen, at, elements);
  c.ones_loaded = true;
  return {};
}

}  // namespace dllm::npu
