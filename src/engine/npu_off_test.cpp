#include <gtest/gtest.h>

#include "dllm/model.h"

namespace dllm {
namespace {

TEST(WithoutNpu, SaysWhatThisBuildDoesNotHave) {
  LoadOptions npu, numerics, unknown;
  npu.backend = "npu";
  const auto device = LanguageModel::load("", npu);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(device.error().what, "this build has no backend 'npu'");
  EXPECT_EQ(device.error().where, "--backend");
  EXPECT_NE(device.error().hint.find("DLLM_NPU=ON"), std::string::npos);
  numerics.numerics = "bf16";
  const auto formats = LanguageModel::load("", numerics);
  ASSERT_FALSE(formats);
  EXPECT_EQ(formats.error().where, "--numerics");
  unknown.backend = "gpu";
  EXPECT_EQ(LanguageModel::load("", unknown).error().code, ErrorCode::kUsage);
  EXPECT_TRUE(LanguageModel::load("", {}));
}

}  // namespace
}  // namespace dllm
