#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/assembler/program.h"
#include "npu_core/device/override.h"
#include "npu_core/machine/config.h"

namespace dllm::npu {

struct Device;

/// How the logits are streamed through the chip.
enum class SamplingForm : std::uint8_t {
  kPublished,  ///< d-PLENA's kernel: the logits of a batch item are loaded, then reduced position by position
  kChunked,    ///< its edge mode: a chunk of the vocabulary on chip at a time; the logits are read twice
  kOnePass,    ///< read once, in chunks with a running maximum and sum; the next chunk's maximum during this one's sum
};
std::string_view name_of(SamplingForm form);
std::optional<SamplingForm> sampling_form_from_name(std::string_view name);

/// In which numbers draws compare their keys: values of draw_precision.
enum class DrawPrecision : std::uint8_t { kF64, kF32, kBF16 };
std::string_view name_of(DrawPrecision precision);
std::optional<DrawPrecision> draw_precision_from_name(std::string_view name);

/// Sampling of `batch` x `block` positions, `steps` times.
struct SamplingShape {
  std::int64_t batch = 16, block = 32, vocab = 126976, steps = 1;
  std::int64_t chunk = 0;    ///< logits of a position on chip at once, a multiple of VLEN; 0: as many as possible
  std::int64_t preload = 0;  ///< vectors per H_PREFETCH_V; 0: the profile's (published), the whole chunk (others)
  SamplingForm form = SamplingForm::kPublished;
  /// Above 0: tokens are drawn from softmax(logits / temperature) by V_RED_DRAW. One-pass form only.
  double temperature = 0;
  DrawPrecision precision = DrawPrecision::kF64;
  bool tempered = false;  ///< the drawn token's confidence is that of its distribution; else of the softmax at 1
  bool draws() const { return temperature > 0; }
};

/// Where the program expects its inputs and writes its results. Logits are [batch][block][padded_vocab]; every step
/// reads the same ones, as no model runs in between.
struct SamplingLayout {
  std::int64_t vectors = 0;       ///< VLEN vectors per position
  std::int64_t padded_vocab = 0;  ///< vectors x VLEN; the rest has the lowest value of the format
  // HBM, bytes: tensors in the machine's activation format, scales after the elements.
  std::uint64_t logits = 0, logits_scales = 0;  ///< second: from the tensor's base
  std::uint64_t masks = 0, masks_scales = 0;    ///< [mask_steps][batch][VLEN]: 1 where a position is undecided
  std::int64_t mask_steps = 1;                  ///< the published kernel reads new masks in every step
  std::uint64_t hbm_bytes = 0;
  // INT_MEM, words.
  std::uint32_t tokens = 0;     ///< [batch][block], in and out
  std::uint32_t predicted = 0;  ///< [batch][block], the arg-max where undecided
  std::uint32_t counts = 0;     ///< [steps][batch], positions to commit
  std::uint32_t positions = 0;  ///< [batch][block], counters of draws; then their streams, in the same shape
  std::uint32_t streams = 0;
  std::uint32_t draw = 0;  ///< seed (low, high), first step and the token that is never drawn
  std::uint32_t int_words = 0;
  // FP_MEM and VRAM.
  std::uint32_t fp_words = 0;                                        ///< confidences of one batch item from word 0
  std::uint64_t vram_rows = 0;                                       ///< in use
  std::uint64_t confidence_row = 0, transfer_row = 0, mask_row = 0;  ///< of batch item 0; first and second are reused
  std::int64_t buffers = 1;                                          ///< chunks on chip
};

struct SamplingKernel {
  SamplingShape shape;  ///< resolved
  SamplingLayout layout;
  MachineConfig machine;  ///< logits' format on the vector path, memories of the device
  std::string assembly;   ///< annotated
  Program program;
};

/// The four phases of block-wise sampling as a program with hardware loops (d-PLENA; DART Algorithm 2):
///   1  maximum, arg-max and sum of exponentials of every position      2  confidence and token
///   3  the most confident undecided positions, counts[step][item] of them
///   4  predicted = undecided ? arg-max : token; token = selected ? predicted : token
/// Errors: a shape that does not fit the device's memories, with what would.
Expected<SamplingKernel> build_sampling(const Device& device, const SamplingShape& shape);

/// Changes a profile to the device that the published figures were simulated with: block 8 for the logits, its DRAM on
/// 32 channels, no refresh. The 64-byte scale fetch is TimingOptions::compat_scale64.
std::vector<Override> published_sampling_overrides();

/// Positions committed in each of `steps` steps, given `masked` undecided ones: the remainder goes to the first steps.
std::vector<std::int64_t> transfer_counts(std::int64_t masked, std::int64_t steps);

}  // namespace dllm::npu
