#include "base/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace dllm {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports checks CPUID and the register state that the operating system saves (XCR0).
bool runs_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
/// CPUID leaf 7, subleaf 1, EAX bit 4; __builtin_cpu_supports of GCC 12 does not know the name.
bool runs_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return runs_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}
bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool runs_avx512vnni() { return runs_avx512() && __builtin_cpu_supports("avx512vnni"); }

/// Tiles of bytes: CPUID leaf 7, EDX bits 24 and 25. The system saves their 8 KiB of state only for processes that
/// request it (arch_prctl ARCH_REQ_XCOMP_PERM, Linux 5.16); permission holds for all threads. It is requested once: the
/// system may refuse, for instance if a thread has an alternate signal stack too small for the state.
bool runs_amx() {
#if defined(__linux__)
  static const bool runs = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kTiles = 3u << 24;
    if (!runs_avx512vnni() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) != kTiles) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return runs;
#else
  return false;
#endif
}
/// CPUID leaf 7, EDX bit 22.
bool runs_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return runs_amx() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1u << 22)) != 0;
}
#elif defined(__aarch64__)
bool runs_neon() {
#if defined(__linux__)
  const unsigned long caps = getauxval(AT_HWCAP);
  return (caps & HWCAP_ASIMDDP) != 0 && (caps & HWCAP_ASIMDHP) != 0;
#else
  return true;  // every 64-bit Apple machine has both
#endif
}
bool runs_neon_i8mm() {
#if defined(__linux__)
  constexpr unsigned long kI8mm = 1ul << 13;  // HWCAP2_I8MM, which headers of Linux before 5.10 lack
  return runs_neon() && (getauxval(AT_HWCAP2) & kI8mm) != 0;
#else
  return false;  // Apple's M1 lacks it
#endif
}
#endif

}  // namespace

bool runs(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return true;
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return runs_avx2();
    case InstructionSet::kAvxVnni:
      return runs_avxvnni();
    case InstructionSet::kAvx512:
      return runs_avx512();
    case InstructionSet::kAvx512Vnni:
      return runs_avx512vnni();
    case InstructionSet::kAvx512Bf16:
      return runs_avx512vnni() && __builtin_cpu_supports("avx512bf16");
    case InstructionSet::kAmx:
      return runs_amx();
    case InstructionSet::kAmxBf16:
      return runs_amx_bf16();
    case InstructionSet::kNeon:
    case InstructionSet::kNeonI8mm:
      return false;
#else
    case InstructionSet::kAvx2:
    case InstructionSet::kAvxVnni:
    case InstructionSet::kAvx512:
    case InstructionSet::kAvx512Vnni:
    case InstructionSet::kAvx512Bf16:
    case InstructionSet::kAmx:
    case InstructionSet::kAmxBf16:
      return false;
    case InstructionSet::kNeon:
#if defined(__aarch64__)
      return runs_neon();
#else
      return false;
#endif
    case InstructionSet::kNeonI8mm:
#if defined(__aarch64__)
      return runs_neon_i8mm();
#else
      return false;
#endif
#endif
  }
  return false;  // not reached: every set is above
}

}  // namespace dllm
