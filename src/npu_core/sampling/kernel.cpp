#include "npu_core/sampling/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/integers.h"
#include "base/to_size.h"
#include "base/try.h"
#include "npu_core/assembler/assembler.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/sampling/emitter.h"

namespace dllm::npu {
namespace {

constexpr SamplingForm kForms[] = {SamplingForm::kPublished, SamplingForm::kChunked, SamplingForm::kOnePass};
constexpr std::uint32_t kScratchWords = 32;  ///< of INT_MEM, for the program
constexpr std::int64_t kDrawWords = 4;
constexpr std::uint64_t kAlign = 4096;   ///< of tensors in HBM
constexpr std::int64_t kMaxBuffers = 8;  ///< chunks on chip of the one-pass form; more do not help

Error bad(std::string what, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), "sampling", std::move(hint)};
}

std::uint64_t u64(std::int64_t value) { return static_cast<std::uint64_t>(value); }

constexpr std::string_view kPrecisions[] = {"f64", "f32", "bf16"};

Expected<void> check_draws(const Device& device, const SamplingShape& s) {
  if (!(s.temperature >= 0 && std::isfinite(s.temperature)))
    return bad(fmt::format("temperature {} is not a finite number of at least 0", s.temperature));
  if (!s.draws()) return {};
  if (s.form != SamplingForm::kOnePass)
    return bad(fmt::format("the {} form does not draw", name_of(s.form)), "--form one-pass");
  if (device.array.noise_lanes <= 0)
    return bad(fmt::format("{} has no noise generators", device.name),
               "--set array.noise_lanes=N with the draws per cycle, for example 256");
  return {};
}

Expected<void> check(const SamplingShape& s, std::int64_t vlen) {
  for (const auto& [name, value] :
       {std::pair{"batch", s.batch}, {"block", s.block}, {"vocab", s.vocab}, {"steps", s.steps}})
    if (value < 1 || value > (1 << 24)) return bad(fmt::format("{} is {}", name, value), "1 to 16777216");
  if (s.block > vlen) return bad(fmt::format("a block of {} exceeds VLEN {}", s.block, vlen), "a mask is one row");
  if (s.chunk < 0 || s.chunk % vlen != 0)
    return bad(fmt::format("chunk {} is not a multiple of VLEN {}", s.chunk, vlen), "0: as long as possible");
  if (s.preload < 0 || s.preload > 65536) return bad(fmt::format("preload {}", s.preload), "vectors per transfer");
  if (u64(s.batch * s.block) * u64(ceil_div(s.vocab, vlen) * vlen) >= std::uint64_t{1} << 32)
    return bad("the logits have 2^32 elements or more",
               "offsets have 32 bits: fewer positions or a smaller vocabulary");
  return {};
}

/// INT_MEM and FP_MEM.
Expected<void> place_words(SamplingKernel& k) {
  const SamplingShape& s = k.shape;
  SamplingLayout& at = k.layout;
  const std::int64_t draws = s.draws() ? 2 * s.batch * s.block + kDrawWords : 0;
  const std::uint64_t ints = u64(s.batch * s.block * 2 + s.steps * s.batch + draws) + kScratchWords;
  if (ints > k.machine.int_words)
    return bad(fmt::format("{} words of integer SRAM are needed, the device has {}", ints, k.machine.int_words),
               "--set sram.int_words=...");
  at.tokens = 0;
  at.predicted = static_cast<std::uint32_t>(s.batch * s.block);
  at.counts = 2 * at.predicted;
  at.positions = at.counts + static_cast<std::uint32_t>(s.steps * s.batch);
  at.streams = at.positions + at.predicted;
  at.draw = at.streams + at.predicted;
  at.int_words = static_cast<std::uint32_t>(ints);
  at.fp_words = static_cast<std::uint32_t>(s.block);
  if (at.fp_words > k.machine.fp_words) return bad("a block's confidences exceed the FP SRAM");
  return {};
}

