#include "npu_core/timing/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dllm::npu {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};
constexpr std::uint32_t kRegionGroup = 0;
constexpr std::uint32_t kTracksPerGroup = 1024;
constexpr std::int64_t kWindows = 2000;     ///< of the counters, maximum
constexpr Cycle kShortestWindow = 100;      ///< cycles
constexpr std::uint32_t kRowsLinked = 256;  ///< of a written range

/// Escapes names of regions, which come from programs, for JSON.
std::string json_text(std::string_view text) { return nlohmann::json(std::string(text)).dump(); }

std::uint64_t cell(Space space, std::uint64_t address) {
  // An accumulator is one cell, whichever part of it an instruction accesses.
  return static_cast<std::uint64_t>(space) << 56 | (space >= Space::kAccMm ? 0 : address);
}

bool is_transfer(const ExecutedInstruction& executed) {
  const Unit unit = executed.event->info->unit;
  return unit == Unit::kLoad || unit == Unit::kStore;
}

Engine transfer_engine(Op op) {
  return op == Op::H_STORE_V ? Engine::kStore : op == Op::H_PREFETCH_V ? Engine::kLoadVector : Engine::kLoadMatrix;
}

}  // namespace

PerfettoTrace::PerfettoTrace(const Program& program, double period_ns, std::uint64_t limit)
    : program_(program), period_us_(period_ns * 1e-3), limit_(limit) {
  groups_.push_back({"regions", {}});
}

bool PerfettoTrace::room() {
  if (events_ < limit_) return ++events_, true;
  ++dropped_;
  return false;
}

std::uint32_t PerfettoTrace::group_of(Engine engine, Pipe pipe) {
  if (engine != Engine::kVector) pipe = Pipe::kNone;
  const auto [at, added] = group_index_.try_emplace({engine, pipe}, static_cast<std::uint32_t>(groups_.size()));
  if (added) {
    std::string name(name_of(engine));
    if (pipe != Pipe::kNone) name += fmt::format(" {}", name_of(pipe));
    groups_.push_back({std::move(name), {}});
  }
  return at->second;
}

/// Uses the first free track of the group; starts within a group do not decrease.
std::uint64_t PerfettoTrace::slice(std::uint32_t group, Cycle start, Cycle end, std::string_view name,
                                   std::string args) {
  if (!room()) return kNone;
  std::vector<Cycle>& free = groups_[group].free;
  auto track = std::find_if(free.begin(), free.end(), [start](Cycle until) { return until <= start; });
  if (track == free.end()) track = free.insert(free.end(), 0);
  end = std::max(end, start + 1);
  *track = end;
  slices_.push_back({group, static_cast<std::uint32_t>(track - free.begin()), start, end, name, std::move(args)});
  return slices_.size() - 1;
}

void PerfettoTrace::end_region(Cycle at) {
  if (region_ == ~std::uint32_t{0} || region_ == 0 || at <= region_start_) return;
  slice(kRegionGroup, region_start_, at, program_.regions[region_ - 1].name, "");
}

void PerfettoTrace::region(const ExecutedInstruction& executed) {
  if (executed.region != region_ || executed.dispatched > region_end_ + 1000000) {
    end_region(std::min(region_end_, executed.dispatched));
    region_ = executed.region;
    region_start_ = executed.dispatched;
  }
  region_end_ = std::max(region_end_, executed.dispatched + 1);
}

void PerfettoTrace::instruction(const ExecutedInstruction& executed) {
  region(executed);
  const Instruction& instruction = *executed.event->instruction;
  const std::uint64_t index = slice(
      group_of(executed.engine, executed.pipe), executed.start, executed.busy_until, executed.event->info->mnemonic,
      fmt::format("\"instruction\":{},\"text\":{},\"dispatched\":{},\"ready\":{}", executed.event->index,
                  json_text(to_text(instruction)), executed.dispatched, executed.done));
  Producer self{executed.engine, index, false};
  if (is_transfer(executed) && executed.engine == Engine::kFrontEnd) {
    self.engine = transfer_engine(instruction.op);
    self.number = asked_[self.engine]++;
    self.transfer = true;
  }
  link(executed, self, index);
}

/// Adds flows into this instruction, and records its own results for later ones.
void PerfettoTrace::link(const ExecutedInstruction& executed, const Producer& self, std::uint64_t consumer) {
  const ResolvedAccesses& accesses = *executed.event->accesses;
  for (int i = 0; i < accesses.count; ++i) {
    const MemoryRange& range = accesses[i];
    if (range.access == Access::kWrite || range.space == Space::kHbm || consumer == kNone) continue;
    const auto found = writer_.find(cell(range.space, range.base));
    if (found == writer_.end() || !room()) continue;
    flows_.push_back({found->second, consumer});
  }
  if (!self.transfer && self.number == kNone) return;
  for (int i = 0; i < accesses.count; ++i) {
    const MemoryRange& range = accesses[i];
    if (range.access == Access::kRead || range.space == Space::kHbm) continue;
    for (std::uint32_t row = 0; row < std::min(range.rows, kRowsLinked); ++row)
      writer_[cell(range.space, range.base + row * range.row_stride)] = self;
  }
}

