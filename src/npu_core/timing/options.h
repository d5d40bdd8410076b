#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "dllm/error.h"

namespace dllm::npu {

struct IssueKeys;

enum class IssueMode : std::uint8_t {
  kOverlapped,  ///< in order, `width` per cycle, into the queues of the units
  kSerial,      ///< one instruction at a time, each completes first, including transfers: the published emulator
};

/// How instructions are issued, and which deviations of the published simulators are reproduced
/// (docs/design/npu-timing.md). The profile describes the device; these are the front end and the experiments.
struct TimingOptions {
  IssueMode issue = IssueMode::kOverlapped;
  int width = 2;          ///< instructions dispatched per cycle, in order
  int queue = 16;         ///< instructions that wait for a unit
  int vector_starts = 2;  ///< vector instructions that may start in one cycle, on different pipes
  bool chaining = true;   ///< a pipe's newest result is read from its output latch; off: one start per cycle, from VRAM
  int accumulators = 2;   ///< results of the array that may wait for their write-out; 1: no double buffering
  bool asynchronous = true;  ///< off: a transfer holds the front end until its last byte
  int branch_bubble = 2;     ///< cycles lost by a taken C_BNZ; hardware loops lose none

  /// Periods of equal regions, such as layers, are simulated until two in a row take the same time within `tolerance`;
  /// later ones except the last are copied from the latest. Off: everything is simulated.
  bool repeat = false;
  double tolerance = 0.01;

  bool compat_mlen = false;     ///< M_MM takes MLEN cycles instead of BLEN: PLENA's emulator (J 3)
  bool compat_scale64 = false;  ///< one 64-byte scale block per vector, of any length: d-PLENA (J 14)

  /// Errors: kUsage, a number out of range.
  Expected<void> validate() const;
};

/// Applies the device's [issue] table: width, queue, starts, chaining, accumulators.
void apply_issue(const IssueKeys& issue, TimingOptions& options);

std::string_view name_of(IssueMode mode);
/// "overlapped", "serial"; nullopt for others.
std::optional<IssueMode> issue_mode_from_name(std::string_view name);

nlohmann::ordered_json timing_options_json(const TimingOptions& options);

}  // namespace dllm::npu
