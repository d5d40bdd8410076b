#include "app/npu/dram_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "npu_core/dram/closed_form.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;
using namespace npu::dram;

constexpr std::pair<const char*, Tick TimeBreakdown::*> kCauses[] = {
    {"data", &TimeBreakdown::data}, {"refresh", &TimeBreakdown::refresh}, {"turnaround", &TimeBreakdown::turnaround},
    {"row", &TimeBreakdown::row},   {"column", &TimeBreakdown::column},   {"write_drain", &TimeBreakdown::mode},
    {"idle", &TimeBreakdown::idle}};

void add(PseudochannelStats& sum, const PseudochannelStats& s) {
  sum.reads += s.reads;
  sum.writes += s.writes;
  sum.row_hits += s.row_hits;
  sum.row_misses += s.row_misses;
  sum.row_conflicts += s.row_conflicts;
  sum.activates += s.activates;
  sum.precharges += s.precharges;
  sum.refreshes_all += s.refreshes_all;
  sum.refreshes_bank += s.refreshes_bank;
  for (const auto& [name, member] : kCauses) sum.time.*member += s.time.*member;
}

PseudochannelStats totals(const MemorySystem& memory) {
  PseudochannelStats sum;
  for (int c = 0; c < memory.config().channels; ++c)
    for (int p = 0; p < memory.config().standard.pseudochannels; ++p) add(sum, memory.stats(c, p));
  return sum;
}

double percent(Tick part, const TimeBreakdown& time) {
  return time.total() == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(time.total());
}

Json stats_json(const PseudochannelStats& s) {
  Json time;
  for (const auto& [name, member] : kCauses) time[std::string(name) + "_percent"] = percent(s.time.*member, s.time);
  return {{"read_bursts", s.reads},
          {"write_bursts", s.writes},
          {"row_hits", s.row_hits},
          {"row_misses", s.row_misses},
          {"row_conflicts", s.row_conflicts},
          {"activates", s.activates},
          {"precharges", s.precharges},
          {"refreshes_all_bank", s.refreshes_all},
          {"refreshes_per_bank", s.refreshes_bank},
          {"time", time}};
}

Json latency_json(const MemorySystem& memory, const LatencyHistogram& h) {
  const auto ns = [&memory](double ticks) { return memory.config().standard.ticks_to_ns(ticks); };
  Json buckets = Json::array();
  for (int i = 0; i < LatencyHistogram::kBuckets; ++i)
    if (const auto count = h.buckets()[static_cast<std::size_t>(i)]; count > 0)
      buckets.push_back({{"up_to_ns", ns(static_cast<double>(LatencyHistogram::upper_edge(i)))}, {"count", count}});
  return {{"count", h.count()},
          {"minimum_ns", ns(static_cast<double>(h.minimum()))},
          {"mean_ns", ns(h.mean())},
          {"p50_ns", ns(static_cast<double>(h.quantile(0.5)))},
          {"p99_ns", ns(static_cast<double>(h.quantile(0.99)))},
          {"maximum_ns", ns(static_cast<double>(h.maximum()))},
          {"histogram", buckets}};
}

Json closed_form_json(const MemoryConfig& config) {
  const ClosedForm f = closed_form(config);
  return {{"idle_read_ns", f.idle_read_ns},
          {"row_conflict_read_ns", f.conflict_read_ns},
          {"peak_gbps_per_pseudochannel", f.peak_gbps},
          {"one_bank_group_gbps", f.one_group_gbps},
          {"one_bank_new_rows_gbps", f.one_bank_gbps},
          {"random_rows_gbps", f.random_gbps},
          {"refresh_loss_percent", 100 * f.refresh_loss},
          {"refresh_loss_with_restart_percent", 100 * f.refresh_loss_with_restart}};
}

}  // namespace

Json dram_json(const MemorySystem& memory, const StreamResult& result) {
  const MemoryConfig& config = memory.config();
  Json json;
  json["configuration"] = {{"standard", config.standard.name},
                           {"channels", config.channels},
                           {"pseudochannels", memory.pseudochannels()},
                           {"mapping", memory.map().name()},
                           {"row_policy", config.row_policy == RowPolicy::kOpen     ? "open"
                                          : config.row_policy == RowPolicy::kClosed ? "closed"
                                                                                    : "timeout"},
                           {"refresh", config.refresh == RefreshMode::kNone      ? "none"
                                       : config.refresh == RefreshMode::kAllBank ? "all-bank"
                                                                                 : "per-bank"},
                           {"read_queue", config.read_queue},
                           {"write_queue", config.write_queue},
                           {"write_high", config.write_high},
                           {"write_low", config.write_low},
                           {"hit_cap", config.hit_cap}};
  json["result"] = {{"bytes", result.bytes},
                    {"seconds", result.seconds},
                    {"gbps", result.gbps},
                    {"gbps_per_pseudochannel", result.gbps / memory.pseudochannels()},
                    {"peak_gbps", config.peak_gbps()},
                    {"percent_of_peak", 100 * result.fraction_of_peak}};
  json["read_latency"] = latency_json(memory, memory.latencies(Access::kRead));
  json["write_latency"] = latency_json(memory, memory.latencies(Access::kWrite));
  json["closed_form"] = closed_form_json(config);
  json["total"] = stats_json(totals(memory));
  for (int c = 0; c < config.channels; ++c)
    for (int p = 0; p < config.standard.pseudochannels; ++p) {
      Json one = {{"channel", c}, {"pseudochannel", p}};
      one.update(stats_json(memory.stats(c, p)));
      json["pseudochannels"].push_back(one);
    }
  return json;
}

