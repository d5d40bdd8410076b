#include "npu_core/machine/config.h"

#include <fmt/format.h>

#include <bit>

namespace dllm::npu {
namespace {

bool power_of_two(int value) { return value > 0 && std::has_single_bit(static_cast<unsigned>(value)); }

Error broken(std::string what, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(what), "machine configuration", std::move(hint)};
}

}  // namespace

Expected<void> MachineConfig::validate() const {
  for (const int value : {blen, mlen, vlen, hlen})
    if (!power_of_two(value) || value > (1 << 16))
      return broken(
          fmt::format("BLEN {}, MLEN {}, VLEN {}, HLEN {} must be powers of two up to 65536", blen, mlen, vlen, hlen));
  if (mlen < 8) return broken(fmt::format("MLEN {} is below 8, the smallest MX block", mlen));
  if (mlen % blen != 0) return broken(fmt::format("BLEN {} does not divide MLEN {}", blen, mlen));
  if (mlen % hlen != 0) return broken(fmt::format("HLEN {} does not divide MLEN {}", hlen, mlen));
  if (vlen % mlen != 0)
    return broken(fmt::format("VLEN {} is not a multiple of MLEN {}", vlen, mlen),
                  "the matrix unit reads MLEN lanes of one row");
  const auto tile = static_cast<std::uint64_t>(mlen) * static_cast<std::uint64_t>(mlen);
  const auto row = static_cast<std::uint64_t>(vlen);
  if (vram_elements == 0 || vram_elements % row != 0 || vram_elements > std::uint64_t{1} << 32)
    return broken(fmt::format("VRAM of {} elements is not 1 to 2^32/VLEN rows of VLEN {}", vram_elements, vlen));
  if (mram_elements == 0 || mram_elements % tile != 0 || mram_elements > std::uint64_t{1} << 32)
    return broken(fmt::format("MRAM of {} elements is not a whole number of tiles of {}", mram_elements, tile));
  if (fp_words == 0 || fp_words > std::uint64_t{1} << 32 || int_words == 0 || int_words > std::uint64_t{1} << 32)
    return broken("FP_MEM and INT_MEM must have 1 to 2^32 words");
  if (hbm_bytes == 0 || hbm_bytes > std::uint64_t{1} << 40) return broken("HBM must have 1 byte to 1 TiB");
  if (loop_depth < 1 || loop_depth > 64) return broken(fmt::format("loop depth {} is not in 1..64", loop_depth));
  if (prefetch_m_rows < 0 || prefetch_v_rows < 1 || store_v_rows < 1)
    return broken("prefetch and store amounts must be positive");
  if (contraction_bits < 6 || contraction_bits > 24)
    return broken(fmt::format("contraction_bits {} is not in 6..24", contraction_bits));
  for (const MxFormat* format : {&weight, &matrix_kv, &activation, &vector_kv, &matrix_input})
    if (format->block > mlen) return broken(fmt::format("blocks of {} are longer than MLEN {}", format->block, mlen));
  for (const MxFormat* format : {&matrix_kv, &activation, &vector_kv, &matrix_input})
    if (format->packed())
      return broken(fmt::format("{} is a format of weights only", mx_format_name(*format)),
                    "fp16 for what programs write");
  return {};
}

}  // namespace dllm::npu
