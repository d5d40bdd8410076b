#include "npu_core/dram/standard.h"

#include <gtest/gtest.h>

#include "npu_core/config/embedded_files.h"

namespace dllm::npu::dram {
namespace {

std::string text_of(const char* name) {
  return std::string(find_embedded_file(core_profiles(), std::string("dram/") + name)->text);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Standard, ShippedOnesHaveTheirPeakBandwidth) {
  EXPECT_EQ(standard_names(), (std::vector<std::string>{"hbm2-2000", "hbm2-dplena", "hbm2e-3200", "hbm3-6400",
                                                        "lpddr5x-10667", "lpddr5x-8533", "lpddr5x-9600"}));
  EXPECT_DOUBLE_EQ(load_standard("hbm2-2000")->peak_gbps(), 16);
  EXPECT_DOUBLE_EQ(load_standard("hbm2e-3200")->peak_gbps(), 25.6);
  EXPECT_DOUBLE_EQ(load_standard("hbm3-6400")->peak_gbps(), 25.6);
  EXPECT_NEAR(load_standard("lpddr5x-8533")->peak_gbps(), 17.07, 0.01);
  EXPECT_NEAR(load_standard("lpddr5x-9600")->peak_gbps(), 19.2, 0.01);
}

TEST(Standard, NanosecondsRoundUpToClocks) {
  const auto hbm3 = load_standard("hbm3-6400");
  EXPECT_EQ(hbm3->ticks_per_clock, 2);
  EXPECT_EQ(hbm3->timing.rfc, 2 * 560);  // 350 ns / 0.625 ns
  EXPECT_EQ(hbm3->timing.faw, 2 * 24);
  EXPECT_EQ(hbm3->activate_ticks, 3);
  EXPECT_EQ(load_standard("hbm2e-3200")->timing.faw, 24);
  // CL + BL + 2 - CWL if no tRTW is given
  EXPECT_EQ(load_standard("hbm2-2000")->timing.rtw, 14 + 2 + 2 - 5);
}

TEST(Standard, MistakesAreNamedWithTheirLine) {
  const std::string text = text_of("hbm2-2000");
  EXPECT_NE(parse_standard(replaced(text, "ccd_l ", "cdc_l "), "x").error().message().find("ccd_l"), std::string::npos);
  EXPECT_NE(parse_standard(replaced(text, "[timing]\n", "[timing]\ntrfc = { clk = 1, source = \"\" }\n"), "x")
                .error()
                .message()
                .find("did you mean 'rfc'"),
            std::string::npos);
  EXPECT_FALSE(parse_standard(replaced(text, "clk = 34", "clk = 99"), "x"));  // tRAS > tRC
  EXPECT_FALSE(parse_standard(replaced(text, "banks_per_group = 4", "banks_per_group = 3"), "x"));
  EXPECT_FALSE(parse_standard(replaced(text, "clk = 2, ", "clk = 2, ns = 3, "), "x"));
  EXPECT_FALSE(parse_standard(replaced(text, "clk = 14", "clk = 1.5"), "x"));
  EXPECT_FALSE(parse_standard(replaced(text, "ns = 350", "ns = 3950"), "x"));
  EXPECT_NE(parse_standard(text.substr(0, text.find("[costs]")), "x").error().message().find("costs"),
            std::string::npos);
  EXPECT_FALSE(parse_standard(replaced(text, "activate_pj = 828", "activate_pj = 0"), "x"));  // free
  EXPECT_NE(load_standard("hbm2e-320").error().message().find("did you mean 'hbm2e-3200'"), std::string::npos);
}

}  // namespace
}  // namespace dllm::npu::dram
