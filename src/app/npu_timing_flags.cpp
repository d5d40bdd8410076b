#include "app/npu_timing_flags.h"

#include <fmt/format.h>

#include "app/npu_program.h"
#include "app/options.h"

namespace dllm::app {
namespace {

constexpr std::size_t kRegionTrack = npu::kEngines;

/// For JSON strings; names of regions come from programs.
std::string json_text(std::string_view text) { return nlohmann::json(std::string(text)).dump(); }

}  // namespace

void TimingFlags::number(Flags& flags, const char* name, const char* help, int& target) {
  flags.add({.names = {name},
             .value = "N",
             .help = help,
             .default_text = fmt::format("{}", target),
             .apply = [&target](const std::string& text) -> Expected<void> {
               const auto value = parse_number<int>(text);
               if (!value) return bad_value(fmt::format("'{}' is no whole number", text));
               target = *value;  // TimingOptions::validate() knows the ranges
               return {};
             }});
}

void TimingFlags::add(Flags& flags) {
  flags.group("Issue");
  flags.add({.names = {"--issue"},
             .value = "MODE",
             .help = "overlapped: in order into the units' queues; serial: one instruction at a time, as published",
             .default_text = "overlapped",
             .choices = {"overlapped", "serial"},
             .apply = [this](const std::string& text) -> Expected<void> {
               const auto mode = npu::issue_mode_from_name(text);
               if (!mode) return bad_value(fmt::format("'{}' is unknown", text), "overlapped or serial");
               options.issue = *mode;
               return {};
             }});
  number(flags, "--issue-width", "instructions dispatched per cycle", options.width);
  number(flags, "--issue-queue", "instructions that wait in front of a unit", options.queue);
  number(flags, "--vector-starts", "vector instructions that start per cycle, on different pipes",
         options.vector_starts);
  number(flags, "--accumulators", "results of the array that wait for their write-out; 1: no double buffering",
         options.accumulators);
  const auto off = [&flags](const char* name, const char* help, bool& target, bool value) {
    flags.add({.names = {name}, .help = help, .apply = [&target, value](const std::string& text) -> Expected<void> {
                 const auto given = parse_bool(text);
                 if (!given) return bad_value(fmt::format("'{}' is no truth value", text));
                 target = *given ? value : !value;
                 return {};
               }});
  };
  off("--no-chaining", "read every operand from the vector SRAM, start one vector instruction per cycle",
      options.chaining, false);
  off("--blocking-transfers", "a transfer holds the front end until its last byte", options.asynchronous, false);
  off("--compat-mlen", "M_MM takes MLEN cycles, as in PLENA's emulator", options.compat_mlen, true);
  off("--compat-scale64", "one 64-byte scale block per vector, as in d-PLENA's", options.compat_scale64, true);
}

PerfettoTrace::PerfettoTrace(const npu::Program& program, double period_ns, std::uint64_t limit)
    : program_(program), period_us_(period_ns * 1e-3), limit_(limit) {}

bool PerfettoTrace::room() {
  if (events_ < limit_) return ++events_, true;
  ++dropped_;
  return false;
}

void PerfettoTrace::slice(std::size_t track, std::string_view name, npu::Cycle start, npu::Cycle end,
                          const std::string& args) {
  text_ += fmt::format(
      ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.6f},\"dur\":{:.6f},\"name\":{},\"args\":{{{}}}}}", track + 1,
      static_cast<double>(start) * period_us_, static_cast<double>(end - start) * period_us_, json_text(name), args);
}

void PerfettoTrace::instruction(const npu::ExecutedInstruction& executed) {
  if (executed.region != region_ || executed.dispatched > region_end_ + 1000000) {
    if (region_ != ~std::uint32_t{0} && region_ != 0 && room())
      slice(kRegionTrack, program_.regions[region_ - 1].name, region_start_, region_end_, "");
    region_ = executed.region;
    region_start_ = executed.dispatched;
  }
  region_end_ = std::max(region_end_, executed.dispatched + 1);
  if (executed.event->info->unit == npu::Unit::kLoad || executed.event->info->unit == npu::Unit::kStore) return;
  if (!room()) return;
  slice(npu::index_of(executed.engine), executed.event->info->mnemonic, executed.start,
        std::max(executed.done, executed.start + 1),
        fmt::format("\"instruction\":{},\"text\":{},\"dispatched\":{}", executed.event->index,
                    json_text(npu::to_text(*executed.event->instruction)), executed.dispatched));
}

void PerfettoTrace::transfer(const npu::FinishedTransfer& finished) {
  if (!room()) return;
  // Transfers of an engine overlap each other: asynchronous events, which viewers stack.
  const auto event = [&](char phase, npu::Cycle at) {
    text_ += fmt::format(
        ",\n{{\"ph\":\"{}\",\"pid\":1,\"tid\":{},\"ts\":{:.6f},\"cat\":\"dma\",\"id\":{},\"name\":\"{}\","
        "\"args\":{{\"bytes\":{},\"tag\":{}}}}}",
        phase, npu::index_of(finished.request.engine) + 1, static_cast<double>(at) * period_us_, events_,
        npu::name_of(finished.request.engine), finished.bytes, finished.request.tag);
  };
  event('b', finished.request.start);
  event('e', finished.done);
}

Expected<void> PerfettoTrace::write(const std::string& path, const npu::TimingReport& report) const {
  std::string text =
      "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"NPU\"}}";
  for (std::size_t track = 0; track <= npu::kEngines; ++track)
    text +=
        fmt::format(",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}}",
                    track + 1, track == kRegionTrack ? "regions" : npu::name_of(static_cast<npu::Engine>(track)));
  text += text_;
  text += fmt::format("\n],\"otherData\":{{\"cycles\":{},\"events_dropped\":{}}}}}\n", report.total, dropped_);
  return write_bytes(path, text);
}

}  // namespace dllm::app
