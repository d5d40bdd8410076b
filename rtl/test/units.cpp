#include "test/units.h"

#include <Vunits8.h>
#include <fmt/format.h>
#ifndef DLLM_RTL_SMALL
#include <Vunits64.h>
#endif

#include <algorithm>
#include <bit>
#include <deque>
#include <memory>

#include "test/golden.h"
#include "test/vectors.h"

namespace dllm::rtl {
namespace {

using npu::Bf16;
using npu::Field;
using npu::Op;

template <int vlen>
struct ModelOf;
template <>
struct ModelOf<8> {
  using Type = Vunits8;
};
template <>
struct ModelOf<64> {
#ifdef DLLM_RTL_SMALL
  using Type = Vunits8;  // too few lanes: its tests fail
#else
  using Type = Vunits64;
#endif
};

/// A model after reset, and its clock.
template <int vlen>
class Bench {
 public:
  Bench() {
    model_.rst_ni = 0;
    model_.valid_i = 0;
    model_.top_start_i = 0;
    tick();
    model_.rst_ni = 1;
    tick();
  }
  auto& operator*() { return model_; }
  auto* operator->() { return &model_; }
  void tick() {
    model_.clk_i = 1;
    model_.eval();
    model_.clk_i = 0;
    model_.eval();
    ++cycle;
  }
  void set_row(const std::vector<Bf16>& row) {
    for (std::size_t i = 0; i < row.size(); i += 2)
      model_.row_i[i / 2] = static_cast<std::uint32_t>(row[i + 1]) << 16 | row[i];
  }
  void set_active(const std::vector<bool>& active) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < active.size(); ++i) bits |= std::uint64_t{active[i]} << i;
    model_.active_i = static_cast<std::remove_cvref_t<decltype(model_.active_i)>>(bits);
  }
  int cycle = 0;

 private:
  typename ModelOf<vlen>::Type model_;
};

void count(UnitResult& result, bool right, int cycles, const auto& describe) {
  if (result.vectors == 0) result.cycles = cycles;
  if (result.cycles != cycles) result.cycles = -1;
  ++result.vectors;
  if (right) return;
  if (result.wrong++ == 0) result.first = describe();
}

/// Lanes in sections of the machine's mask register.
std::vector<bool> sections(Vectors& random, Golden& golden) {
  const auto lanes = static_cast<std::size_t>(golden.state().config.vlen);
  const auto section = static_cast<std::size_t>(golden.state().config.hlen);
  const std::vector<bool> mask = random.lanes(static_cast<int>(lanes / section));
  std::vector<bool> active(lanes);
  golden.state().v_mask = 0;
  for (std::size_t i = 0; i < lanes; ++i) {
    active[i] = mask[i / section];
    golden.state().v_mask |= static_cast<std::uint32_t>(active[i]) << (i / section);
  }
  return active;
}

/// The expected result of a row in flight.
struct Due {
  int entered = 0;
  std::uint32_t running = 0;
  bool found = false, greater = false;
  std::uint32_t value = 0, lane = 0;
};

bool all_of(const std::vector<bool>& lanes) { return std::ranges::find(lanes, false) == lanes.end(); }
bool any_of(const std::vector<bool>& lanes) { return std::ranges::find(lanes, true) != lanes.end(); }

/// V_RED_MAX and V_RED_MAX_IDX. Only the former has masks, only the latter lanes.
struct MaximumUnit {
  static constexpr std::uint32_t kAnyLane = ~0u;

  static Due expect(Golden& golden, Vectors& random, const std::vector<bool>& active) {
    constexpr std::uint32_t kIndex = 5, kBase = 6;
    npu::MachineState& state = golden.state();
    Due due;
    // The SRAM holds the bits of NaNs unchanged.
    state.set_fp(1, random.one_in(2) ? Bf16{0xff80} : random.any());
    due.running = state.fp(1);
    if (all_of(active)) {
      state.gp[kBase] = 1000;
      state.gp[kIndex] = 7;
      golden.run(Op::V_RED_MAX_IDX, {{Field::kRd, kIndex}, {Field::kRs2, kBase}, {Field::kRs3, 1}});
      due.found = true;
      due.greater = state.gp[kIndex] != 7;
      due.lane = state.gp[kIndex] - 1000;
    } else {
      golden.run(Op::V_RED_MAX, {{Field::kRd, 1}, {Field::kRs3, 1}});
      due.found = any_of(active);
      due.greater = npu::order_key(state.fp(1)) > npu::order_key(static_cast<Bf16>(due.running));
      due.lane = kAnyLane;
    }
    due.value = state.fp(1);
    return due;
  }
  static bool valid(const auto& model) { return model.max_valid_o; }
  static void set_running(auto& model, std::uint32_t value) { model.max_running_i = static_cast<std::uint16_t>(value); }
  static bool right(const auto& model, const Due& want) {
    // The register gets a quiet NaN; the unit outputs the row's own bits.
    const Bf16 value = f32_to_bf16(bf16_to_f32(model.max_value_o));
    return model.max_found_o == want.found && model.max_greater_o == want.greater &&
           (!want.greater || (value == want.value && (want.lane == kAnyLane || model.max_lane_o == want.lane)));
  }
  static std::string describe(const auto& model, const Due& want) {
    return fmt::format("running {:04x}: found {} greater {} value {:04x} lane {}, not {} {} {:04x} {}", want.running,
                       model.max_found_o, model.max_greater_o, model.max_value_o, model.max_lane_o, want.found,
                       want.greater, want.value, want.lane);
  }
};

