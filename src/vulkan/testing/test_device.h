#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "vulkan/device.h"

namespace dllm::vulkan::test {

/// The default device, with the validation layer if there is one; null on machines without a device, where tests skip.
inline std::shared_ptr<Device>& test_device() {
  static std::shared_ptr<Device> device = [] {
    auto opened = Device::open({.device = "", .validate = true});
    return opened ? *opened : std::shared_ptr<Device>();
  }();
  return device;
}

/// Closes the device after the last test. At the end of the program it would be too late: layers have objects of their
/// own that are gone by then, if they were first needed after the device was opened.
class DeviceCloses : public testing::Environment {
  void TearDown() override { test_device().reset(); }
};
inline testing::Environment* const device_closes = testing::AddGlobalTestEnvironment(new DeviceCloses);

/// A test with a device. At its end the validation layer must have said nothing.
class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!test_device()) GTEST_SKIP() << "this machine has no Vulkan device";
    before_ = test_device()->messages().size();
  }
  void TearDown() override {
    if (test_device()) {
      EXPECT_EQ(test_device()->messages().substr(before_), "");
    }
  }

 private:
  std::size_t before_ = 0;
};

}  // namespace dllm::vulkan::test
