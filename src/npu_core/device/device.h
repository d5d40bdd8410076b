#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/dram/config.h"

namespace dllm::npu {

/// A device profile: everything about an NPU that the compiler, the simulators and the models need. Read from TOML;
/// device_fields() is the complete list of its keys.
struct Device {
  std::string name;
  std::string summary;

  struct Array {
    std::int64_t blen = 0;          ///< rows and columns of a systolic sub-array
    std::int64_t mlen = 0;          ///< lanes along K: MLEN / BLEN sub-arrays
    std::int64_t vlen = 0;          ///< vector lanes
    std::int64_t hlen = 0;          ///< lanes of one attention head (MLEN / HLEN heads are batched)
    double macs_per_pe = 1;         ///< multiply-accumulates of a PE per cycle; above 1: that many multipliers each
    std::int64_t vector_units = 1;  ///< vector contexts that run concurrently
    double noise_lanes = 0;         ///< draws per cycle and vector context (V_RED_DRAW); 0: the host draws
    /// Derived, cycles of an M_MM: BLEN x MLEN x BLEN multiply-accumulates on BLEN x MLEN x macs_per_pe multipliers.
    double tile_cycles = 0;
  } array;

  /// Clock and its cost (power.h): the curve of voltage against frequency.
  struct Clock {
    double ghz = 1;
    double nominal_ghz = 1, nominal_v = 0.7;  ///< the point of the profile's areas and energies
    double min_v = 0.5, max_v = 1.0;          ///< supply range
    double threshold_v = 0.25, alpha = 1.3;   ///< of the alpha-power law
    double voltage = 0.7;                     ///< derived: supply at `ghz`
    double effort = 1;                        ///< derived: size of gates relative to the nominal design
  } clock;

  /// The front end and the vector unit's issue (npu-timing.md). The flags of `dllm npu step` set the same.
  struct Issue {
    std::int64_t width = 2;          ///< instructions dispatched per cycle, in order
    std::int64_t queue = 16;         ///< instructions that wait for a unit
    std::int64_t vector_starts = 2;  ///< vector instructions that start per cycle, on different pipes
    std::int64_t chaining = 1;       ///< 1: the newest result of a pipe is read from its output latch
    std::int64_t accumulators = 2;   ///< results of the array that wait for their write-out
  } issue;

  struct Sram {
    std::int64_t matrix_tiles = 0;  ///< tiles of MLEN x MLEN
    std::int64_t vector_rows = 0;   ///< rows of VLEN BF16
    std::int64_t fp_words = 0, int_words = 0;
    std::int64_t vector_ports = 2;           ///< row accesses of the vector SRAM per cycle
    std::int64_t matrix_ports = 2;           ///< 1: the array's reads and arriving rows share a port
    std::int64_t instruction_words = 16384;  ///< of 32 bits; longer programs stream from memory
  } sram;

  struct Memory {
    std::string standard;
    std::int64_t stacks = 1;
    std::string mapping;  ///< empty: the standard's
    std::string row_policy = "open";
    std::string refresh = "all-bank";
    double dma_gbps = 0;  ///< limit of the DMA engines; 0: as much as the memory
    double frontend_ns = 0;
    double phy_mm2 = 0;  ///< interface and controller on the chip, per stack
  } memory;

  struct Prefetch {
    std::int64_t matrix_rows = 64, vector_rows = 4, writeback_rows = 4;
    std::int64_t outstanding = 64;  ///< transfers in flight
  } prefetch;

  struct Latency {  ///< cycles for one vector of VLEN lanes, and for scalar operations
    std::int64_t vector_add = 2, vector_mul = 1, vector_exp = 1, vector_reci = 2, vector_max = 4, vector_sum = 8;
    std::int64_t scalar_fp = 1, scalar_special = 1, scalar_int = 1;
    std::int64_t prefix_scan = 9, shift = 1, vector_draw = 36;
  } latency;

  struct Numerics {
    std::string weight = "mxint4:32:plena", activation = "mxint8:32:ocp", kv = "mxint4:32:plena";
    std::string logits = "mxfp8_e4m3:32:ocp";
    /// Smoothing of K and V (smoothing.h): their centres, and the power of the factors.
    std::string smooth_keys = "none", smooth_values = "none";
    double smooth_alpha = 1;
    /// Derived, bytes per element with the share of its scale.
    double weight_bytes = 0, activation_bytes = 0, kv_bytes = 0, logit_bytes = 0;
  } numerics;

