#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dllm::npu {

/// Control registers of C_SET_CSR. The numbers are part of the binary interface.
enum class Csr : std::uint8_t {
  kBmmScale,
  kPrefetchMRows,
  kPrefetchVRows,
  kStoreVRows,
  kBmmRows,
  kBmmCols,
  kBmmGroup,
  kBmmHeadStride,
  kSegmentLength,
  kRouterExperts,
  kRouterTop,
  kFormatWeight,
  kFormatMatrixKv,
  kFormatActivation,
  kFormatVectorKv,
  kFormatMatrixInput,
  kBmmLayout,
  kMmRows,
  kDrawSeedLow,
  kDrawSeedHigh,
  kDrawStream,
  kDrawStep,
  kDrawTemperatureLow,
  kDrawTemperatureHigh,
  kDrawPrecision,
  kDrawExcept,
  kDrawTokens,
};
inline constexpr int kCsrCount = static_cast<int>(Csr::kDrawTokens) + 1;

struct CsrInfo {
  Csr csr;
  std::string_view name;
  std::string_view unit;   ///< "rows", "lanes", "format", ...
  std::string_view reset;  ///< in words of the device profile
  std::string_view doc;
};

std::span<const CsrInfo> csr_table();
const CsrInfo* find_csr(std::string_view name);  ///< nullptr: unknown
const CsrInfo* find_csr(std::uint32_t number);   ///< nullptr: unknown

}  // namespace dllm::npu
