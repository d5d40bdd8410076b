#include "npu_core/machine/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/to_size.h"
#include "base/try.h"
#include "format/npy.h"

namespace dllm::npu {
namespace {

Error usage(std::string what, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), "", std::move(hint)};
}

/// Parses and removes a number at the front of `text`, decimal or 0x.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  const bool hex = text.starts_with("0x");
  std::uint64_t value = 0;
  const char* begin = text.data() + (hex ? 2 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc() || end == begin) return std::nullopt;
  text.remove_prefix(to_size(end - text.data()));
  return value;
}

std::size_t word_bytes(Space space) { return space == Space::kHbm ? 1 : space == Space::kIntMem ? 4 : 2; }

std::byte* memory_of(MachineState& state, Space space) {
  switch (space) {
    case Space::kVram:
      return reinterpret_cast<std::byte*>(state.vram.data());
    case Space::kFpMem:
      return reinterpret_cast<std::byte*>(state.fp_mem.data());
    case Space::kIntMem:
      return reinterpret_cast<std::byte*>(state.int_mem.data());
    default:
      return state.hbm.data();
  }
}

/// A copy of a piece of HBM; what nothing has accessed yet is zero.
std::vector<std::byte> hbm_bytes(const MachineState& state, std::uint64_t address, std::uint64_t count) {
  std::vector<std::byte> bytes(count);
  const std::uint64_t known =
      std::min<std::uint64_t>(count, state.hbm.size() - std::min<std::uint64_t>(address, state.hbm.size()));
  if (known > 0) std::memcpy(bytes.data(), state.hbm.data() + address, known);
  return bytes;
}

/// Whether [address, address + count) is inside a memory of `size`.
Expected<void> check_range(std::string_view what, std::uint64_t address, std::uint64_t count, std::uint64_t size) {
  if (address <= size && count <= size - address) return {};
  return usage(fmt::format("{} {}..{} is beyond its size {}", what, address, address + count, size),
               "a larger device, or another address");
}

Expected<void> check_tensor(const MachineState& state, const ImageSpec& spec, std::uint64_t count) {
  const MxFormat& format = *spec.format;
  if (format.packed())
    return usage(fmt::format("{} is stored in tiles, which are not converted here", mx_format_name(format)),
                 "raw bytes: leave the format out");
  if (count % static_cast<std::uint64_t>(format.block) != 0 ||
      count * static_cast<std::uint64_t>(format.bits()) % 8 != 0)
    return usage(fmt::format("{} elements are not a whole number of blocks of {}", count, mx_format_name(format)));
  DLLM_CHECK_OK(check_range("hbm bytes", spec.address, format.element_bytes(count), state.config.hbm_bytes));
  return check_range("hbm scale bytes", spec.address + spec.scales.value_or(format.element_bytes(count)),
                     format.scale_bytes(count), state.config.hbm_bytes);
}

Expected<void> load_array(MachineState& state, const ImageSpec& spec, const NpyArray& array) {
  const std::size_t n = array.values.size();
  if (spec.space == Space::kHbm && spec.format) {
    const MxFormat& format = *spec.format;
    DLLM_CHECK_OK(check_tensor(state, spec, n));
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(array.values[i]);
    std::vector<std::uint16_t> codes(n);
    std::vector<std::uint8_t> scales(format.scale_bytes(n));
    mx_quantize(format, values.data(), n, codes.data(), scales.data());
    const std::uint64_t scale_address = spec.address + spec.scales.value_or(format.element_bytes(n));
    state.reach_hbm(std::max(spec.address + format.element_bytes(n), scale_address + scales.size()));
    mx_pack(format.bits(), codes.data(), n, state.hbm.data() + spec.address);
    if (!scales.empty()) std::memcpy(state.hbm.data() + scale_address, scales.data(), scales.size());
    return {};
  }
  DLLM_CHECK_OK(check_range(name_of(spec.space), spec.address, n, space_size(state.config, spec.space)));
  if (spec.space == Space::kHbm) state.reach_hbm(spec.address + n);
  for (std::size_t i = 0; i < n; ++i) {
    const double value = array.values[i];
    if (spec.space == Space::kVram || spec.space == Space::kFpMem) {
      (spec.space == Space::kVram ? state.vram : state.fp_mem)[spec.address + i] =
          f64_to_lane(state.config.lanes, value);
      continue;
    }
    const double top = spec.space == Space::kHbm ? 255.0 : 4294967295.0;
    if (!(value >= (spec.space == Space::kHbm ? 0.0 : -2147483648.0) && value <= top && value == std::floor(value)))
      return usage(fmt::format("element {} = {} is not a word of {}", i, value, name_of(spec.space)),
                   spec.space == Space::kHbm ? "name a format after the address: hbm@0:mxint8=..." : "");
    const auto word = static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
    if (spec.space == Space::kHbm)
      state.hbm[spec.address + i] = static_cast<std::byte>(word);
    else
      state.int_mem[spec.address + i] = word;
  }
  return {};
}

}  // namespace

