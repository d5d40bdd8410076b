#include "npu_core/timing/repeats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"

namespace dllm::npu {
namespace {

constexpr std::size_t kLongestPeriod = 256;  ///< regions
constexpr std::size_t kFewest = 4;           ///< periods; the first one or two start with empty queues

/// The fields of an instruction that are equal in all layers. Spilled integers rotate through words of INT_MEM, and the
/// upper half of an address is the register of zeros below 4 GiB.
Instruction compared_fields(Instruction one) {
  std::size_t leading = one.small.size();
  if (one.op == Op::S_LD_INT || one.op == Op::S_ST_INT) leading = 2;
  if (one.op == Op::C_SET_ADDR_REG) leading = 1;
  if (leading < one.small.size()) one.immediate = 0;
  std::fill(one.small.begin() + static_cast<std::ptrdiff_t>(leading), one.small.end(), std::uint8_t{0});
  return one;
}

std::uint64_t signature(const Program& program, const Region& region) {
  std::uint64_t hash = Fnv1a::kBasis;
  for (const char c : region.name)
    if (c < '0' || c > '9') hash = mix64(hash, static_cast<unsigned char>(c));
  for (std::uint32_t i = region.begin; i < region.end; ++i) {
    const Instruction& instruction = program.code[i];
    // Addresses differ from layer to layer, and take one instruction or two.
    if (instruction.op == Op::S_ADDI_INT || instruction.op == Op::S_LUI_INT) continue;
    const Instruction one = compared_fields(instruction);
    std::uint64_t small = static_cast<std::uint64_t>(one.op);
    for (const std::uint8_t field : one.small) small = small << 8 | field;
    hash = mix64(mix64(hash, small), one.immediate);
  }
  return hash;
}

}  // namespace

PeriodicRegions find_periods(const Program& program) {
  std::vector<std::size_t> outer;
  std::vector<std::uint64_t> keys;
  std::uint32_t end = 0;
  for (std::size_t r = 0; r < program.regions.size(); ++r) {
    const Region& region = program.regions[r];
    if (region.begin < end || region.begin == region.end) continue;
    outer.push_back(r);
    keys.push_back(signature(program, region));
    end = region.end;
  }
  PeriodicRegions best;
  std::size_t covered = 0;
  for (std::size_t length = 1; length <= kLongestPeriod && length < keys.size(); ++length) {
    for (std::size_t begin = 0; begin + length < keys.size();) {
      std::size_t run = 0;
      while (begin + run + length < keys.size() && keys[begin + run] == keys[begin + run + length]) ++run;
      const std::size_t count = run / length + 1;
      // Nested regions would need their statistics repeated too.
      const bool flat = outer[begin + count * length - 1] - outer[begin] == count * length - 1;
      if (count >= kFewest && flat && count * length > covered) {
        covered = count * length;
        best = {{}, outer[begin], length};
        for (std::size_t p = 0; p < count; ++p) best.begins.push_back(program.regions[outer[begin + p * length]].begin);
      }
      begin += run + 1;
    }
  }
  return best;
}

void RepeatedPeriod::add(std::uint32_t period, TimingSnapshot snapshot) {
  if (snapshots_.size() == period) snapshots_.push_back(snapshot);
}

bool RepeatedPeriod::settled(std::uint32_t period, std::uint32_t count, double tolerance, Cycle shortest) {
  if (period < 3 || period + 1 >= count || snapshots_.size() != period + 1) return false;
  const auto last = static_cast<double>(snapshots_[period].front() - snapshots_[period - 1].front());
  const auto before = static_cast<double>(snapshots_[period - 1].front() - snapshots_[period - 2].front());
  if (last < static_cast<double>(shortest) || std::abs(last - before) > tolerance * last) return false;
  left_out_ = count - 1 - period;
  return true;
}

void RepeatedPeriod::restore(const PeriodicRegions& periods, std::vector<RegionTiming>& regions,
                             TimingReport& report) const {
  if (left_out_ == 0) return;
  const TimingSnapshot& from = snapshots_[snapshots_.size() - 2];
  const TimingSnapshot& to = snapshots_.back();
  const Cycle length = to.front() - from.front();
  const auto times = static_cast<Cycle>(left_out_);
  report.skipped_periods = left_out_;
  report.total += times * length;
  for (std::size_t e = 0; e < kEngines; ++e) {
    EngineTime& time = report.engines[e];
    const EngineTime &a = from.engines[e], &b = to.engines[e];
    EngineTime period;
    period.busy = b.busy - a.busy;
    for (std::size_t c = 0; c < kCauses; ++c) period.stall[c] = b.stall[c] - a.stall[c];
    // An engine may have been slightly further ahead of the front end at one end of the period than at the other.
    Cycle& largest = *std::max_element(period.stall.begin(), period.stall.end());
    (period.busy > largest ? period.busy : largest) += length - period.total();
    time.busy += times * period.busy;
    for (std::size_t c = 0; c < kCauses; ++c) time.stall[c] += times * period.stall[c];
    time.settled = report.total;
  }
  for (std::size_t op = 0; op < report.ops.size(); ++op)
    report.ops[op].cycles += times * (to.op_cycles[op] - from.op_cycles[op]);
  for (std::size_t p = 0; p < kPipes; ++p) report.pipes[p] += times * (to.pipes[p] - from.pipes[p]);
  report.chained_reads += left_out_ * (to.chained - from.chained);
  report.port_cycles += left_out_ * (to.ports - from.ports);
  // regions[0] belongs to no region.
  const std::size_t reference = snapshots_.size() - 2, last = periods.begins.size() - 1;
  for (std::size_t p = reference + 1; p < last; ++p)
    for (std::size_t j = 0; j < periods.length; ++j) {
      RegionTiming& target = regions[1 + periods.first + p * periods.length + j];
      const RegionTiming& source = regions[1 + periods.first + reference * periods.length + j];
      const std::string name = target.name;
      const std::uint64_t visits = target.visits, instructions = target.instructions;
      target = source;
      target.name = name;
      target.visits = visits;
      target.instructions = instructions;
      target.first += static_cast<Cycle>(p - reference) * length;
      target.last += static_cast<Cycle>(p - reference) * length;
    }
  for (std::size_t r = 1 + periods.first + last * periods.length; r < regions.size(); ++r) {
    regions[r].first += times * length;
    regions[r].last += times * length;
  }
}

}  // namespace dllm::npu
