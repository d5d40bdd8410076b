#include "npu_core/machine/images.h"

#include "format/npy.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab;

ImageSpec spec(const char* text) {
  const auto result = parse_image_spec(text);
  EXPECT_TRUE(result.has_value()) << text;
  return result ? *result : ImageSpec{};
}

TEST(Images, Specs) {
  const ImageSpec full = spec("hbm@0x1000+256:64:mxint8:8:plena");
  EXPECT_EQ(full.space, Space::kHbm);
  EXPECT_EQ(full.address, 4096u);
  EXPECT_EQ(full.scales, 256u);
  EXPECT_EQ(full.count, 64u);
  EXPECT_EQ(full.format, (MxFormat{MxElement::kInt8, MxRule::kPlena, 8}));
  EXPECT_EQ(spec("hbm@0:bf16").format, MxFormat{});
  EXPECT_EQ(spec("vram@5").count, 0u);
  for (const char* bad : {"", "vram", "vram@", "vram@x", "cache@0", "vram@0:", "vram@0:0", "vram@0+3", "vram@0:4:bf16",
                          "hbm@0:mxint9", "hbm@0+:4"})
    EXPECT_FALSE(parse_image_spec(bad)) << bad;
}

TEST(Images, ThereAndBack) {
  Lab lab(Lab::small());
  const auto x = test::normals(64, 9);
  const auto floats = npy_of(x);
  ASSERT_TRUE(load_image(lab.state(), spec("vram@32"), floats, "x.npy"));
  EXPECT_EQ(read_image(lab.state(), spec("vram@32:64"))->real, x);
  ASSERT_TRUE(load_image(lab.state(), spec("fp@1"), std::string("\x80\x3f", 2), "x.bin"));
  EXPECT_EQ(read_image(lab.state(), spec("fp@1:1"))->real, std::vector<float>{1.0f});
  ASSERT_TRUE(load_image(lab.state(), spec("int@2"), npy_of(std::vector<std::uint32_t>{7, 4000000000u}), "x.npy"));
  EXPECT_EQ(read_image(lab.state(), spec("int@2:2"))->integers, (std::vector<std::uint32_t>{7, 4000000000u}));
  const MxFormat format{MxElement::kE3M2, MxRule::kOcp, 8};
  ASSERT_TRUE(load_image(lab.state(), spec("hbm@100+512:mxfp6_e3m2:8"), floats, "x.npy"));
  EXPECT_EQ(read_image(lab.state(), spec("hbm@100+512:64:mxfp6_e3m2:8"))->real, test::through(format, x));
  EXPECT_EQ(lab.get_tensor(100, 512, format, 64), test::through(format, x));
}

/// Devices have tens of gigabytes of HBM. Only the beginning up to the last byte that was accessed exists here.
TEST(Images, HbmExistsAsFarAsItIsAccessed) {
  MachineConfig config = Lab::small();
  config.hbm_bytes = std::uint64_t{1} << 36;
  Lab lab(config);
  constexpr std::uint64_t kFar = std::uint64_t{200} << 20;
  EXPECT_LT(lab.state().hbm.size(), kFar);
  EXPECT_EQ(read_image(lab.state(), spec("hbm@209715200:2"))->integers, (std::vector<std::uint32_t>{0, 0}));
  EXPECT_LT(lab.state().hbm.size(), kFar) << "reading for a dump";
  ASSERT_TRUE(load_image(lab.state(), spec("hbm@64"), npy_of(std::vector<std::uint32_t>{7, 8}), "x.npy"));
  ASSERT_TRUE(load_image(lab.state(), spec("vram@0"), npy_of(std::vector<float>(32, 1.5f)), "x.npy"));
  lab.run(test::set("gp1", 0) + test::set("gp2", static_cast<std::uint32_t>(kFar)) + "C_SET_ADDR_REG a1, gp0, gp2\n" +
          test::set("gp3", 1024) + "C_SET_SCALE_REG gp3\nH_STORE_V gp0, gp0, a1, 0, 0\n" + test::set("gp4", 32) +
          "H_PREFETCH_V gp4, gp0, a1, 0, 0\n");
  EXPECT_EQ(read_image(lab.state(), spec("vram@32:32"))->real, std::vector<float>(32, 1.5f));
  EXPECT_EQ(read_image(lab.state(), spec("hbm@64:2"))->integers, (std::vector<std::uint32_t>{7, 8})) << "it has moved";
  EXPECT_GT(lab.state().hbm.size(), kFar);
  EXPECT_LT(lab.state().hbm.size(), 2 * kFar);
  ASSERT_TRUE(load_image(lab.state(), spec("hbm@419430400+536870912:mxint8:8"), npy_of(std::vector<float>(8, 3)), "x"));
  EXPECT_EQ(read_image(lab.state(), spec("hbm@419430400+536870912:8:mxint8:8"))->real, std::vector<float>(8, 3));
  ASSERT_TRUE(load_image(lab.state(), spec("hbm@1073741824"), "raw", "x.bin"));
  EXPECT_EQ(read_image(lab.state(), spec("hbm@1073741826:2"))->integers, (std::vector<std::uint32_t>{'w', 0}));
}

TEST(Images, WhatDoesNotFit) {
  Lab lab(Lab::small());
  const auto floats = npy_of(test::normals(64, 9));
  EXPECT_FALSE(load_image(lab.state(), spec("vram@8160"), floats, "x"));
  EXPECT_FALSE(load_image(lab.state(), spec("int@0"), floats, "x")) << "no integers";
  EXPECT_FALSE(load_image(lab.state(), spec("hbm@0"), floats, "x")) << "no bytes";
  EXPECT_FALSE(load_image(lab.state(), spec("hbm@0:mxint8:32"), npy_of(std::vector<float>(20)), "x")) << "half a block";
  EXPECT_FALSE(load_image(lab.state(), spec("hbm@1048570:bf16"), floats, "x"));
  EXPECT_FALSE(load_image(lab.state(), spec("int@0"), "abc", "x"));
  EXPECT_FALSE(load_image(lab.state(), spec("fp@18446744073709551615"), "ab", "x"));
  EXPECT_FALSE(read_image(lab.state(), spec("vram@0")));
  EXPECT_FALSE(read_image(lab.state(), spec("vram@8192:1")));
}

TEST(Devices, ShippedProfilesHaveAMachineOrAReason) {
  int machines = 0;
  for (const std::string& name : device_names()) {
    const auto device = load_device(name);
    ASSERT_TRUE(device.has_value()) << name;
    const auto config = machine_config(*device);
    if (config) {
      ++machines;
      EXPECT_EQ(config->vlen, device->array.vlen);
      EXPECT_EQ(config->hbm_bytes, static_cast<std::uint64_t>(device->memory_config.bytes())) << name;
    } else {
      EXPECT_NE(config.error().message().find(name), std::string::npos) << config.error().message();
    }
  }
  EXPECT_GT(machines, 0);
  MachineConfig config;
  EXPECT_TRUE(override_format(config, "weight=mxint8:8:plena"));
  EXPECT_EQ(config.weight.block, 8);
  EXPECT_FALSE(override_format(config, "weights=bf16"));
  EXPECT_FALSE(override_format(config, "weight"));
}

}  // namespace
}  // namespace dllm::npu
