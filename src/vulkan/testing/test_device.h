#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "vulkan/device.h"

namespace dllm::vulkan::test {

/// A place for an object that tests share. It is emptied after the last test: at the end of the program it would be too
/// late, as Vulkan's layers have objects of their own that are gone by then.
template <class T>
std::optional<T>& shared_by_tests() {
  struct Place : testing::Environment {
    void TearDown() override { object.reset(); }
    std::optional<T> object;
  };
  auto* const place = new Place;
  testing::AddGlobalTestEnvironment(place);  // owns it
  return place->object;
}

inline std::optional<std::shared_ptr<Device>>& shared_device = shared_by_tests<std::shared_ptr<Device>>();

/// The default device, with the validation layer if there is one; null on machines without a device, where tests skip.
inline const std::shared_ptr<Device>& test_device() {
  if (!shared_device) {
    auto opened = Device::open({.device = "", .validate = true});
    shared_device = opened ? *opened : std::shared_ptr<Device>();
  }
  return *shared_device;
}

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
