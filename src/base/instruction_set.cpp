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
/// What the processor has and the system saves. Not by __builtin_cpu_supports: it reads a table of the compiler's
/// library, and in zig's, which programs for Windows are linked with, that says no to everything.
struct Features {
  struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
  };
  Registers basic, extended, more;  ///< CPUID leaf 1; leaf 7, subleafs 0 and 1
  std::uint64_t saved = 0;          ///< XCR0: states that the system saves

  Features() {
    __get_cpuid(1, &basic.a, &basic.b, &basic.c, &basic.d);
    __get_cpuid_count(7, 0, &extended.a, &extended.b, &extended.c, &extended.d);
    if (extended.a >= 1) __get_cpuid_count(7, 1, &more.a, &more.b, &more.c, &more.d);
    constexpr unsigned kSystemSaves = 1u << 27;  // OSXSAVE, without which XGETBV is no instruction
    if ((basic.c & kSystemSaves) == 0) return;
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    saved = std::uint64_t{high} << 32 | low;
  }
};

const Features& features() {
  static const Features found;
  return found;
}

bool all_of(std::uint64_t word, std::uint64_t bits) { return (word & bits) == bits; }

bool runs_avx2() {
  constexpr unsigned kFma = 1u << 12, kAvx = 1u << 28, kF16c = 1u << 29, kAvx2 = 1u << 5;
  constexpr unsigned kVectors = 0b110;  // XMM and YMM
  return all_of(features().saved, kVectors) && all_of(features().basic.c, kFma | kAvx | kF16c) &&
         all_of(features().extended.b, kAvx2);
}
bool runs_avxvnni() { return runs_avx2() && all_of(features().more.a, 1u << 4); }
bool runs_avx512() {
  constexpr unsigned kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;
  constexpr unsigned kVectors = 0b1110'0110;  // XMM, YMM, masks, both halves of ZMM
  return all_of(features().saved, kVectors) && all_of(features().extended.b, kF | kDq | kBw | kVl);
}
bool runs_avx512vnni() { return runs_avx512() && all_of(features().extended.c, 1u << 11); }
bool runs_avx512bf16() { return runs_avx512vnni() && all_of(features().more.a, 1u << 5); }

/// Tiles of bytes: CPUID leaf 7, EDX bits 24 and 25. The system saves their 8 KiB of state only for processes that
/// request it (arch_prctl ARCH_REQ_XCOMP_PERM, Linux 5.16); permission holds for all threads. It is requested once: the
/// system may refuse, for instance if a thread has an alternate signal stack too small for the state.
bool runs_amx() {
#if defined(__linux__)
  static const bool runs = [] {
    if (!runs_avx512vnni() || !all_of(features().extended.d, 3u << 24)) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return runs;
#else
  return false;
#endif
}
/// CPUID leaf 7, EDX bit 22.
bool runs_amx_bf16() { return runs_amx() && all_of(features().extended.d, 1u << 22); }
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
      return runs_avx512bf16();
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