/// Rows of vector SRAM: three groups of a row per item, as the published kernel allocates them.
void place_published_rows(SamplingKernel& k) {
  SamplingShape& s = k.shape;
  SamplingLayout& at = k.layout;
  at.mask_row = u64(s.batch);
  at.transfer_row = u64(2 * s.batch);
  if (s.preload == 0) s.preload = k.machine.prefetch_v_rows;
  k.machine.prefetch_v_rows = static_cast<int>(s.preload);
  at.mask_steps = s.steps;
  at.vram_rows = u64(3 * s.batch + ceil_div(s.block * at.vectors, s.preload) * s.preload);
  s.chunk = at.padded_vocab;
}

/// Rows of the forms that read a vocabulary in chunks, of the `rows` that the device has.
void place_chunk_rows(SamplingKernel& k, std::int64_t rows) {
  SamplingShape& s = k.shape;
  SamplingLayout& at = k.layout;
  const std::int64_t vlen = k.machine.vlen;
  at.transfer_row = 1;
  at.mask_row = 2;
  const std::int64_t fixed = 2 + s.batch, room = rows - fixed;
  const std::int64_t least = s.form == SamplingForm::kOnePass ? 2 : 1;
  if (s.chunk == 0 || s.chunk > at.padded_vocab)
    s.chunk = vlen * std::min(at.vectors, std::max<std::int64_t>(1, room / (least + 1)));
  std::int64_t chunk_rows = s.chunk / vlen;
  if (s.form == SamplingForm::kOnePass) {
    // Chunks of equal length, with as little padding as possible.
    const std::int64_t chunks = ceil_div(at.vectors, chunk_rows);
    chunk_rows = ceil_div(at.vectors, chunks);
    at.vectors = chunks * chunk_rows;
    at.padded_vocab = at.vectors * vlen;
    s.chunk = chunk_rows * vlen;
  }
  if (s.preload == 0) s.preload = chunk_rows;
  const std::int64_t buffer = ceil_div(chunk_rows, s.preload) * s.preload;
  if (s.form == SamplingForm::kOnePass)
    at.buffers =
        std::clamp<std::int64_t>(std::min(room / buffer, s.block * at.vectors / chunk_rows + 1), least, kMaxBuffers);
  at.vram_rows = u64(fixed + at.buffers * buffer);
}

/// Fills in the defaults of the shape, and places everything.
Expected<void> place(SamplingKernel& k) {
  const SamplingShape& s = k.shape;
  SamplingLayout& at = k.layout;
  const std::int64_t vlen = k.machine.vlen;
  const auto rows = static_cast<std::int64_t>(k.machine.vram_elements / u64(vlen));
  at.vectors = ceil_div(s.vocab, vlen);
  at.padded_vocab = at.vectors * vlen;
  const bool published = s.form == SamplingForm::kPublished;
  at.confidence_row = 0;
  if (published)
    place_published_rows(k);
  else
    place_chunk_rows(k, rows);
  if (at.vram_rows > u64(rows))
    return bad(fmt::format("{} rows of vector SRAM are needed, the device has {}", at.vram_rows, rows),
               published ? "use --form chunked with a --chunk" : "a smaller --chunk");
  DLLM_CHECK_OK(place_words(k));
  const MxFormat& format = k.machine.activation;
  const auto tensor = [&format](std::uint64_t elements, std::uint64_t base, std::uint64_t& scales) {
    scales = format.element_bytes(elements);
    return (base + scales + format.scale_bytes(elements) + kAlign - 1) / kAlign * kAlign;
  };
  at.logits = 0;
  // The last transfer may read beyond the end.
  const std::uint64_t over = u64(s.preload) * u64(vlen);
  at.masks = tensor(u64(s.batch * s.block * at.padded_vocab) + over, 0, at.logits_scales);
  at.hbm_bytes = tensor(u64(at.mask_steps * s.batch * vlen) + over, at.masks, at.masks_scales);
  if (at.hbm_bytes > k.machine.hbm_bytes || at.masks >> 32 != 0)
    return bad(fmt::format("{} bytes of logits and masks do not fit into the memory", at.hbm_bytes));
  // The functional machine has only the part of the device's memory that the kernel uses.
  k.machine.hbm_bytes = at.hbm_bytes;
  return {};
}

