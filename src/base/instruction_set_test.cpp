#include "base/instruction_set.h"

#include <gtest/gtest.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace dllm {
namespace {

TEST(InstructionSet, TheScalarOneAlwaysRuns) { EXPECT_TRUE(runs(InstructionSet::kScalar)); }

#if defined(__linux__) && defined(__x86_64__)
/// What the kernel says about the first processor.
std::set<std::string> processor_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) {
      std::istringstream words(line.substr(line.find(':') + 1));
      return {std::istream_iterator<std::string>(words), {}};
    }
  return {};
}

TEST(InstructionSet, AreThoseOfTheSystemsList) {
  const std::set<std::string> flags = processor_flags();
  if (flags.empty()) GTEST_SKIP() << "the system lists no flags";
  const auto all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!flags.contains(name)) return false;
    return true;
  };
  const bool avx2 = all({"avx2", "fma", "f16c"}), avx512 = all({"avx512f", "avx512bw", "avx512vl", "avx512dq"});
  const bool vnni = avx512 && all({"avx512_vnni"});
  EXPECT_EQ(runs(InstructionSet::kAvx2), avx2);
  EXPECT_EQ(runs(InstructionSet::kAvxVnni), avx2 && all({"avx_vnni"}));
  EXPECT_EQ(runs(InstructionSet::kAvx512), avx512);
  EXPECT_EQ(runs(InstructionSet::kAvx512Vnni), vnni);
  EXPECT_EQ(runs(InstructionSet::kAvx512Bf16), vnni && all({"avx512_bf16"}));
  // The system may refuse the tiles' state: ARCH_REQ_XCOMP_PERM, component 18.
  const bool amx = vnni && all({"amx_tile", "amx_int8"}) && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  EXPECT_EQ(runs(InstructionSet::kAmx), amx);
  EXPECT_EQ(runs(InstructionSet::kAmxBf16), amx && all({"amx_bf16"}));
  EXPECT_FALSE(runs(InstructionSet::kNeon));
  EXPECT_FALSE(runs(InstructionSet::kNeonI8mm));
}
#endif

}  // namespace
}  // namespace dllm
