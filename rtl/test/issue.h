#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "npu_core/isa/isa.h"

namespace dllm::rtl {

/// Models of the issue stage.
enum class IssueShape : std::uint8_t {
  kWide,    ///< two per cycle, queues of 16, two vector starts, chaining, two accumulators, 7 ports
  kNarrow,  ///< one per cycle, queues of 4, one start, no chaining, one accumulator, 7 ports
  kPorts,   ///< as kWide, with the 2 ports of the shipped profiles
};
/// Those that are built: kWide only for planted faults, kPorts in the long form.
std::vector<IssueShape> issue_shapes();
std::string_view name_of(IssueShape shape);

/// When the instructions of programs are dispatched, start and are done, compared with the cycle simulator.
struct IssueResult {
  std::uint64_t instructions = 0, programs = 0;
  std::uint64_t apart = 0;           ///< instructions of which one of the three times is not the simulator's
  std::uint64_t programs_apart = 0;  ///< programs that have any
  std::uint64_t chained = 0;         ///< vector instructions that read a latch
  std::uint64_t transfers = 0;
  std::uint64_t together = 0;           ///< cycles in which more than one instruction is dispatched
  std::uint64_t starts_together = 0;    ///< cycles in which two vector instructions start
  std::int64_t cycles = 0;              ///< until everything is done
  std::int64_t expected = 0;            ///< of the simulator
  std::int64_t serial = 0;              ///< of the simulator with serial issue
  std::bitset<npu::kOpCount> executed;  ///< by npu::Op
  std::string first;                    ///< the first difference

  void add(const IssueResult& other);
};

/// Runs random programs of all instructions until that many have been issued. A load fills one cell.
IssueResult check_issue(IssueShape shape, std::uint64_t instructions, std::uint64_t seed);

}  // namespace dllm::rtl
