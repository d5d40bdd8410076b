// Writes which lines of the hardware a test program has reached (scripts/rtl_coverage.py).
#if VM_COVERAGE
#include <gtest/gtest.h>
#include <verilated.h>
#include <verilated_cov.h>

#include <cstdlib>
#include <string>

namespace dllm::rtl {
namespace {

class CoverageFile final : public ::testing::Environment {
 public:
  void TearDown() override {
    const char* folder = std::getenv("DLLM_RTL_COVERAGE");
    if (folder == nullptr) return;
    const auto* test = ::testing::UnitTest::GetInstance();
    std::string name = test->GetTestSuite(0)->name();
    for (char& c : name)
      if (c == '/') c = '-';
    Verilated::threadContextp()->coveragep()->write((std::string(folder) + "/" + name + ".dat").c_str());
  }
};

[[maybe_unused]] const auto* const kCoverage = ::testing::AddGlobalTestEnvironment(new CoverageFile);

}  // namespace
}  // namespace dllm::rtl
#endif
