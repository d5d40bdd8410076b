#pragma once

// DLLM_CLONES before a function compiles it for several instruction sets, chosen by the loader; what it calls must be
// inlined by force. Sanitizers' runtimes are not ready when the loader chooses, so they and other compilers and
// machines use the plain version. All versions compute the same: contraction of floating point is off
// (cmake/DllmModule.cmake), so a loop without a reduction has the same bits at every width.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DLLM_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define DLLM_CLONES
#endif
