#pragma once

#include <cstdint>
#include <string_view>

#include "npu_core/dram/standard.h"

namespace dllm::npu::dram {

enum class Command : std::uint8_t {
  kActivate,
  kPrecharge,
  kPrechargeAll,
  kRead,
  kWrite,
  kReadAuto,  ///< with auto-precharge
  kWriteAuto,
  kRefreshAll,
  kRefreshBank,
  kNone,
};

constexpr std::string_view command_name(Command command) {
  constexpr std::string_view kNames[] = {"ACT", "PRE", "PREA", "RD", "WR", "RDA", "WRA", "REFab", "REFpb", ""};
  return kNames[static_cast<int>(command)];
}

/// One command on the bus of a channel. `bank` is -1 for all-bank commands; `row` and `column` if they apply.
struct CommandRecord {
  Tick at = 0;
  Command command = Command::kActivate;
  std::int16_t channel = 0;
  std::int16_t pseudochannel = 0;
  std::int16_t bank = -1;
  std::int32_t row = -1;
  std::int32_t column = -1;
};

}  // namespace dllm::npu::dram
