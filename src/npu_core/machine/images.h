#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "npu_core/machine/state.h"

namespace dllm::npu {

/// A piece of a memory, in the command line's notation:
///
///   SPACE@ADDRESS[+SCALES][:COUNT][:FORMAT]      vram@0:64   fp@16:4   hbm@4096+8192:1024:mxint8:32:ocp
///
/// Spaces: vram, fp, int, hbm. Addresses: elements, words, bytes. `+SCALES`: bytes from ADDRESS to the scales; without
/// it they follow the elements. FORMAT, for hbm: an MX format, bf16 or fp16; without it, raw
/// bytes.
struct ImageSpec {
  Space space = Space::kVram;
  std::uint64_t address = 0;
  std::optional<std::uint64_t> scales;
  std::uint64_t count = 0;  ///< 0: not given
  std::optional<MxFormat> format;
};
Expected<ImageSpec> parse_image_spec(std::string_view text);

/// Copies a file's contents into the memory: a NumPy array is converted (quantized, rounded to the lanes' format, or
/// used as integers); anything else is copied as raw little-endian words of the space. Errors: kInvalidFile, kUsage
/// (does not fit).
Expected<void> load_image(MachineState& state, const ImageSpec& spec, std::string_view bytes, const std::string& name);

/// Reads `count` values: floats, or integers of INT_MEM and of raw HBM bytes.
struct ImageValues {
  std::vector<float> real;
  std::vector<std::uint32_t> integers;
  bool is_integer = false;
};
/// Errors: kUsage (no count, beyond the memory).
Expected<ImageValues> read_image(const MachineState& state, const ImageSpec& spec);

}  // namespace dllm::npu
