#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu/dram/config.h"

namespace dllm::npu {

/// A device profile: everything about an NPU that the compiler, the simulators and the models ask for. Read from TOML;
/// device_fields() is the one list of its keys.
struct Device {
  std::string name;
  std::string summary;

  struct Array {
    std::int64_t blen = 0;          ///< rows and columns of a systolic sub-array
    std::int64_t mlen = 0;          ///< lanes along K: MLEN / BLEN sub-arrays
    std::int64_t vlen = 0;          ///< vector lanes
    std::int64_t hlen = 0;          ///< lanes of one attention head (MLEN / HLEN heads are batched)
    double tile_cycles = 0;         ///< cycles of an M_MM, BLEN x MLEN x BLEN multiply-accumulates; BLEN is one per PE
    std::int64_t vector_units = 1;  ///< vector contexts that run at once
  } array;

  struct Clock {
    double ghz = 1;
  } clock;

  struct Sram {
    std::int64_t matrix_tiles = 0;  ///< tiles of MLEN x MLEN
    std::int64_t vector_rows = 0;   ///< rows of VLEN BF16
    std::int64_t fp_words = 0, int_words = 0;
    std::int64_t vector_ports = 2;
  } sram;

  struct Memory {
    std::string standard;
    std::int64_t stacks = 1;
    std::string mapping;  ///< empty: the standard's
    std::string row_policy = "open";
    std::string refresh = "all-bank";
    double dma_gbps = 0;  ///< what the DMA engines move at most; 0: as much as the memory
    double frontend_ns = 0;
  } memory;

  struct Prefetch {
    std::int64_t matrix_rows = 64, vector_rows = 4, writeback_rows = 4;
    std::int64_t outstanding = 64;  ///< transfers in flight
  } prefetch;

  struct Latency {  ///< cycles of one vector of VLEN lanes, and of scalar operations
    std::int64_t vector_add = 2, vector_mul = 1, vector_exp = 1, vector_reci = 2, vector_max = 4, vector_sum = 8;
    std::int64_t scalar_fp = 1, scalar_special = 1, scalar_int = 1;
    std::int64_t prefix_scan = 9, shift = 1;
  } latency;

  struct Numerics {
    std::string weight = "mxint4:32:plena", activation = "mxint8:32:ocp", kv = "mxint4:32:plena";
    std::string logits = "mxfp8_e4m3:32:ocp";
  } numerics;

  struct Host {                    ///< how work reaches the device
    double dispatch_us = 0;        ///< per operator
    double batch_us = 0;           ///< per batch of operators
    std::int64_t batch_ops = 256;  ///< operators per batch
    double dequantize_gbps = 0;    ///< weights turned into tiles by vector code; 0: by hardware, for nothing
  } host;

  struct Window {                    ///< addresses the device sees at once
    std::int64_t bytes = 0;          ///< 0: all of memory
    std::int64_t staging_bytes = 0;  ///< double buffer for what does not fit
    double map_us = 0;               ///< per mapping
    double map_us_per_page = 0;
    std::int64_t page_bytes = 4096;
  } window;

  struct Energy {
    double mac_pj = 0;          ///< per multiply-accumulate
    double vector_lane_pj = 0;  ///< per lane and cycle of work
    double sram_pj_per_byte = 0;
    double dram_read_pj_per_byte = 0, dram_write_pj_per_byte = 0;
    double dram_activate_pj = 0;  ///< per activation and its precharge
    double dram_io_pj_per_byte = 0;
    double dram_background_mw = 0;  ///< per pseudo-channel
    double static_w = 0;            ///< leakage and clock of the chip
  } energy;

  dram::MemoryConfig memory_config;  ///< resolved from `memory`

  double peak_tops() const;        ///< 1e12 operations (two per multiply-accumulate) per second
  double memory_gbps() const;      ///< peak of the memory, or of the DMA engines if lower
  std::int64_t period_fs() const;  ///< of the clock
  std::int64_t vector_sram_bytes() const { return sram.vector_rows * array.vlen * 2; }
};

/// One key of a profile.
struct DeviceField {
  std::string_view section, key;
  enum Kind { kInteger, kNumber, kText } kind;
  std::int64_t& (*integer)(Device&);
  double& (*number)(Device&);
  std::string& (*text)(Device&);
  double minimum, maximum;  ///< of numbers
  std::string_view unit, meaning;
};
const std::vector<DeviceField>& device_fields();

/// `key=value` as given to --set: "array.vlen=1024".
struct Override {
  std::string key, value;
};
/// Errors: no '='.
Expected<Override> parse_override(std::string_view text);

/// Reads a profile. `base = "NAME"` starts from a shipped profile; without it every key must be there. Errors: unknown
/// keys, values out of range and contradictions between keys, with line and hint.
Expected<Device> parse_device(std::string_view text, const std::string& file,
                              const std::vector<Override>& overrides = {});

/// A shipped profile by name, or a file by path.
Expected<Device> load_device(const std::string& name_or_path, const std::vector<Override>& overrides = {});

std::vector<std::string> device_names();

/// Every key with its value, grouped by section, and what follows from them.
nlohmann::ordered_json device_json(const Device& device);

/// Bits per element with the share of its scale: "mxint4:32:plena" 4.25, "q4_0" 4.5, "fp16" 16. Errors: unknown
/// formats.
Expected<double> format_bits(const std::string& format);

}  // namespace dllm::npu