/// V_RED_SUM.
struct SumUnit {
  static Due expect(Golden& golden, Vectors& random, const std::vector<bool>& active) {
    // Registers hold any FP32 after a sum, and BF16 after a load.
    const float start =
        random.one_in(2) ? bf16_to_f32(random.any()) : std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    golden.state().fp_accumulator[1] = start;
    golden.run(Op::V_RED_SUM, {{Field::kRd, 1}, {Field::kRs3, all_of(active) ? 0u : 1u}});
    Due due;
    due.running = std::bit_cast<std::uint32_t>(start);
    due.value = std::bit_cast<std::uint32_t>(static_cast<float>(golden.state().fp_accumulator[1]));
    return due;
  }
  static bool valid(const auto& model) { return model.sum_valid_o; }
  static void set_running(auto& model, std::uint32_t value) { model.sum_running_i = value; }
  static bool right(const auto& model, const Due& want) { return model.sum_o == want.value; }
  static std::string describe(const auto& model, const Due& want) {
    return fmt::format("running {:08x}: {:08x}, not {:08x}", want.running, model.sum_o, want.value);
  }
};

/// Feeds rows into a unit that accepts one per cycle, with gaps; each result comes after the same number of cycles.
template <class Unit, int vlen>
UnitResult stream_rows(std::uint64_t vectors, std::uint64_t seed) {
  const auto bench = std::make_unique<Bench<vlen>>();
  auto& model = **bench;
  Golden golden(vlen);
  Vectors random(seed);
  UnitResult result;
  std::deque<Due> due;
  for (std::uint64_t sent = 0; result.vectors < vectors;) {
    model.valid_i = sent < vectors && !random.one_in(8);
    if (model.valid_i) {
      const std::vector<Bf16> row = random.row(vlen);
      const std::vector<bool> active = random.one_in(2) ? std::vector<bool>(vlen, true) : sections(random, golden);
      std::copy(row.begin(), row.end(), golden.row(0));
      due.push_back(Unit::expect(golden, random, active));
      due.back().entered = bench->cycle;
      bench->set_row(row);
      bench->set_active(active);
      ++sent;
    }
    model.eval();
    if (Unit::valid(model)) {
      const Due want = due.front();
      due.pop_front();
      Unit::set_running(model, want.running);
      model.eval();
      count(result, Unit::right(model, want), bench->cycle - want.entered + 1,
            [&] { return Unit::describe(model, want); });
    }
    bench->tick();
  }
  return result;
}

template <int vlen>
UnitResult top_mask(std::uint64_t vectors) {
  const auto bench = std::make_unique<Bench<vlen>>();
  auto& model = **bench;
  Golden golden(vlen);
  Vectors random(3);
  UnitResult result;
  for (std::uint64_t i = 0; i < vectors; ++i) {
    const std::vector<Bf16> row = random.row(vlen);
    const std::vector<bool> active = random.lanes(vlen);
    const std::uint32_t length = random.one_in(2) ? vlen : 1 + random.below(vlen);
    const std::uint32_t k = random.one_in(8) ? static_cast<std::uint32_t>(random.bits()) : random.below(vlen + 2);
    std::copy(row.begin(), row.end(), golden.row(0));
    for (std::size_t lane = 0; lane < active.size(); ++lane) golden.row(1)[lane] = active[lane] ? npu::kBf16One : 0;
    npu::MachineState& state = golden.state();
    state.gp = {};
    state.gp[1] = vlen;      // mask
    state.gp[2] = 2 * vlen;  // target
    state.gp[3] = k;
    state.gp[4] = length;
    golden.run(Op::V_TOPK_MASK,
               {{Field::kRd, 2}, {Field::kRs1, 0}, {Field::kRs2, 1}, {Field::kRs3, 3}, {Field::kFunct, 4}});
    bench->set_row(row);
    bench->set_active(active);
    model.top_length_i = static_cast<std::uint8_t>(length);
    model.top_k_i = k;
    model.top_start_i = 1;
    const int start = bench->cycle;
    for (model.eval(); !model.top_done_o && bench->cycle < start + 2 * vlen; model.eval()) {
      bench->tick();
      model.top_start_i = 0;
    }
    std::uint64_t want = 0;
    for (std::size_t lane = 0; lane < active.size(); ++lane)
      want |= std::uint64_t{golden.row(2)[lane] == npu::kBf16One} << lane;
    // As many cycles as lanes: count() compares the difference.
    count(result, model.top_mask_o == want, bench->cycle - start + 1 - static_cast<int>(length), [&] {
      return fmt::format("k {} of {} lanes: {:x}, not {:x}", k, length, static_cast<std::uint64_t>(model.top_mask_o),
                         want);
    });
    bench->tick();
    model.top_start_i = 0;
  }
  return result;
}

