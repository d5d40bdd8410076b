#include "base/instruction_set.h"
#include "cpu/kernels/kernel_set.h"

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
namespace neon_i8mm {
const KernelSet& kernels();
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

}  // namespace

int list_kernel_sets(KernelSetEntry (&entries)[kMaxKernelSets]) {
  int count = 0;
  entries[count++] = {&scalar::kKernels, runs(InstructionSet::kScalar)};
#if defined(__x86_64__)
  entries[count++] = {&avx2::kKernels, runs(InstructionSet::kAvx2)};
  entries[count++] = {&avxvnni::kKernels, runs(InstructionSet::kAvxVnni)};
  entries[count++] = {&avx512::kKernels, runs(InstructionSet::kAvx512Vnni)};
  entries[count++] = {&amx::kernels(), runs(InstructionSet::kAmx)};
#elif defined(__aarch64__)
  entries[count++] = {&neon::kKernels, runs(InstructionSet::kNeon)};
  entries[count++] = {&neon_i8mm::kernels(), runs(InstructionSet::kNeonI8mm)};
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
