#include "npu_core/timing/report.h"
#include "npu_core/device/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dllm::npu {
namespace {

using Json = nlohmann::ordered_json;

double share(Cycle part, Cycle whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json causes_json(const std::array<Cycle, kCauses>& stall) {
  Json json = Json::object();
  for (std::size_t c = 0; c < kCauses; ++c)
    if (stall[c] != 0) json[std::string(name_of(static_cast<Cause>(c)))] = stall[c];
  return json;
}

Json engines_json(const TimingReport& report) {
  Json json = Json::object();
  for (std::size_t e = 0; e < kEngines; ++e) {
    const EngineTime& time = report.engines[e];
    json[std::string(name_of(static_cast<Engine>(e)))] = {{"busy_cycles", time.busy},
                                                          {"busy_share", share(time.busy, report.total)},
                                                          {"stall_cycles", causes_json(time.stall)}};
  }
  return json;
}

Json regions_json(const TimingReport& report) {
  Json list = Json::array();
  for (const RegionTiming& r : report.regions) {
    if (r.instructions == 0) continue;
    Json busy = Json::object();
    for (std::size_t e = 0; e < kEngines; ++e)
      if (r.busy[e] != 0) busy[std::string(name_of(static_cast<Engine>(e)))] = r.busy[e];
    list.push_back({{"name", r.name},
                    {"visits", r.visits},
                    {"instructions", r.instructions},
                    {"cycles", r.cycles},
                    {"share", share(r.cycles, report.total)},
                    {"first_cycle", std::max<Cycle>(0, r.first)},
                    {"last_cycle", r.last},
                    {"stall_cycles", causes_json(r.stall)},
                    {"busy_cycles", busy},
                    {"macs", r.macs},
                    {"read_bytes", r.read_bytes},
                    {"write_bytes", r.write_bytes}});
  }
  return list;
}

Json ops_json(const TimingReport& report) {
  Json json = Json::object();
  for (int op = 0; op < kOpCount; ++op) {
    const OpTiming& timing = report.ops[static_cast<std::size_t>(op)];
    if (timing.count == 0) continue;
    Json& entry = json[std::string(info(static_cast<Op>(op)).mnemonic)];
    const auto before = [&entry](const char* key) {
      return entry.is_null() ? std::int64_t{0} : entry.value(key, std::int64_t{0});
    };
    const std::int64_t count = before("count") + static_cast<std::int64_t>(timing.count);
    const std::int64_t cycles = before("cycles") + timing.cycles;
    entry = {{"count", count}, {"cycles", cycles}};
  }
  return json;
}

Json dram_json(const TimingReport& report) {
  const DramTiming& d = report.dram;
  const double all = d.data + d.refresh + d.turnaround + d.row + d.column + d.mode + d.idle;
  const auto part = [all](double value) { return all == 0 ? 0 : value / all; };
  return {{"read_bytes", report.read_bytes},
          {"write_bytes", report.write_bytes},
          {"gbps", d.elapsed_ns == 0 ? 0 : static_cast<double>(report.read_bytes + report.write_bytes) / d.elapsed_ns},
          {"pseudochannels", d.pseudochannels},
          {"time_share",
           {{"data", part(d.data)},
            {"refresh", part(d.refresh)},
            {"turnaround", part(d.turnaround)},
            {"row", part(d.row)},
            {"column", part(d.column)},
            {"mode", part(d.mode)},
            {"idle", part(d.idle)}}},
          {"row_hits", d.row_hits},
          {"row_misses", d.row_misses},
          {"row_conflicts", d.row_conflicts},
          {"refreshes", d.refreshes}};
}

}  // namespace

double TimingReport::seconds(const Device& device) const {
  return static_cast<double>(total) / (device.clock.ghz * 1e9);
}

Json machine_json(const MachineConfig& c) {
  return {{"blen", c.blen},
          {"mlen", c.mlen},
          {"vlen", c.vlen},
          {"hlen", c.hlen},
          {"vram_elements", c.vram_elements},
          {"mram_elements", c.mram_elements},
          {"fp_words", c.fp_words},
          {"int_words", c.int_words},
          {"hbm_bytes", c.hbm_bytes},
          {"loop_depth", c.loop_depth},
          {"prefetch_m_rows", c.prefetch_m_rows},
          {"prefetch_v_rows", c.prefetch_v_rows},
          {"store_v_rows", c.store_v_rows},
          {"weight", mx_format_name(c.weight)},
          {"matrix_kv", mx_format_name(c.matrix_kv)},
          {"activation", mx_format_name(c.activation)},
          {"vector_kv", mx_format_name(c.vector_kv)},
          {"matrix_input", mx_format_name(c.matrix_input)}};
}

Json timing_json(const TimingReport& report, const Device& device, const MachineConfig& machine,
                 const TimingOptions& options) {
  Json json = {
      {"total_cycles", report.total}, {"time_us", report.seconds(device) * 1e6}, {"instructions", report.instructions}};
  if (options.issue == IssueMode::kSerial)
    json["class_cycles"] = {{"matrix", report.classes.matrix}, {"vector", report.classes.vector},
                            {"scalar", report.classes.scalar}, {"control", report.classes.control},
                            {"memory", report.classes.memory}, {"hidden", report.classes.hidden}};
  json["engines"] = engines_json(report);
  json["regions"] = regions_json(report);
  json["instructions_by_mnemonic"] = ops_json(report);
  if (options.issue == IssueMode::kOverlapped) {
    Json pipes = Json::object();
    for (std::size_t p = 0; p < kPipes; ++p)
      if (report.pipes[p] != 0) pipes[std::string(name_of(static_cast<Pipe>(p)))] = report.pipes[p];
    json["vector_pipes_busy_cycles"] = pipes;
    json["vector_reads_chained"] = report.chained_reads;
    json["vram_port_cycles"] = report.port_cycles;
  }
  json["dram"] = dram_json(report);
  json["macs"] = report.macs;
  json["energy_j"] = report.joules;
  json["energy"] = energy_json(report.energy);
  json["area_mm2"] = area(device).total();
  json["instruction_bytes"] = report.instruction_bytes;
  json["simulation"] = {{"seconds", report.host_seconds},
                        {"instructions_per_second",
                         report.host_seconds > 0 ? static_cast<double>(report.instructions) / report.host_seconds : 0},
                        {"periods_repeated", report.skipped_periods},
                        {"instructions_repeated", report.skipped_instructions}};
  json["config"] = {
      {"timing", timing_options_json(options)}, {"machine", machine_json(machine)}, {"device", device_json(device)}};
  return json;
}

std::string timing_text(const TimingReport& report, const Device& device) {
  std::string text =
      fmt::format("{} cycles, {:.4f} ms at {} GHz; {} instructions; DRAM {:.1f} GB/s of {:.1f}\n", report.total,
                  report.seconds(device) * 1e3, device.clock.ghz, report.instructions,
                  report.dram.elapsed_ns == 0
                      ? 0.0
                      : static_cast<double>(report.read_bytes + report.write_bytes) / report.dram.elapsed_ns,
                  device.memory_gbps());
  text += fmt::format("\n{:<13}{:>7}  stalled\n", "engine", "busy");
  for (std::size_t e = 0; e < kEngines; ++e) {
    const EngineTime& time = report.engines[e];
    if (time.busy == 0) continue;
    text += fmt::format("{:<13}{:>6.1f}%", name_of(static_cast<Engine>(e)), 100 * share(time.busy, report.total));
    std::vector<std::pair<Cycle, std::size_t>> order;
    for (std::size_t c = 0; c < kCauses; ++c)
      if (time.stall[c] > 0) order.emplace_back(time.stall[c], c);
    std::sort(order.rbegin(), order.rend());
    for (const auto& [cycles, c] : order)
      text += fmt::format("  {} {:.1f}%", name_of(static_cast<Cause>(c)), 100 * share(cycles, report.total));
    text += '\n';
  }
  text += fmt::format("\n{:<24}{:>12}{:>8}{:>14}{:>12}{:>12}\n", "region", "cycles", "share", "instructions",
                      "matrix busy", "vector busy");
  for (const RegionTiming& r : report.regions)
    if (r.instructions > 0)
      text += fmt::format("{:<24}{:>12}{:>7.1f}%{:>14}{:>12}{:>12}\n", r.name.empty() ? "(none)" : r.name, r.cycles,
                          100 * share(r.cycles, report.total), r.instructions, r.busy[index_of(Engine::kMatrix)],
                          r.busy[index_of(Engine::kVector)]);
  return text;
}

}  // namespace dllm::npu