  struct Host {                    ///< how the host submits work
    double dispatch_us = 0;        ///< per operator
    double batch_us = 0;           ///< per batch of operators
    std::int64_t batch_ops = 256;  ///< operators per batch
    double dequantize_gbps = 0;    ///< speed of vector code that unpacks weights; 0: hardware does it at no cost
    /// The host's processor, for what stays on it and for the same model without the device. 0 cores: not described.
    std::int64_t cores = 0;
    double int8_gops = 0;                   ///< achieved by all cores in products with quantized weights
    double f16_gflops = 0, f32_gflops = 0;  ///< achieved in attention, and in the rest
    double memory_gbps = 0;                 ///< achieved by all cores, of the memory shared with the device
    double shared_gbps = 0;                 ///< achieved by cores and device together; 0: the memory's peak
    double active_w = 0, idle_w = 0;        ///< of all cores
  } host;

  struct Window {                    ///< addresses that the device sees at once
    std::int64_t bytes = 0;          ///< 0: all of memory
    std::int64_t staging_bytes = 0;  ///< double buffer for what does not fit
    double map_us = 0;               ///< per mapping, with the unmapping of what it replaces
    double map_us_per_page = 0;
    std::int64_t page_bytes = 4096;
    std::int64_t mapping_bytes = 0;  ///< of the largest mapping; 0: any
    std::int64_t mappings = 0;       ///< concurrent ones; 0: any number
  } window;

  struct Thermal {                ///< docs/design/npu-answers.md
    double sustained_w = 0;       ///< power that can be kept up; 0: no limit
    double rise_k = 0;            ///< above the surroundings, at which the clock is lowered
    double resume_k = 0;          ///< at which it returns
    double capacity_j_per_k = 0;  ///< of what is heated
    double throttled_ghz = 0;     ///< clock.ghz meanwhile; the host slows in proportion
    double start_k = 0;           ///< rise when an answer begins
  } thermal;

  struct Energy {
    double mac_pj = 0;          ///< per multiply-accumulate
    double vector_lane_pj = 0;  ///< per lane and cycle of work
    double sram_pj_per_byte = 0;
    double dram_read_pj_per_byte = 0, dram_write_pj_per_byte = 0;
    double dram_activate_pj = 0;  ///< per activation and its precharge
    double dram_io_pj_per_byte = 0;
    double dram_background_mw = 0;  ///< per pseudo-channel
    double phy_idle_w = 0;          ///< per stack, independent of traffic
    double leakage_w_per_mm2 = 0;   ///< at the nominal voltage
    double clock_w_per_mm2 = 0;     ///< clock tree, at the nominal clock and voltage
    double static_w = 0;            ///< power that the area model does not cover
  } energy;

  dram::MemoryConfig memory_config;  ///< resolved from `memory`

  /// Sets the members marked as derived from the keys.
  void derive() {
    derive_array_and_clock();
    derive_bytes();
  }
  void derive_array_and_clock();
  void derive_bytes();  ///< of `numerics`, from the names of formats
  /// Of the array, multiply-accumulates per cycle.
  double macs_per_cycle() const { return static_cast<double>(array.blen * array.mlen) * array.macs_per_pe; }
  double peak_tops() const;        ///< 1e12 operations (two per multiply-accumulate) per second
  double memory_gbps() const;      ///< peak of the memory, or of the DMA engines if lower
  std::int64_t period_fs() const;  ///< of the clock
  /// Cycles for the noise of VLEN lanes: a generator finishes a draw per cycle. FP64 logarithms and quotients take it
  /// four times as long, because multipliers of FP32's width compute them in parts (assumed, 2 to 8).
  std::int64_t draw_cycles(bool f64) const;
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

/// Why a derived key such as "array.tile_cycles" cannot be set, and what to set instead; empty for other
/// keys.
std::string_view derived_key_hint(std::string_view dotted);

/// Rejects impossible devices: contradictions between keys, sizes out of range, clocks beyond the voltage curve. Every
/// command checks this, through parse_device() or, for the points of a sweep, directly. Errors: kInvalidFile; `where`
/// is the key.
Expected<void> validate(const Device& device);

/// Reads a profile. `base = "NAME"` starts from a shipped profile; without it every key is required. Errors: unknown
/// keys, values out of range and contradictions between keys, with line and hint.
Expected<Device> parse_device(std::string_view text, const std::string& file,
                              const std::vector<Override>& overrides = {});

/// A shipped profile by name, or a file by path.
Expected<Device> load_device(const std::string& name_or_path, const std::vector<Override>& overrides = {});

std::vector<std::string> device_names();

/// Every key with its value, grouped by section, and the derived values.
nlohmann::ordered_json device_json(const Device& device);

/// Bits per element with the share of its scale: "mxint4:32:plena" 4.25, "q4_0" 4.5, "fp16" 16. Errors: unknown
/// formats.
Expected<double> format_bits(const std::string& format);

}  // namespace dllm::npu