/// Scalar instructions outside the loops over batch items (gp13) and transfers (gp12): at most once per step.
std::int64_t scalars_outside_loops(const Program& program) {
  std::set<std::uint32_t> open;
  std::int64_t count = 0;
  for (const Instruction& instruction : program.code) {
    if (instruction.op == Op::C_LOOP_START) open.insert(instruction.get(Field::kRd));
    if (instruction.op == Op::C_LOOP_END) open.erase(instruction.get(Field::kRd));
    if (info(instruction.op).cls == Class::kScalar && !open.contains(12) && !open.contains(13)) ++count;
  }
  return count;
}

}  // namespace

std::string_view name_of(SamplingForm form) {
  constexpr std::string_view kNames[] = {"published", "chunked", "one-pass"};
  return kNames[static_cast<std::size_t>(form)];
}

std::optional<SamplingForm> sampling_form_from_name(std::string_view name) {
  for (const SamplingForm form : kForms)
    if (name == name_of(form)) return form;
  return std::nullopt;
}

std::string_view name_of(DrawPrecision precision) { return kPrecisions[static_cast<std::size_t>(precision)]; }

std::optional<DrawPrecision> draw_precision_from_name(std::string_view name) {
  for (const DrawPrecision precision : {DrawPrecision::kF64, DrawPrecision::kF32, DrawPrecision::kBF16})
    if (name == name_of(precision)) return precision;
  return std::nullopt;
}

std::vector<std::int64_t> transfer_counts(std::int64_t masked, std::int64_t steps) {
  std::vector<std::int64_t> counts(to_size(steps), masked / steps);
  for (std::int64_t t = 0; t < masked % steps; ++t) ++counts[to_size(t)];
  return counts;
}

Expected<SamplingKernel> build_sampling(const Device& device, const SamplingShape& shape) {
  SamplingKernel kernel;
  kernel.shape = shape;
  DLLM_TRY(kernel.machine, machine_config(device));
  DLLM_CHECK_OK(override_format(kernel.machine, "activation=" + device.numerics.logits));
  DLLM_CHECK_OK(check(shape, kernel.machine.vlen));
  DLLM_CHECK_OK(check_draws(device, shape));
  DLLM_CHECK_OK(place(kernel));
  const AssemblerOptions options{.file = "sampling", .half_scalars = kernel.machine.lanes == LaneFormat::kF16};
  switch (shape.form) {
    case SamplingForm::kPublished: {
      // The published kernel executes 28 + 6 B scalar instructions once; ours needs fewer.
      kernel.assembly = sampling::published_text(kernel, 0);
      DLLM_TRY(const Program without, assemble(kernel.assembly, options));
      const std::int64_t idle = 28 + 6 * kernel.shape.batch - scalars_outside_loops(without);
      if (idle > 0) kernel.assembly = sampling::published_text(kernel, idle);
      break;
    }
    case SamplingForm::kChunked:
      kernel.assembly = sampling::chunked_text(kernel);
      break;
    case SamplingForm::kOnePass:
      kernel.assembly = sampling::one_pass_text(kernel);
      break;
  }
  DLLM_TRY(kernel.program, assemble(kernel.assembly, options));
  kernel.program.name = fmt::format("sampling ({})", name_of(shape.form));
  return kernel;
}

std::vector<Override> published_sampling_overrides() {
  return {{"numerics.logits", "mxfp8_e4m3:8:plena"},
          {"memory.standard", "hbm2-dplena"},
          {"memory.stacks", "4"},
          {"memory.refresh", "none"},
          // Latency between the emulator and the controllers, not published anywhere. It is the only free parameter:
          // with 3 cycles all three published totals fit.
          {"memory.frontend_ns", "3"}};
}

}  // namespace dllm::npu