Expected<ImageSpec> parse_image_spec(std::string_view text) {
  const auto malformed = [text] {
    return usage(fmt::format("'{}' names no piece of memory", text),
                 "SPACE@ADDRESS[+SCALES][:COUNT][:FORMAT], SPACE vram, fp, int or hbm");
  };
  ImageSpec spec;
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) return malformed();
  const std::string_view name = text.substr(0, at);
  std::string_view rest = text.substr(at + 1);
  if (name == "vram")
    spec.space = Space::kVram;
  else if (name == "fp")
    spec.space = Space::kFpMem;
  else if (name == "int")
    spec.space = Space::kIntMem;
  else if (name == "hbm")
    spec.space = Space::kHbm;
  else
    return malformed();
  const auto address = take_number(rest);
  if (!address) return malformed();
  spec.address = *address;
  if (rest.starts_with('+')) {
    rest.remove_prefix(1);
    spec.scales = take_number(rest);
    if (!spec.scales || spec.space != Space::kHbm) return malformed();
  }
  if (rest.starts_with(':')) {
    std::string_view tail = rest.substr(1);
    if (const auto count = take_number(tail)) {
      spec.count = *count;
      rest = tail;
      if (spec.count == 0) return malformed();
    }
  }
  if (rest.empty()) return spec;
  if (!rest.starts_with(':') || spec.space != Space::kHbm) return malformed();
  spec.format = mx_format_from_name(rest.substr(1));
  if (!spec.format)
    return usage(fmt::format("'{}' is not a number format", rest.substr(1)),
                 "for example mxint8:32:ocp, mxfp8_e4m3:8:plena, bf16");
  return spec;
}

Expected<void> load_image(MachineState& state, const ImageSpec& spec, std::string_view bytes, const std::string& name) {
  if (bytes.starts_with("\x93NUMPY")) {
    DLLM_TRY(const NpyArray array, parse_npy(bytes, name));
    return load_array(state, spec, array);
  }
  const std::size_t unit = word_bytes(spec.space);
  if (bytes.size() % unit != 0)
    return usage(fmt::format("{} bytes are not a whole number of words of {} bytes", bytes.size(), unit));
  DLLM_CHECK_OK(
      check_range(name_of(spec.space), spec.address, bytes.size() / unit, space_size(state.config, spec.space)));
  if (spec.space == Space::kHbm) state.reach_hbm(spec.address + bytes.size());
  if (!bytes.empty()) std::memcpy(memory_of(state, spec.space) + spec.address * unit, bytes.data(), bytes.size());
  return {};
}

Expected<ImageValues> read_image(const MachineState& state, const ImageSpec& spec) {
  if (spec.count == 0) return usage("how many values? the piece of memory has no count", "SPACE@ADDRESS:COUNT");
  ImageValues values;
  if (spec.space == Space::kHbm && spec.format) {
    DLLM_CHECK_OK(check_tensor(state, spec, spec.count));
    const MxFormat& format = *spec.format;
    std::vector<std::uint16_t> codes(spec.count);
    std::vector<std::uint8_t> scales(format.scale_bytes(spec.count));
    values.real.resize(spec.count);
    const std::uint64_t element_bytes = format.element_bytes(spec.count);
    mx_unpack(format.bits(), hbm_bytes(state, spec.address, element_bytes).data(), spec.count, codes.data());
    const auto stored = hbm_bytes(state, spec.address + spec.scales.value_or(element_bytes), scales.size());
    if (!scales.empty()) std::memcpy(scales.data(), stored.data(), scales.size());
    mx_dequantize(format, codes.data(), scales.data(), spec.count, values.real.data());
    return values;
  }
  DLLM_CHECK_OK(check_range(name_of(spec.space), spec.address, spec.count, space_size(state.config, spec.space)));
  values.is_integer = spec.space == Space::kIntMem || spec.space == Space::kHbm;
  if (spec.space == Space::kHbm) {
    for (const std::byte byte : hbm_bytes(state, spec.address, spec.count))
      values.integers.push_back(static_cast<std::uint32_t>(byte));
    return values;
  }
  for (std::uint64_t i = spec.address; i < spec.address + spec.count; ++i) {
    if (spec.space == Space::kIntMem)
      values.integers.push_back(state.int_mem[i]);
    else
      values.real.push_back(
          lane_to_f32(state.config.lanes, spec.space == Space::kVram ? state.vram[i] : state.fp_mem[i]));
  }
  return values;
}

}  // namespace dllm::npu
