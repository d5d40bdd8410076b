// FP16 lanes, and packed weights (Q4_0, Q8_0) that are looked up on their way into matrix SRAM: the arithmetic of
// phones.

#include <numeric>

#include "npu_core/machine/testing/lab.h"
#include "npu_core/machine/tiles.h"
#include "numerics/packed.h"

namespace dllm::npu {
namespace {

using test::Lab;
using test::set;

constexpr MxFormat kHalf{MxElement::kF16, MxRule::kOcp, 1};
constexpr std::size_t kRow = 64, kTileRows = 8, kTileLanes = 32;

MachineConfig phone(const char* weight) {
  MachineConfig config = Lab::small();
  config.blen = 8;
  config.mlen = config.hlen = 32;
  config.vlen = 64;
  config.vram_elements = 64 * 64;
  config.mram_elements = 32 * 32 * 4;
  config.lanes = LaneFormat::kF16;
  for (MxFormat* format : {&config.activation, &config.matrix_kv, &config.vector_kv, &config.matrix_input})
    *format = kHalf;
  config.weight = *mx_format_from_name(weight);
  return config;
}

float half(double value) { return f16_to_f32(f64_to_lane(LaneFormat::kF16, value)); }

std::vector<float> halves(std::size_t n, unsigned seed, float scale = 1.0f) {
  std::vector<float> values = test::normals(n, seed, scale);
  for (float& value : values) value = half(static_cast<double>(value) * 1.0009765625);
  return values;
}

TEST(HalfLanes, ComputeInFp16) {
  Lab lab(phone("q4_0"));
  const std::vector<float> a = halves(kRow, 1, 3.0f), b = halves(kRow, 2);
  lab.set_row(0, a);
  lab.set_row(64, b);
  lab.run(set("gp1", 0) + set("gp2", 64) + set("gp3", 128) + set("gp4", 192) + set("gp5", 256) + set("gp6", 320) +
          set("gp7", 384) + "S_LI_FP f1, 1.5\nV_ADD_VV gp3, gp1, gp2\nV_MUL_VF gp4, gp1, f1\nV_EXP_V gp5, gp1\n" +
          "V_RECI_V gp6, gp2\nV_RED_SUM f2, gp1\nV_RED_MAX f3, gp1\nS_ST_FP f2, gp0, 0\nS_ST_FP f3, gp0, 1\n" +
          "S_ADD_FP f4, f1, f3\nS_ST_FP f4, gp0, 2\nV_PS_V gp7, gp1\n");
  float running = 0;
  for (std::size_t i = 0; i < kRow; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    EXPECT_EQ(lab.row(128 + i, 1)[0], half(static_cast<double>(a[i] + b[i])));
    EXPECT_EQ(lab.row(192 + i, 1)[0], half(x * 1.5));
    EXPECT_EQ(lab.row(256 + i, 1)[0], half(std::exp(x)));
    EXPECT_EQ(lab.row(320 + i, 1)[0], half(1.0 / y));
    running += a[i];
    EXPECT_EQ(lab.row(384 + i, 1)[0], half(static_cast<double>(running)));
  }
  std::vector<float> sums = a;
  for (std::size_t n = kRow / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  const float top = *std::max_element(a.begin(), a.end());
  EXPECT_EQ(f16_to_f32(lab.state().fp_mem[0]), half(static_cast<double>(sums[0])));
  EXPECT_EQ(f16_to_f32(lab.state().fp_mem[1]), top);
  EXPECT_EQ(f16_to_f32(lab.state().fp_mem[2]), half(static_cast<double>(top) + 1.5));
}

TEST(HalfLanes, OverflowToInfinityAndMaximumOfNothing) {
  Lab lab(phone("q4_0"));
  std::vector<float> row(kRow, 60000.0f);
  lab.set_row(0, row);
  lab.run(set("gp1", 0) + set("gp2", 64) + set("gp3", 128) +
          "V_ADD_VV gp2, gp1, gp1\nV_SUB_VV gp3, gp2, gp2\nS_LI_FP f1, -inf\nS_ST_FP f1, gp0, 0\n");
  EXPECT_EQ(lab.state().vram[64], 0x7c00);
  EXPECT_EQ(lab.state().vram[128], kF16Nan);
  EXPECT_EQ(lab.state().fp_mem[0], 0xfc00);
}

TEST(HalfLanes, TransfersCopyOrConvert) {
  for (const char* stored : {"fp16", "bf16", "mxint8:32:ocp"}) {
    MachineConfig config = phone("q4_0");
    config.activation = *mx_format_from_name(stored);
    Lab lab(config);
    const std::vector<float> x = halves(kRow, 3);
    const std::uint32_t scales = lab.put_tensor(4096, config.activation, x);
    lab.run(set("gp1", 4096) + "C_SET_ADDR_REG a1, gp0, gp1\n" + set("gp2", scales) + "C_SET_SCALE_REG gp2\n" +
            set("gp3", 128) + "H_PREFETCH_V gp3, gp0, a1, 0, 0\n" + set("gp1", 65536) +
            "C_SET_ADDR_REG a2, gp0, gp1\nH_STORE_V gp3, gp0, a2, 0, 0\n");
    const std::vector<float> seen = test::through(config.activation, x);
    for (std::size_t i = 0; i < kRow; ++i) EXPECT_EQ(lab.row(128 + i, 1)[0], half(static_cast<double>(seen[i])));
    const std::vector<float> back = lab.get_tensor(65536, scales, config.activation, kRow);
    EXPECT_EQ(back, test::through(config.activation, seen)) << stored;
  }
}

/// Two tiles of weights in HBM at 4096; values by row of MLEN lanes.
std::vector<float> put_tiles(Lab& lab, const MxFormat& format, unsigned seed) {
  const WeightTiles tiles(lab.state().config, format);
  const std::vector<float> w = halves(2 * kTileRows * kTileLanes, seed, 0.1f);
  std::vector<std::uint16_t> codes(w.size());
  std::vector<std::uint8_t> scales(format.scale_bytes(w.size()));
  mx_quantize(format, w.data(), w.size(), codes.data(), scales.data());
  for (std::size_t row = 0; row < 2 * kTileRows; ++row) {
    std::byte* base = lab.state().hbm.data() + 4096;
    mx_pack(format.bits(), codes.data() + row * kTileLanes, kTileLanes, base + tiles.codes_at(row));
    std::memcpy(base + tiles.scales_at(row), scales.data() + 2 * row, 2);
  }
  std::vector<float> values(w.size());
  mx_dequantize(format, codes.data(), scales.data(), w.size(), values.data());
  return values;
}

constexpr const char* kAddress = "li gp1, 4096\nC_SET_ADDR_REG a1, gp0, gp1\n";

TEST(PackedWeights, AreLookedUpTileByTile) {
  for (const char* name : {"q4_0", "q8_0"}) {
    Lab lab(phone(name));
    const MxFormat format = lab.state().config.weight;
    EXPECT_EQ(WeightTiles(lab.state().config, format).tile_bytes(), kTileRows * (32 * format.bits() / 8 + 2));
    const std::vector<float> w = put_tiles(lab, format, 4);
    const std::vector<float> x = halves(kTileRows * kRow, 5);
    lab.set_row(0, x);
    // The second tile alone, then both from the start; M_TMM with the second.
    lab.run(kAddress + set("gp2", 8) + "C_SET_CSR gp2, prefetch_m_rows\n" + set("gp3", 256) + set("gp4", 1024) +
            "H_PREFETCH_M gp4, gp3, a1, 0, 0\n" + set("gp2", 16) +
            "C_SET_CSR gp2, prefetch_m_rows\nH_PREFETCH_M gp0, gp0, a1, 0, 0\n" + set("gp5", 2048) +
            "M_TMM 0, gp0, gp4\nM_MM_WO gp5, gp0, 0\n");
    for (std::size_t i = 0; i < w.size(); ++i)
      EXPECT_EQ(f16_to_f32(static_cast<Bf16>(lab.state().mram.values[i])), w[i]) << name << " " << i;
    for (std::size_t row = 0; row < kTileRows; ++row)
      for (std::size_t n = 0; n < kTileRows; ++n) {
        float sum = 0;
        for (std::size_t k = 0; k < kTileLanes; ++k) sum += x[row * kRow + k] * w[(kTileRows + n) * kTileLanes + k];
        EXPECT_EQ(lab.row(2048 + row * kRow + n, 1)[0], half(static_cast<double>(sum))) << name;
      }
  }
}

TEST(PackedWeights, RoundOnceAndKeepNan) {
  EXPECT_EQ(unpack_f16(MxElement::kQ4_0, 15, 0x3c01), f32_to_f16(7 * f16_to_f32(0x3c01)));
  EXPECT_EQ(unpack_f16(MxElement::kQ4_0, 0, 0x7bff), 0xfc00) << "beyond FP16";
  EXPECT_EQ(unpack_f16(MxElement::kQ4_0, 8, 0x7c00), 0x7e00) << "infinity times 0";
  EXPECT_EQ(unpack_f16(MxElement::kQ8_0, 0xff, 0x3c00), 0xbc00);
}

TEST(PackedWeights, OnlyWholeTilesOfWeights) {
  Lab lab(phone("q4_0"));
  put_tiles(lab, lab.state().config.weight, 6);
  const std::string load = "H_PREFETCH_M gp0, gp3, a1, 0, 0\n", rows = "C_SET_CSR gp2, prefetch_m_rows\n";
  EXPECT_NE(lab.trap(kAddress + set("gp2", 12) + rows + load).find("whole tiles"), std::string::npos);
  EXPECT_NE(lab.trap(kAddress + set("gp2", 8) + rows + set("gp3", 32) + load).find("whole tiles"), std::string::npos);
  EXPECT_NE(lab.trap(kAddress + set("gp2", 8) + rows + "H_PREFETCH_M gp0, gp0, a1, 1, 0\n").find("stride"),
            std::string::npos);
  const std::uint32_t number = mx_format_number(*mx_format_from_name("q4_0"));
  EXPECT_NE(lab.trap(set("gp2", number) + "C_SET_CSR gp2, format_matrix_kv\n").find("weights only"), std::string::npos);
  MachineConfig bad = phone("q4_0");
  bad.matrix_kv = bad.weight;
  EXPECT_FALSE(bad.validate());
}

}  // namespace
}  // namespace dllm::npu
