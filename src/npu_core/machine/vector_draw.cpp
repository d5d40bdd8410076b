#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "npu_core/machine/vector_unit.h"

namespace dllm::npu {
namespace {

/// What all lanes of an instruction share.
struct DrawSettings {
  double temperature = 1;
  std::uint32_t precision = 0;  ///< draw_precision
  float scale = 1;              ///< 1 / temperature in that precision
};

/// The logit's key in the instruction's precision.
double key_of(const DrawSettings& draw, LaneFormat lanes, Bf16 logit, double noise) {
  const float z = lane_to_f32(lanes, logit);
  if (draw.precision == 0) return static_cast<double>(z) / draw.temperature + noise;
  if (draw.precision == 1) return static_cast<double>(z * draw.scale + static_cast<float>(noise));
  const float scaled = lane_to_f32(lanes, result_to_lane(lanes, z * draw.scale));
  const Bf16 sum = result_to_lane(lanes, scaled + lane_to_f32(lanes, f64_to_lane(lanes, noise)));
  return static_cast<double>(lane_to_f32(lanes, sum));
}

}  // namespace

bool draw(MachineState& state, const Instruction& instruction, const ResolvedAccesses& accesses, Trap& trap) {
  const LaneFormat lanes = state.config.lanes;
  DrawSettings settings;
  settings.temperature = std::bit_cast<double>(std::uint64_t{state.control(Csr::kDrawTemperatureHigh)} << 32 |
                                               state.control(Csr::kDrawTemperatureLow));
  settings.precision = state.control(Csr::kDrawPrecision);
  if (!(settings.temperature > 0 && std::isfinite(settings.temperature))) {
    trap = {fmt::format("V_RED_DRAW: draw_temperature {} is not a finite number above 0", settings.temperature),
            "set draw_temperature_low and draw_temperature_high"};
    return false;
  }
  const double inverse = 1 / settings.temperature;
  settings.scale =
      settings.precision == 2 ? lane_to_f32(lanes, f64_to_lane(lanes, inverse)) : static_cast<float>(inverse);
  const std::uint32_t stream = state.control(Csr::kDrawStream);
  const RngKey key{state.control(Csr::kDrawSeedLow) | std::uint64_t{state.control(Csr::kDrawSeedHigh)} << 32,
                   stream >> 2};
  const auto purpose = static_cast<RngPurpose>(stream & 3);
  const std::uint32_t step = state.control(Csr::kDrawStep), except = state.control(Csr::kDrawExcept),
                      end = state.control(Csr::kDrawTokens);
  const std::uint32_t first = state.gp[instruction.get(Field::kRs2)], position = state.gp[instruction.get(Field::kTag)];
  const std::uint32_t rs3 = instruction.get(Field::kRs3);
  const Bf16* row = state.vram.data() + accesses[0].base;
  double best = state.fp_accumulator[rs3];
  std::uint32_t winner = static_cast<std::uint32_t>(state.config.vlen);
  for (std::uint32_t lane = 0; lane < static_cast<std::uint32_t>(state.config.vlen); ++lane) {
    const std::uint32_t token = first + lane;
    if (token == except || token >= end) continue;
    const double candidate = key_of(settings, lanes, row[lane], gumbel(key, purpose, step, position, token));
    if (candidate > best) best = candidate, winner = lane;
  }
  if (winner == static_cast<std::uint32_t>(state.config.vlen)) return true;
  state.set_gp(instruction.get(Field::kRd), first + winner);
  state.set_fp(instruction.get(Field::kFunct), row[winner]);
  if (rs3 != 0) state.fp_accumulator[rs3] = best;
  return true;
}

}  // namespace dllm::npu