void PerfettoTrace::transfer(const FinishedTransfer& finished) {
  const TransferRequest& request = finished.request;
  finished_[request.engine].push_back(slice(group_of(request.engine, Pipe::kNone), request.start, finished.done,
                                            name_of(request.engine),
                                            fmt::format("\"bytes\":{},\"tag\":{}", finished.bytes, request.tag)));
  if (moved_.size() < limit_)
    moved_.push_back({request.start, finished.done, finished.bytes, request.engine == Engine::kStore});
}

std::string PerfettoTrace::flow_text(const Slice& from, const Slice& to, std::uint64_t id) const {
  const auto event = [&](char phase, const Slice& s, std::string_view more) {
    return fmt::format(
        ",\n{{\"ph\":\"{}\",\"pid\":1,\"tid\":{},\"ts\":{:.6f},\"cat\":\"row\",\"id\":{},\"name\":\"row\"{}}}", phase,
        s.group * kTracksPerGroup + s.track + 1, static_cast<double>(s.start) * period_us_, id, more);
  };
  return event('s', from, "") + event('f', to, ",\"bp\":\"e\"");
}

/// Bytes of each transfer, spread evenly over its time.
std::string PerfettoTrace::counters(const TimingReport& report) const {
  const Cycle window = std::max(kShortestWindow, report.total / kWindows + 1);
  const auto count = static_cast<std::size_t>(report.total / window + 1);
  std::vector<double> bytes[2] = {std::vector<double>(count), std::vector<double>(count)};
  for (const Moved& m : moved_) {
    const double rate = static_cast<double>(m.bytes) / static_cast<double>(std::max<Cycle>(1, m.end - m.start));
    for (Cycle at = m.start; at < std::max(m.end, m.start + 1);) {
      const Cycle next = std::min((at / window + 1) * window, std::max(m.end, m.start + 1));
      const auto slot = std::min(static_cast<std::size_t>(at / window), count - 1);
      bytes[m.write ? 1 : 0][slot] += rate * static_cast<double>(next - at);
      at = next;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < count && !moved_.empty(); ++i)
    text += fmt::format(
        ",\n{{\"ph\":\"C\",\"pid\":1,\"ts\":{:.6f},\"name\":\"DRAM "
        "GB/s\",\"args\":{{\"read\":{:.3f},\"write\":{:.3f}}}}}",
        static_cast<double>(window * static_cast<Cycle>(i)) * period_us_,
        bytes[0][i] / (static_cast<double>(window) * period_us_ * 1e3),
        bytes[1][i] / (static_cast<double>(window) * period_us_ * 1e3));
  return text;
}

std::string PerfettoTrace::text(const TimingReport& report) const {
  std::string text =
      "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"NPU\"}}";
  const auto add = [&](const Slice& s) {
    text +=
        fmt::format(",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.6f},\"dur\":{:.6f},\"name\":{},\"args\":{{{}}}}}",
                    s.group * kTracksPerGroup + s.track + 1, static_cast<double>(s.start) * period_us_,
                    static_cast<double>(s.end - s.start) * period_us_, json_text(s.name), s.args);
  };
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t t = 0; t < std::max<std::size_t>(groups_[g].free.size(), g == kRegionGroup ? 1 : 0); ++t)
      text += fmt::format(
          ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}",
          g * kTracksPerGroup + t + 1,
          json_text(groups_[g].free.size() > 1 ? fmt::format("{} {}", groups_[g].name, t) : groups_[g].name));
  for (const Slice& s : slices_) add(s);
  if (region_ != ~std::uint32_t{0} && region_ != 0 && region_end_ > region_start_)
    add({kRegionGroup, 0, region_start_, region_end_, program_.regions[region_ - 1].name, ""});
  std::uint64_t id = 0;
  for (const Flow& flow : flows_) {
    std::uint64_t from = flow.from.number;
    if (flow.from.transfer) {
      const auto engine = finished_.find(flow.from.engine);
      from = engine == finished_.end() || from >= engine->second.size() ? kNone : engine->second[from];
    }
    if (from != kNone) text += flow_text(slices_[from], slices_[flow.to], ++id);
  }
  text += counters(report);
  text += fmt::format("\n],\"otherData\":{{\"cycles\":{},\"events_dropped\":{}}}}}\n", report.total, dropped_);
  return text;
}

}  // namespace dllm::npu
