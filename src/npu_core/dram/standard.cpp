#include "npu_core/dram/standard.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/try.h"
#include "format/toml_table.h"
#include "npu_core/config/named_file.h"

namespace dllm::npu::dram {
namespace {

constexpr std::string_view kFolder = "dram/";

/// Nanoseconds round up to whole clocks: a delay may become longer, never shorter. The tolerance handles 15 / 0.625,
/// which is not exact in binary.
Tick clocks_of_ns(double ns, std::int64_t tck_fs) {
  return static_cast<Tick>(std::ceil(ns * 1e6 / static_cast<double>(tck_fs) - 1e-6));
}

Expected<Tick> read_timing(TomlTable& timing, const TimingField& field, DramStandard& standard) {
  DLLM_TRY(TomlTable entry, timing.table(field.key));
  DLLM_TRY(const std::optional<double> clocks, entry.optional_number("clk"));
  DLLM_TRY(const std::optional<double> ns, entry.optional_number("ns"));
  DLLM_TRY(const std::optional<double> minimum, entry.optional_number("min_clk"));
  DLLM_TRY(const std::string source, entry.text("source"));
  DLLM_CHECK_OK(entry.finish());
  if (clocks.has_value() == ns.has_value())
    return timing.error(field.key, fmt::format("'{}' must have either 'clk' or 'ns'", field.key));
  const double value = clocks ? *clocks : static_cast<double>(clocks_of_ns(*ns, standard.tck_fs));
  if (value < 0 || value > 1e9 || value != std::floor(value))
    return timing.error(field.key, fmt::format("'{}' must be a whole number of clocks >= 0", field.key));
  standard.sources.push_back(
      {std::string(field.key), clocks ? fmt::format("{} clk", *clocks) : fmt::format("{} ns", *ns), source});
  return static_cast<Tick>(std::max(value, minimum.value_or(0))) * standard.ticks_per_clock;
}

Expected<void> read_timings(TomlTable& root, DramStandard& standard) {
  DLLM_TRY(TomlTable timing, root.table("timing"));
  for (const TimingField& field : timing_fields()) {
    if (!field.required && !timing.contains(field.key)) continue;
    DLLM_TRY(standard.timing.*field.member, read_timing(timing, field, standard));
  }
  DLLM_CHECK_OK(timing.finish());
  Timing& t = standard.timing;
  if (t.rtw == 0) t.rtw = t.cl + t.bl + 2 * standard.ticks_per_clock - t.cwl;
  if (t.ccd_r == 0) t.ccd_r = t.ccd_s;
  if (t.ras > t.rc) return timing.error("ras", "tRAS is longer than tRC", "tRC spans activation to activation");
  if (t.bl == 0 || t.ccd_s < t.bl || t.ccd_l < t.ccd_s)
    return timing.error("bl", "0 < BL <= CCD_S <= CCD_L does not hold");
  if (t.refi > 0 && t.rfc + t.rp >= t.refi) return timing.error("rfc", "tRFC leaves no time within tREFI");
  if (t.rtw <= 0) return timing.error("cwl", "the read to write delay is not positive", "set 'rtw'");
  return {};
}

struct IntegerField {
  std::string_view key;
  int DramStandard::* member;
  bool power_of_two;
};

Expected<void> read_organisation(TomlTable& root, DramStandard& standard) {
  static constexpr std::array<IntegerField, 8> kFields = {{
      {"channels_per_stack", &DramStandard::channels_per_stack, true},
      {"pseudochannels", &DramStandard::pseudochannels, true},
      {"sids", &DramStandard::sids, true},
      {"bank_groups", &DramStandard::bank_groups, true},
      {"banks_per_group", &DramStandard::banks_per_group, true},
      {"rows", &DramStandard::rows, true},
      {"columns", &DramStandard::columns, true},
      {"burst_bytes", &DramStandard::burst_bytes, true},
  }};
  DLLM_TRY(TomlTable organisation, root.table("organisation"));
  for (const IntegerField& field : kFields) {
    DLLM_TRY(const std::int64_t value, organisation.integer(field.key));
    if (value < 1 || value > (1 << 24) || !std::has_single_bit(static_cast<std::uint64_t>(value)))
      return organisation.error(field.key, fmt::format("'{}' is {}", field.key, value),
                                "it must be a power of two between 1 and 16777216");
    standard.*field.member = static_cast<int>(value);
  }
  DLLM_CHECK_OK(organisation.finish());
  if (standard.banks() > 64 || standard.pseudochannels > 4)
    return organisation.error("banks_per_group", "more than 64 banks per pseudo-channel or 4 pseudo-channels");
  return {};
}

Expected<void> read_commands(TomlTable& root, DramStandard& standard) {
  DLLM_TRY(TomlTable commands, root.table("commands"));
  DLLM_TRY(standard.shared_bus, commands.boolean("shared_bus"));
  DLLM_TRY(standard.refresh_bank_pairs, commands.boolean("refresh_bank_pairs"));
  const std::array<std::pair<std::string_view, Tick*>, 4> costs = {{{"activate", &standard.activate_ticks},
                                                                    {"precharge", &standard.precharge_ticks},
                                                                    {"column", &standard.column_ticks},
                                                                    {"refresh", &standard.refresh_ticks}}};
  for (const auto& [key, target] : costs) {
    DLLM_TRY(const double clocks, commands.number(key));
    const double ticks = clocks * standard.ticks_per_clock;
    if (ticks < 1 || ticks > 64 || ticks != std::floor(ticks))
      return commands.error(key, fmt::format("'{}' must be a whole number of ticks", key),
                            fmt::format("a clock has {} here", standard.ticks_per_clock));
    *target = static_cast<Tick>(ticks);
  }
  return commands.finish();
}

/// All are required: a standard without a price would be free.
Expected<void> read_costs(TomlTable& root, DramStandard& standard) {
  static constexpr std::array<std::pair<std::string_view, double DramCosts::*>, 7> kFields = {{
      {"read_pj_per_byte", &DramCosts::read_pj_per_byte},
      {"write_pj_per_byte", &DramCosts::write_pj_per_byte},
      {"activate_pj", &DramCosts::activate_pj},
      {"io_pj_per_byte", &DramCosts::io_pj_per_byte},
      {"background_mw", &DramCosts::background_mw},
      {"phy_idle_w", &DramCosts::phy_idle_w},
      {"phy_mm2", &DramCosts::phy_mm2},
  }};
  DLLM_TRY(TomlTable costs, root.table("costs"));
  for (const auto& [key, member] : kFields) {
    DLLM_TRY(standard.costs.*member, costs.number(key));
    if (!(standard.costs.*member > 0 && standard.costs.*member <= 1e6))
      return costs.error(key, fmt::format("'{}' is {}", key, standard.costs.*member), "it must be above 0");
  }
  return costs.finish();
}

}  // namespace

const std::vector<TimingField>& timing_fields() {
  static const std::vector<TimingField> fields = {
      {"bl", &Timing::bl, "data bus time of a burst", true},
      {"cl", &Timing::cl, "read command to first data", true},
      {"cwl", &Timing::cwl, "write command to first data", true},
      {"rcd_rd", &Timing::rcd_rd, "activation to read", true},
      {"rcd_wr", &Timing::rcd_wr, "activation to write", true},
      {"rp", &Timing::rp, "precharge to activation", true},
      {"ras", &Timing::ras, "activation to precharge", true},
      {"rc", &Timing::rc, "activation to activation, same bank", true},
      {"wr", &Timing::wr, "last write data to precharge", true},
      {"rtp", &Timing::rtp, "read command to precharge", true},
      {"ccd_s", &Timing::ccd_s, "column to column, other bank group", true},
      {"ccd_l", &Timing::ccd_l, "column to column, same bank group", true},
      {"ccd_r", &Timing::ccd_r, "read to read, other stack id", false},
      {"rrd_s", &Timing::rrd_s, "activation to activation, other bank group", true},
      {"rrd_l", &Timing::rrd_l, "activation to activation, same bank group", true},
      {"faw", &Timing::faw, "window of four activations", true},
      {"wtr_s", &Timing::wtr_s, "last write data to read, other bank group", true},
      {"wtr_l", &Timing::wtr_l, "last write data to read, same bank group", true},
      {"rtw", &Timing::rtw, "read command to write command; CL + BL + 2 - CWL unless given", false},
      {"ppd", &Timing::ppd, "precharge to precharge", false},
      {"rfc", &Timing::rfc, "all-bank refresh time", true},
      {"rfc_pb", &Timing::rfc_pb, "per-bank refresh time", true},
      {"rref_d", &Timing::rref_d, "per-bank refresh to activation or refresh of another bank", true},
      {"refi", &Timing::refi, "refresh interval", true},
  };
  return fields;
}

Expected<DramStandard> parse_standard(std::string_view text, const std::string& file) {
  DramStandard standard;
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  DLLM_TRY(standard.name, root.text("name"));
  DLLM_TRY(standard.family, root.text("family"));
  DLLM_TRY(standard.default_mapping, root.text("default_mapping"));
  DLLM_TRY(TomlTable clock, root.table("clock"));
  DLLM_TRY(const double tck_ps, clock.number("tck_ps"));
  DLLM_TRY(const std::int64_t ticks, clock.integer("ticks_per_clock"));
  DLLM_CHECK_OK(clock.finish());
  if (!(tck_ps >= 1 && tck_ps <= 1e6)) return clock.error("tck_ps", "the clock period is outside 1 ps .. 1 us");
  if (ticks != 1 && ticks != 2) return clock.error("ticks_per_clock", "a clock has 1 or 2 ticks");
  standard.ticks_per_clock = static_cast<int>(ticks);
  standard.tck_fs = std::llround(tck_ps * 1000);
  if (standard.tck_fs % ticks != 0) return clock.error("tck_ps", "the period does not divide into the ticks");
  DLLM_CHECK_OK(read_organisation(root, standard));
  DLLM_CHECK_OK(read_commands(root, standard));
  DLLM_CHECK_OK(read_timings(root, standard));
  DLLM_CHECK_OK(read_costs(root, standard));
  DLLM_CHECK_OK(root.finish());
  return standard;
}

Expected<DramStandard> load_standard(const std::string& name_or_path) {
  DLLM_TRY(const NamedText named,
           read_named(core_profiles(), kFolder, "DRAM standard", name_or_path, standard_names()));
  return parse_standard(named.text, named.file);
}

std::vector<std::string> standard_names() {
  std::vector<std::string> names = shipped_names(core_profiles(), kFolder);
  std::erase(names, "mappings");  // for all standards (AddressMap)
  return names;
}

}  // namespace dllm::npu::dram
