#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cpu/kernels/test_data.h"
#include "vulkan/buffer.h"
#include "vulkan/commands.h"
#include "vulkan/operators.h"
#include "vulkan/self_test.h"
#include "vulkan/testing/test_device.h"

namespace dllm::vulkan::test {

/// Makes a device of this processor run kernels of CUDA, by cuda_on_host.h. Its addresses are this process's.
void run_cuda_on_host(Device& device);
/// The device is as it was. No kernel may be left.
void stop_cuda_on_host(Device& device);
/// Runs what such a device cannot: whether it was a kernel of its.
bool launched_on_host(const Launch& launch, std::int64_t rows);

/// Pages of this process, before one that ends the program if it is read or written.
class GuardedPages {
 public:
  explicit GuardedPages(std::int64_t least)
      : bytes_((least + kImportedPage - 1) / kImportedPage * kImportedPage),
        all_(static_cast<std::byte*>(
            mmap(nullptr, mapped(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    mprotect(all_ + bytes_, kImportedPage, PROT_NONE);
  }
  ~GuardedPages() { munmap(all_, mapped()); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  std::byte* data() const { return all_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::size_t mapped() const { return static_cast<std::size_t>(bytes_ + kImportedPage); }

  std::int64_t bytes_;
  std::byte* all_;
};

inline std::optional<Operators>& shared_operators = shared_by_tests<Operators>();

/// Runs operators of the default device on arrays of this process. Each ends Buffer::kTail bytes before a page that
/// nothing may read, where the device takes memory of this process.
class OperatorRig {
 public:
  /// With DLLM_TEST_CUDA_ON_HOST in the environment, kernels of cuda/ run on this processor where they exist.
  static Operators& operators() {
    if (!shared_operators) {
      Arithmetic arithmetic = *vulkan::test_device(test_device());
      if (std::getenv("DLLM_TEST_CUDA_ON_HOST") != nullptr) {
        run_cuda_on_host(*test_device());
        arithmetic.kernels = true;
      }
      shared_operators.emplace(test_device(), arithmetic);
    }
    return *shared_operators;
  }

  template <class T>
  VkDeviceAddress put(std::span<const T> values) {
    const Array& array = add(static_cast<std::int64_t>(values.size_bytes()));
    if (!values.empty()) std::memcpy(array.data, values.data(), values.size_bytes());
    return array.address;
  }
  template <class T>
  VkDeviceAddress put(const std::vector<T>& values) {
    return put(std::span<const T>(values));
  }
  /// Memory full of a value that no operator writes.
  VkDeviceAddress room(std::int64_t count) {
    const std::vector<float> filled(static_cast<std::size_t>(count), kUntouched);
    return put(filled);
  }
  template <class T = float>
  std::vector<T> get(VkDeviceAddress address, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (const Array& array : arrays_)
      if (array.address == address) std::memcpy(values.data(), array.data, values.size() * sizeof(T));
    return values;
  }
  void run(const Expected<Launch>& launch, std::int64_t rows) {
    ASSERT_TRUE(launch) << launch.error().message();
    if (launched_on_host(*launch, rows)) return;
    auto commands = Commands::begin(test_device());
    ASSERT_TRUE(commands);
    commands->dispatch(*launch->pipeline, launch->push, launch->groups(rows));
    ASSERT_TRUE(commands->end());
    ASSERT_TRUE(commands->run("a test"));
  }

  static constexpr float kUntouched = 1234.5f;

 private:
  struct Array {
    std::unique_ptr<GuardedPages> pages;  ///< null where the device does not import
    Buffer buffer;
    std::byte* data = nullptr;
    VkDeviceAddress address = 0;
  };

  const Array& add(std::int64_t bytes) {
    Array array;
    if (test_device()->facts().imports) {
      array.pages = std::make_unique<GuardedPages>(bytes + Buffer::kTail);
      auto made = Buffer::import(test_device(), array.pages->data(), array.pages->bytes());
      EXPECT_TRUE(made);
      const std::int64_t first = array.pages->bytes() - Buffer::kTail - (bytes + 15) / 16 * 16;
      array.data = array.pages->data() + first;
      array.address = made->address() + static_cast<VkDeviceAddress>(first);
      array.buffer = std::move(*made);
    } else {
      auto made = Buffer::make(test_device(), bytes, vulkan::Place::kShared, "a test");
      EXPECT_TRUE(made);
      array.data = made->data();
      array.address = made->address();
      array.buffer = std::move(*made);
    }
    arrays_.push_back(std::move(array));
    return arrays_.back();
  }

  std::vector<Array> arrays_;
};

/// A test of operators on random numbers.
class OnOperators : public OnDevice {
 protected:
  OperatorRig rig_;
  cpu::test::Random random_{38};
};

/// The first place where bits differ: "12 of 640 differ, first at 3: 0x1p-3, not 0x1.8p-3"; empty: nowhere.
template <class T>
std::string difference(const std::vector<T>& actual, const std::vector<T>& expected) {
  if (actual.size() != expected.size()) return "other sizes";
  std::size_t count = 0, first = 0;
  for (std::size_t i = expected.size(); i-- > 0;)
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) != 0 &&
        !(actual[i] != actual[i] && expected[i] != expected[i]))
      ++count, first = i;
  if (count == 0) return "";
  std::ostringstream text;
  text << count << " of " << expected.size() << " differ, first at " << first << ": " << std::hexfloat << actual[first]
       << ", not " << expected[first];
  return text.str();
}

}  // namespace dllm::vulkan::test
