#include "npu_core/sampling/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "base/rng.h"
#include "base/to_size.h"

namespace dllm::npu {
namespace {

float bf16(float value) { return bf16_to_f32(f32_to_bf16(value)); }

/// A position's logits with padding: the rest of a mixed block repeats the smallest logit, so that the block's scale
/// does not change; whole blocks hold the lowest value.
std::vector<float> padded(const SamplingKernel& kernel, const float* logits) {
  const std::size_t vocab = to_size(kernel.shape.vocab), block = to_size(kernel.machine.activation.block);
  std::vector<float> row(to_size(kernel.layout.padded_vocab), -1e30f);
  std::copy_n(logits, vocab, row.begin());
  const float least = *std::min_element(logits, logits + vocab);
  for (std::size_t i = vocab; i % block != 0; ++i) row[i] = least;
  return row;
}

void put(const MxFormat& format, const std::vector<float>& values, std::uint64_t first, std::uint64_t base,
         std::uint64_t scales, MachineState& state) {
  std::vector<std::uint16_t> codes(values.size());
  std::vector<std::uint8_t> exponents(format.scale_bytes(values.size()));
  mx_quantize(format, values.data(), values.size(), codes.data(), exponents.data());
  mx_pack(format.bits(), codes.data(), codes.size(), state.hbm.data() + base + format.element_bytes(first));
  if (!exponents.empty())
    std::memcpy(state.hbm.data() + base + scales + format.scale_bytes(first), exponents.data(), exponents.size());
}

/// The values after rounding to the vector SRAM's format.
std::vector<float> through(const MxFormat& format, const std::vector<float>& values) {
  std::vector<std::uint16_t> codes(values.size());
  std::vector<std::uint8_t> exponents(format.scale_bytes(values.size()));
  std::vector<float> result(values.size());
  mx_quantize(format, values.data(), values.size(), codes.data(), exponents.data());
  mx_dequantize(format, codes.data(), exponents.data(), values.size(), result.data());
  for (float& value : result) value = bf16(value);
  return result;
}

/// Adjacent pairs, level by level.
float tree_sum(std::vector<float> lanes) {
  for (; lanes.size() > 1; lanes.resize(lanes.size() / 2))
    for (std::size_t i = 0; i < lanes.size() / 2; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  return lanes[0];
}

float exponential(float value) {
  return bf16(static_cast<float>(std::exp(static_cast<double>(std::clamp(value, -88.0f, 88.0f)))));
}

/// The drawn token of a position, whose noise in FP64 is given by token.
std::uint32_t drawn(const SamplingShape& shape, const std::vector<float>& logits,
                    const std::function<double(std::uint32_t)>& noise, std::uint32_t except) {
  const double inverse = 1 / shape.temperature;
  std::uint32_t best = 0;
  double top = -std::numeric_limits<double>::infinity();
  for (std::uint32_t t = 0; t < static_cast<std::uint32_t>(shape.vocab); ++t) {
    if (t == except) continue;
    const float z = logits[t];
    const double g = noise(t);
    double key = static_cast<double>(z) / shape.temperature + g;
    if (shape.precision == DrawPrecision::kF32)
      key = static_cast<double>(z * static_cast<float>(inverse) + static_cast<float>(g));
    if (shape.precision == DrawPrecision::kBF16)
      key = static_cast<double>(bf16(bf16(z * bf16_to_f32(f64_to_bf16(inverse))) + bf16_to_f32(f64_to_bf16(g))));
    if (key > top) top = key, best = t;
  }
  return best;
}

/// A position's draw: its noise by token, null without one.
struct Draw {
  std::function<double(std::uint32_t)> noise;
  std::uint32_t except = 0xffffffffu;
};

/// Token and confidence of a position.
std::pair<std::uint32_t, std::uint16_t> reduce(const SamplingKernel& kernel, const std::vector<float>& logits,
                                               const Draw& draw) {
  const SamplingShape& shape = kernel.shape;
  const float factor = shape.draws() && shape.tempered ? bf16_to_f32(f64_to_bf16(1 / shape.temperature)) : 1.0f;
  const auto power = [factor](float distance) { return exponential(bf16(bf16(distance) * factor)); };
  const std::size_t lanes = to_size(kernel.machine.vlen);
  const std::size_t chunk = kernel.shape.form == SamplingForm::kOnePass ? to_size(kernel.shape.chunk) : logits.size();
  std::uint32_t best = 0;
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
  for (std::size_t from = 0; from < logits.size(); from += chunk) {
    const float before = maximum;
    for (std::size_t i = from; i < from + chunk; ++i)
      if (logits[i] > maximum) maximum = logits[i], best = static_cast<std::uint32_t>(i);
    if (from > 0) sum = bf16(bf16(sum) * power(before - maximum));
    for (std::size_t row = from; row < from + chunk; row += lanes) {
      std::vector<float> e(lanes);
      for (std::size_t i = 0; i < lanes; ++i) e[i] = power(logits[row + i] - maximum);
      sum += tree_sum(std::move(e));
    }
  }
  if (!draw.noise) return {best, f32_to_bf16(1.0f / bf16(sum))};
  best = drawn(shape, logits, draw.noise, draw.except);
  return {best, f32_to_bf16(bf16(1.0f / bf16(sum)) * power(logits[best] - maximum))};
}

Draw draw_of(const SamplingShape& shape, const SamplingInputs& in, std::size_t position, std::size_t step) {
  if (!shape.draws()) return {};
  return {[&in, position, step](std::uint32_t token) {
            return gumbel({in.seed, in.streams[position] >> 2}, RngPurpose::kToken,
                          in.first_step + static_cast<std::uint32_t>(step), in.positions[position], token);
          },
          in.except};
}

}  // namespace

SamplingInputs random_sampling_inputs(const SamplingShape& s, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  const std::size_t positions = to_size(s.batch * s.block), vocab = to_size(s.vocab);
  SamplingInputs in;
  in.logits.resize(positions * vocab);
  for (std::size_t p = 0; p < positions; ++p) {
    float* row = &in.logits[p * vocab];
    for (std::size_t i = 0; i < vocab; ++i) row[i] = normal(random) - 3.0f;
    // Every third position: several equal maxima; its neighbours get the same ones, so that confidences are tied too.
    if (p % 3 == 1)
      for (int k = 0; k < 3; ++k) row[random() % vocab] = 16.0f;
    else if (p % 3 == 2)
      row[random() % vocab] = static_cast<float>(random() % 24);
  }
  in.undecided.resize(positions);
  in.tokens.resize(positions);
  for (std::size_t p = 0; p < positions; ++p) {
    in.undecided[p] = random() % 4 != 0 ? 1 : 0;
    in.tokens[p] = 900000 + static_cast<std::uint32_t>(p);
    in.positions.push_back(static_cast<std::uint32_t>(40 + p % to_size(s.block)));
    in.streams.push_back(rng_stream({seed, static_cast<std::uint32_t>(p / to_size(s.block))}, RngPurpose::kToken));
  }
  in.seed = seed * 0x9e3779b97f4a7c15u + 1;
  in.first_step = 6;
  in.except = static_cast<std::uint32_t>(s.vocab / 2);
  in.counts.resize(to_size(s.steps * s.batch));
  for (std::size_t b = 0; b < to_size(s.batch); ++b) {
    const auto masked = std::accumulate(&in.undecided[b * to_size(s.block)],
                                        &in.undecided[b * to_size(s.block)] + s.block, std::int64_t{0});
    const std::vector<std::int64_t> counts = transfer_counts(masked, s.steps);
    for (std::size_t t = 0; t < to_size(s.steps); ++t)
      in.counts[t * to_size(s.batch) + b] = static_cast<std::uint32_t>(counts[t]);
  }
  return in;
}

void load_sampling(const SamplingKernel& kernel, const SamplingInputs& inputs,
                   const std::vector<std::vector<std::uint8_t>>& later, MachineState& state) {
  state.reach_hbm(kernel.machine.hbm_bytes);  // no larger than its data
  const SamplingShape& s = kernel.shape;
  const SamplingLayout& at = kernel.layout;
  const MxFormat& format = kernel.machine.activation;
  const std::size_t positions = to_size(s.batch * s.block), lanes = to_size(kernel.machine.vlen);
  for (std::size_t p = 0; p < positions; ++p)
    put(format, padded(kernel, &inputs.logits[p * to_size(s.vocab)]), p * to_size(at.padded_vocab), at.logits,
        at.logits_scales, state);
  for (std::int64_t t = 0; t < at.mask_steps; ++t) {
    const std::vector<std::uint8_t>& mask = t == 0 ? inputs.undecided : later[to_size(t - 1)];
    for (std::size_t b = 0; b < to_size(s.batch); ++b) {
      std::vector<float> row(lanes, 0.0f);
      std::copy_n(&mask[b * to_size(s.block)], s.block, row.begin());
      put(format, row, (to_size(t * s.batch) + b) * lanes, at.masks, at.masks_scales, state);
    }
  }
  std::copy(inputs.tokens.begin(), inputs.tokens.end(), state.int_mem.data() + at.tokens);
  std::copy(inputs.counts.begin(), inputs.counts.end(), state.int_mem.data() + at.counts);
  if (!s.draws()) return;
  std::copy(inputs.positions.begin(), inputs.positions.end(), state.int_mem.data() + at.positions);
  std::copy(inputs.streams.begin(), inputs.streams.end(), state.int_mem.data() + at.streams);
  for (std::uint32_t i = 0;
       const std::uint32_t word : {static_cast<std::uint32_t>(inputs.seed),
                                   static_cast<std::uint32_t>(inputs.seed >> 32), inputs.first_step, inputs.except})
    state.int_mem[at.draw + i++] = word;
}

SamplingOutputs read_sampling(const SamplingKernel& kernel, const MachineState& state) {
  const SamplingShape& s = kernel.shape;
  const SamplingLayout& at = kernel.layout;
  const std::size_t positions = to_size(s.batch * s.block), lanes = to_size(kernel.machine.vlen);
  SamplingOutputs out;
  const std::uint32_t* ints = state.int_mem.data();
  out.tokens.assign(ints + at.tokens, ints + at.tokens + positions);
  out.predicted.assign(ints + at.predicted, ints + at.predicted + positions);
  out.confidences.assign(state.fp_mem.data(), state.fp_mem.data() + s.block);
  // The published kernel does not update the masks that were loaded.
  for (std::size_t b = 0; b < to_size(s.batch); ++b)
    for (std::size_t l = 0; l < to_size(s.block); ++l)
      out.undecided.push_back(state.vram[(at.mask_row + b) * lanes + l] != 0 ? 1 : 0);
  return out;
}

SamplingOutputs sample_plainly(const SamplingKernel& kernel, const SamplingInputs& inputs,
                               std::vector<std::vector<std::uint8_t>>* after_step) {
  const SamplingShape& s = kernel.shape;
  SamplingOutputs out{inputs.tokens, {}, {}, inputs.undecided};
  out.predicted.resize(inputs.tokens.size());
  for (std::size_t t = 0; t < to_size(s.steps); ++t) {
    for (std::size_t b = 0; b < to_size(s.batch); ++b) {
      const std::size_t first = b * to_size(s.block);
      std::vector<std::uint16_t> confidence(to_size(s.block));
      std::vector<std::size_t> order;
      for (std::size_t l = 0; l < to_size(s.block); ++l) {
        const std::size_t p = first + l;
        const auto [token, c] =
            reduce(kernel, through(kernel.machine.activation, padded(kernel, &inputs.logits[p * to_size(s.vocab)])),
                   draw_of(s, inputs, p, t));
        confidence[l] = c;
        out.predicted[p] = out.undecided[p] != 0 ? token : out.tokens[p];
        if (out.undecided[p] != 0) order.push_back(l);
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t c) { return confidence[a] > confidence[c]; });
      order.resize(std::min<std::size_t>(order.size(), inputs.counts[t * to_size(s.batch) + b]));
      for (const std::size_t l : order) {
        out.tokens[first + l] = out.predicted[first + l];
        out.undecided[first + l] = 0;
      }
      out.confidences = confidence;
    }
    if (after_step != nullptr) after_step->push_back(out.undecided);
  }
  return out;
}

}  // namespace dllm::npu
