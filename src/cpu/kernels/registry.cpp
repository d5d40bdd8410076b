#include "cpu/kernels/kernel_set.h"

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

namespace dllm::cpu {

namespace scalar {
extern const KernelSet kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const KernelSet kKernels;
}
namespace avxvnni {
extern const KernelSet kKernels;
}
namespace avx512 {
extern const KernelSet kKernels;
}
namespace amx {
const KernelSet& kernels();
}
#elif defined(__aarch64__)
namespace neon {
extern const KernelSet kKernels;
}
#elif defined(__wasm__)
namespace simd128 {
extern const KernelSet kKernels;
}
bool runs_simd128();             ///< its emulated multiply-add rounds once
const KernelSet* relaxed_set();  ///< nullptr: this program was linked without it (no_relaxed.cpp)
bool runs_relaxed();             ///< its multiply-add is fused here
#endif

namespace {

bool same_name(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

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
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

/// Tiles of bytes: CPUID leaf 7, EDX bits 24 and 25. The system saves their 8 KiB of state only for processes that
/// request it (arch_prctl ARCH_REQ_XCOMP_PERM, Linux 5.16); permission holds for all threads. It is requested once: the
/// system may refuse, for instance if a thread has an alternate signal stack too small for the state.
bool runs_amx() {
#if defined(__linux__)
  static const bool runs = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kTiles = 3u << 24;
    if (!runs_avx512() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) != kTiles) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return runs;
#else
  return false;
#endif
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
#endif

}  // namespace

int list_kernel_sets(KernelSetEntry (&entries)[kMaxKernelSets]) {
  int count = 0;
  entries[count++] = {&scalar::kKernels, true};
#if defined(__x86_64__)
  __builtin_cpu_init();
  entries[count++] = {&avx2::kKernels, runs_avx2()};
  entries[count++] = {&avxvnni::kKernels, runs_avxvnni()};
  entries[count++] = {&avx512::kKernels, runs_avx512()};
  entries[count++] = {&amx::kernels(), runs_amx()};
#elif defined(__aarch64__)
  entries[count++] = {&neon::kKernels, runs_neon()};
#elif defined(__wasm__)
  entries[count++] = {&simd128::kKernels, runs_simd128()};
  if (relaxed_set() != nullptr) entries[count++] = {relaxed_set(), runs_relaxed()};
#endif
  return count;
}

const KernelSet* default_kernel_set() {
  KernelSetEntry entries[kMaxKernelSets];
  for (int i = list_kernel_sets(entries); i-- > 0;)
    if (entries[i].available) return entries[i].set;
  return nullptr;  // not reached: scalar is always there
}

const KernelSet* find_kernel_set(const char* name) {
  KernelSetEntry entries[kMaxKernelSets];
  const int count = list_kernel_sets(entries);
  for (int i = 0; i < count; ++i)
    if (entries[i].available && same_name(entries[i].set->name, name)) return entries[i].set;
  return nullptr;
}

}  // namespace dllm::cpu