/// A function without a clock: `stimulus` returns the two arguments of vector i.
UnitResult function(std::uint64_t vectors, auto stimulus, const auto& expected, const auto& found) {
  const auto bench = std::make_unique<Bench<8>>();
  UnitResult result;
  for (std::uint64_t i = 0; i < vectors; ++i) {
    const auto [a, b] = stimulus(i);
    (*bench)->a_i = a;
    (*bench)->b_i = b;
    (*bench)->eval();
    const Bf16 want = expected(a, b), got = found(**bench);
    count(result, got == want, 1,
          [&, a = a, b = b] { return fmt::format("({:04x}, {:04x}): {:04x}, not {:04x}", a, b, got, want); });
  }
  return result;
}

std::pair<Bf16, Bf16> argument(std::uint64_t i) { return {static_cast<Bf16>(i), Bf16{0}}; }

/// Pairs of arbitrary bits, and pairs of similar magnitude, where rounding and cancellation occur.
auto pairs(std::uint64_t seed) {
  return [random = Vectors(seed)](std::uint64_t) mutable -> std::pair<Bf16, Bf16> {
    const Bf16 a = random.any();
    if (random.one_in(2)) return {a, random.any()};
    return {a, static_cast<Bf16>((a ^ (random.bits() & 0x8000u)) + (random.below(9) << 7) + random.below(256))};
  };
}

}  // namespace

UnitResult check_max_index(int vlen, std::uint64_t vectors) {
  return vlen == 8 ? stream_rows<MaximumUnit, 8>(vectors, 1) : stream_rows<MaximumUnit, 64>(vectors, 1);
}
UnitResult check_row_sum(int vlen, std::uint64_t vectors) {
  return vlen == 8 ? stream_rows<SumUnit, 8>(vectors, 2) : stream_rows<SumUnit, 64>(vectors, 2);
}
UnitResult check_top_mask(int vlen, std::uint64_t vectors) {
  return vlen == 8 ? top_mask<8>(vectors) : top_mask<64>(vectors);
}
UnitResult check_exp() {
  return function(65536, argument, [](Bf16 a, Bf16) { return npu::bf16_exp(a); }, [](auto& m) { return m.exp_o; });
}
UnitResult check_reciprocal() {
  return function(
      65536, argument, [](Bf16 a, Bf16) { return npu::bf16_reciprocal(a); }, [](auto& m) { return m.reciprocal_o; });
}
UnitResult check_sqrt() {
  return function(65536, argument, [](Bf16 a, Bf16) { return npu::bf16_sqrt(a); }, [](auto& m) { return m.sqrt_o; });
}
UnitResult check_wide_multiply(std::uint64_t vectors) {
  const auto bench = std::make_unique<Bench<8>>();
  auto& model = **bench;
  Vectors random(6);
  UnitResult result;
  for (std::uint64_t i = 0; i < vectors; ++i) {
    // Any bits, or a product near the subnormals; the other factor sometimes a power of two or a BF16.
    const auto a = static_cast<std::uint32_t>(random.bits());
    auto b = static_cast<std::uint32_t>(random.bits());
    if (random.one_in(2)) b = (b & 0x807fffffu) | ((200u - (a >> 23 & 0xff) + random.below(64)) & 0xff) << 23;
    if (random.one_in(4)) b &= random.one_in(2) ? 0xff800000u : 0xffff0000u;
    model.wide_a_i = a;
    model.wide_b_i = b;
    model.eval();
    const float product = std::bit_cast<float>(a) * std::bit_cast<float>(b);
    const std::uint32_t want = product != product ? 0x7fc00000u : std::bit_cast<std::uint32_t>(product);
    const std::uint32_t got = model.wide_product_o;
    count(result, got == want, 1, [&] { return fmt::format("{:08x} * {:08x}: {:08x}, not {:08x}", a, b, got, want); });
  }
  return result;
}
UnitResult check_add(std::uint64_t vectors) {
  return function(
      vectors, pairs(4), [](Bf16 a, Bf16 b) { return npu::bf16_add(a, b); }, [](auto& m) { return m.add_o; });
}
UnitResult check_multiply(std::uint64_t vectors) {
  return function(
      vectors, pairs(5), [](Bf16 a, Bf16 b) { return npu::bf16_mul(a, b); }, [](auto& m) { return m.multiply_o; });
}

}  // namespace dllm::rtl
