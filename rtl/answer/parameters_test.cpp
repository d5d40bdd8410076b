// The hardware of device profiles: what core.sv is built with, and what it does not have.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "answer/core_parameters.h"

namespace dllm::rtl {
namespace {

using Overrides = std::vector<npu::Override>;

/// Values of `names` in the parameters of a device; empty: not among them.
std::vector<std::string> values(const CoreParameters& parameters, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const auto at =
        std::ranges::find_if(parameters.verilog, [&](const std::string& p) { return p.starts_with(name + "="); });
    found.push_back(at == parameters.verilog.end() ? "" : at->substr(name.size() + 1));
  }
  return found;
}

TEST(RtlParameters, OfAShippedProfile) {
  const auto parameters = core_parameters("plena-64-wide", {});
  ASSERT_TRUE(parameters.has_value()) << parameters.error().message();
  EXPECT_EQ(values(*parameters, {"VLEN", "MLEN", "BLEN", "HLEN", "ELEMENT_WEIGHT", "RULE_WEIGHT", "BLOCK_WEIGHT"}),
            (std::vector<std::string>{"64", "64", "4", "64", "5", "1", "8"}));
  EXPECT_EQ(values(*parameters, {"ADD_STAGES", "SUM_STAGES", "DRAW_STAGES"}),
            (std::vector<std::string>{"2", "8", "36"}));
  // Its 4,194,304 rows would be compared after every program.
  EXPECT_EQ(parameters->shape.vector_rows, 8192u);
  EXPECT_EQ(values(*parameters, {"VRAM_ROWS"}), std::vector<std::string>{"8192"});
  const auto device = core_device(parameters->shape);
  ASSERT_TRUE(device.has_value()) << device.error().message();
}

TEST(RtlParameters, FollowTheKeys) {
  const auto parameters = core_parameters("plena-64", {{"array.vlen", "32"},
                                                       {"array.mlen", "32"},
                                                       {"array.blen", "8"},
                                                       {"numerics.weight", "mxint4:16:plena"},
                                                       {"numerics.kv", "mxint8:16:ocp"},
                                                       {"numerics.activation", "mxfp6_e3m2:32:ocp"},
                                                       {"numerics.logits", "bf16"},
                                                       {"latency.vector_add", "3"}});
  ASSERT_TRUE(parameters.has_value()) << parameters.error().message();
  EXPECT_EQ(values(*parameters, {"VLEN", "BLEN", "HLEN", "ELEMENT_WEIGHT", "RULE_WEIGHT", "ELEMENT_MATRIX_KV",
                                 "RULE_MATRIX_KV", "ELEMENT_INPUT", "BLOCK_INPUT", "ELEMENT_ACTIVATION", "ADD_STAGES"}),
            (std::vector<std::string>{"32", "8", "16", "0", "1", "1", "0", "4", "32", "7", "3"}));
}

TEST(RtlParameters, RefuseWhatTheHardwareDoesNotHave) {
  const struct {
    Overrides overrides;
    const char* says;
  } kRefused[] = {{{{"numerics.weight", "mxfp8_e5m2:8:ocp"}}, "no unit for mxfp8_e5m2:8:ocp"},
                  {{{"numerics.activation", "bf16"}}, "no unit for bf16"},
                  {{{"numerics.weight", "mxint8:16:ocp"}}, "blocks of one length"},
                  {{{"latency.scalar_fp", "2"}}, "latency.scalar_fp = 2"},
                  {{{"array.blen", "16"}}, "BLEN 16 is more than"}};
  for (const auto& refused : kRefused) {
    const auto parameters = core_parameters("plena-64", refused.overrides);
    ASSERT_FALSE(parameters.has_value()) << refused.says;
    EXPECT_EQ(parameters.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(parameters.error().what.find(refused.says), std::string::npos) << parameters.error().message();
    EXPECT_FALSE(parameters.error().hint.empty());
  }
  EXPECT_FALSE(core_parameters("no-such-device", {}).has_value());
}

}  // namespace
}  // namespace dllm::rtl
