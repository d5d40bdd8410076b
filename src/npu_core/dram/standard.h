#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::npu::dram {

/// Time of a memory device: command clocks times `DramStandard::ticks_per_clock`. HBM3 needs half clocks, because its
/// precharges may use the falling edge.
using Tick = std::int64_t;

/// Minimum distances between commands, in ticks. Names are JEDEC's without the t.
struct Timing {
  Tick bl = 0;           ///< data bus time of a burst
  Tick cl = 0, cwl = 0;  ///< column command to first data
  Tick rcd_rd = 0, rcd_wr = 0, rp = 0, ras = 0, rc = 0;
  Tick wr = 0, rtp = 0;                  ///< last write data / read command to precharge
  Tick ccd_s = 0, ccd_l = 0, ccd_r = 0;  ///< column to column: other group, same group, other stack id (reads)
  Tick rrd_s = 0, rrd_l = 0, faw = 0;
  Tick wtr_s = 0, wtr_l = 0;  ///< last write data to read command
  Tick rtw = 0;               ///< read command to write command
  Tick ppd = 0;               ///< precharge to precharge
  Tick rfc = 0, rfc_pb = 0, rref_d = 0, refi = 0;

  Tick write_to_precharge() const { return cwl + bl + wr; }
  Tick write_to_read_s() const { return cwl + bl + wtr_s; }
  Tick write_to_read_l() const { return cwl + bl + wtr_l; }
};

/// One entry of the table of timing parameters, which is used to read the files and print the manual.
struct TimingField {
  std::string_view key;
  Tick Timing::* member;
  std::string_view meaning;
  bool required;
};
const std::vector<TimingField>& timing_fields();

/// The source of a timing value, according to its file.
struct TimingSource {
  std::string key, value, source;  ///< "rfc", "350 ns", "JESD235D, 8 Gb"
};

/// What a standard costs; the keys of a device with the same names replace these values.
struct DramCosts {
  double read_pj_per_byte = 0, write_pj_per_byte = 0;  ///< core
  double activate_pj = 0;                              ///< activation and precharge of a row
  double io_pj_per_byte = 0;                           ///< interface of both sides
  double background_mw = 0;                            ///< standby per pseudo-channel
  double phy_idle_w = 0;                               ///< interface of a stack, idle or not
  double phy_mm2 = 0;                                  ///< interface and controller on the chip, per stack
};

/// One DRAM generation at one speed: organisation, command costs, timing, energy. Read from a TOML file.
struct DramStandard {
  std::string name;    ///< "hbm2e-3200"
  std::string family;  ///< "HBM2e"
  std::string default_mapping;

  std::int64_t tck_fs = 0;  ///< clock period, femtoseconds
  int ticks_per_clock = 1;

  int channels_per_stack = 0;
  int pseudochannels = 1;
  int sids = 1;
  int bank_groups = 1;
  int banks_per_group = 1;
  int rows = 0;
  int columns = 0;      ///< bursts per row
  int burst_bytes = 0;  ///< per pseudo-channel

  bool shared_bus = false;  ///< one command bus for row and column commands
  Tick activate_ticks = 0, precharge_ticks = 0, column_ticks = 0, refresh_ticks = 0;
  bool refresh_bank_pairs = false;

  Timing timing;
  DramCosts costs;
  std::vector<TimingSource> sources;

  int banks() const { return sids * bank_groups * banks_per_group; }  ///< per pseudo-channel
  std::int64_t tick_fs() const { return tck_fs / ticks_per_clock; }
  double ticks_to_ns(double ticks) const { return ticks * static_cast<double>(tick_fs()) * 1e-6; }
  /// GB/s (1e9) of one pseudo-channel's data bus.
  double peak_gbps() const { return burst_bytes / ticks_to_ns(static_cast<double>(timing.bl)); }
  std::int64_t bytes_per_channel() const {
    return std::int64_t{pseudochannels} * banks() * rows * columns * burst_bytes;
  }
};

/// Errors: unknown or missing keys, contradictions (tRC < tRAS + tRP is allowed, tRAS > tRC is not), with the line.
Expected<DramStandard> parse_standard(std::string_view text, const std::string& file);

/// A shipped standard by name ("hbm2e-3200"), or a file by path. Errors: neither; parse errors.
Expected<DramStandard> load_standard(const std::string& name_or_path);

std::vector<std::string> standard_names();

}  // namespace dllm::npu::dram