std::string dram_text(const MemorySystem& memory, const StreamResult& result) {
  const MemoryConfig& config = memory.config();
  const PseudochannelStats sum = totals(memory);
  const ClosedForm form = closed_form(config);
  std::string text =
      fmt::format("{} x {} channels, {}: {:.2f} GB/s of {:.1f} ({:.1f} %), {:.2f} GB/s per pseudo-channel, {:.3f} us\n",
                  config.standard.name, config.channels, memory.map().name(), result.gbps, config.peak_gbps(),
                  100 * result.fraction_of_peak, result.gbps / memory.pseudochannels(), result.seconds * 1e6);
  text += "time: ";
  for (const auto& [name, member] : kCauses)
    text += fmt::format("{}{} {:.2f} %", member == &TimeBreakdown::data ? "" : ", ", name,
                        percent(sum.time.*member, sum.time));
  text += fmt::format("\nrows: {} hits, {} misses, {} conflicts; {} activations, {} refreshes\n", sum.row_hits,
                      sum.row_misses, sum.row_conflicts, sum.activates, sum.refreshes_all + sum.refreshes_bank);
  for (const auto& [name, access] : {std::pair{"read", Access::kRead}, std::pair{"write", Access::kWrite}}) {
    const LatencyHistogram& h = memory.latencies(access);
    const auto ns = [&config](double ticks) { return config.standard.ticks_to_ns(ticks); };
    if (h.count() > 0)
      text += fmt::format("{} latency: min {:.1f}, mean {:.1f}, p50 {:.1f}, p99 {:.1f}, max {:.1f} ns\n", name,
                          ns(static_cast<double>(h.minimum())), ns(h.mean()), ns(static_cast<double>(h.quantile(0.5))),
                          ns(static_cast<double>(h.quantile(0.99))), ns(static_cast<double>(h.maximum())));
  }
  text += fmt::format(
      "theory: idle read {:.1f} ns, conflict {:.1f} ns; per pseudo-channel {:.2f} GB/s in one bank group, {:.2f} at "
      "random rows, {:.3f} in one bank; refresh {:.2f} % (with restart {:.2f} %)\n",
      form.idle_read_ns, form.conflict_read_ns, form.one_group_gbps, form.random_gbps, form.one_bank_gbps,
      100 * form.refresh_loss, 100 * form.refresh_loss_with_restart);
  return text;
}

std::string command_trace_text(const MemorySystem& memory) {
  const int ticks = memory.config().standard.ticks_per_clock;
  std::string text = "# clock channel pseudochannel command bank row column\n";
  for (const CommandRecord& r : memory.trace())
    text += fmt::format("{} {} {} {} {} {} {}\n", static_cast<double>(r.at) / ticks, r.channel, r.pseudochannel,
                        command_name(r.command), r.bank, r.row, r.column);
  return text;
}

Json standards_json() {
  Json json;
  for (const std::string& name : standard_names()) {
    const auto standard = load_standard(name);
    if (!standard) continue;  // the tests load every shipped one
    Json timing;
    for (const TimingSource& s : standard->sources) timing[s.key] = {{"value", s.value}, {"source", s.source}};
    json["standards"].push_back({{"name", name},
                                 {"family", standard->family},
                                 {"tck_ns", static_cast<double>(standard->tck_fs) * 1e-6},
                                 {"peak_gbps_per_pseudochannel", standard->peak_gbps()},
                                 {"pseudochannels_per_stack", standard->channels_per_stack * standard->pseudochannels},
                                 {"bytes_per_stack", standard->bytes_per_channel() * standard->channels_per_stack},
                                 {"timing", timing}});
  }
  json["mappings"] = mapping_names();
  return json;
}

std::string standards_text() {
  std::string text = fmt::format("{:<15} {:<8} {:>8} {:>10} {:>6} {:>10}\n", "standard", "family", "tCK ns",
                                 "GB/s per PC", "PCs", "GB/stack");
  const Json json = standards_json();
  for (const Json& s : json["standards"])
    text += fmt::format("{:<15} {:<8} {:>8.4f} {:>10.2f} {:>6} {:>10.1f}\n", s["name"].get<std::string>(),
                        s["family"].get<std::string>(), s["tck_ns"].get<double>(),
                        s["peak_gbps_per_pseudochannel"].get<double>(), s["pseudochannels_per_stack"].get<int>(),
                        s["bytes_per_stack"].get<double>() / (1 << 30));
  text += "mappings:";
  for (const std::string& name : mapping_names()) text += " " + name;
  return text + "\n";
}

}  // namespace dllm::app
