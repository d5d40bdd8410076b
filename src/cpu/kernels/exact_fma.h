#pragma once

// a * b + c, rounded once to nearest (ties to even): what IEEE 754 calls fusedMultiplyAdd, and what every kernel set
// computes in the same bits. C's fma() and fmaf() are exact by their definition, but not on every system: mingw-w64's
// fmaf() rounds twice. The scalar set, the reference of the others, therefore uses the functions below where C's fail a
// test at the program's start.

namespace dllm::cpu {

float exact_fma(float a, float b, float c);
double exact_fma(double a, double b, double c);

using FmaF32 = float (*)(float, float, float);
using FmaF64 = double (*)(double, double, double);

/// `platform` if it rounds once in each of some hundred cases in which other methods do not; else exact_fma().
FmaF32 choose_fma(FmaF32 platform);
FmaF64 choose_fma(FmaF64 platform);

/// What the scalar set uses where the compiler has no instruction for it; chosen when the program starts.
extern const FmaF32 kFmaF32;
extern const FmaF64 kFmaF64;

}  // namespace dllm::cpu
