#pragma once

#include <string>

#include "app/flags.h"
#include "npu/timing/simulator.h"

namespace dllm::app {

/// How instructions are issued: --issue and the front end's numbers, shared by the verbs that simulate time.
struct TimingFlags {
  npu::TimingOptions options;

  void add(Flags& flags);

 private:
  void number(Flags& flags, const char* name, const char* help, int& target);
};

/// A Chrome JSON trace, for ui.perfetto.dev: a track per engine, regions above them. Written on close().
class PerfettoTrace final : public npu::TraceSink {
 public:
  /// `period_ns`: of the device's clock. At most `limit` events; the first are kept.
  PerfettoTrace(const npu::Program& program, double period_ns, std::uint64_t limit);
  void instruction(const npu::ExecutedInstruction& executed) override;
  void transfer(const npu::FinishedTransfer& finished) override;

  std::uint64_t dropped() const { return dropped_; }
  Expected<void> write(const std::string& path, const npu::TimingReport& report) const;

 private:
  bool room();
  void slice(std::size_t track, std::string_view name, npu::Cycle start, npu::Cycle end, const std::string& args);

  const npu::Program& program_;
  double period_us_;
  std::uint64_t limit_, events_ = 0, dropped_ = 0;
  std::string text_;
  std::uint32_t region_ = ~std::uint32_t{0};
  npu::Cycle region_start_ = 0, region_end_ = 0;
};

}  // namespace dllm::app
