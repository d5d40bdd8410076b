#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

/// Fuzzing with a clock: twice the input may cost at most about three times the time. Small inputs never show that a
/// parser searches its keys one by one, or compares shared lists as trees; a few minutes later somebody's large file
/// does.
namespace dllm::fuzz {

using Make = std::function<std::string(std::size_t)>;  ///< an input with that many parts, whatever they are
using Call = std::function<void(std::string_view)>;

struct GrowthLimits {
  double enough_seconds = 0.06;                   ///< of processor time: long enough to be measured
  double floor_seconds = 0.003;                   ///< what takes less counts as this
  std::size_t most_bytes = std::size_t{4} << 20;  ///< longer inputs are not read; if all others are quick, all is well
  double factor = 3;                              ///< per doubling: 2 is linear, 4 quadratic
  double limit_seconds = 0.6;     ///< what an input may cost that comes to some limit, on slow and busy machines too
  double refused_seconds = 0.25;  ///< the same of what grows too fast up to a size that is refused
};

/// Doubles the input until a call takes `enough_seconds` or `most_bytes` are reached, and compares its time with that
/// of a quarter of the parts: two doublings, since one may coincide with the end of a cache. Where it seems too much,
/// it measures again, and one doubling more. "" or what is wrong, with the figures.
std::string growth_problem(const Make& make, const Call& call, const GrowthLimits& limits = {});

/// The same in a child process that ends after `seconds` of processor time, which is a problem too: exponential inputs
/// never end.
std::string growth_problem_in_child(const Make& make, const Call& call, unsigned seconds,
                                    const GrowthLimits& limits = {});

/// `text` with a piece of it `count` times, or two pieces `count` times around what is between them (as brackets nest).
/// `choice` draws where the pieces begin and end, and whether copies are numbered, so that their names differ.
std::string stretched(std::string_view text, std::uint64_t choice, std::size_t count);

/// Growth of `stretched` forms of an input of the fuzzer, drawn by its bytes. Ends the process where it is too fast. So
/// that fuzzing goes on meanwhile, at most a fifth of the processor time is spent here; the first input that a process
/// sees is always tried, which reproduces findings.
void check_stretched(std::string_view text, const Call& call);

/// The families of a target (families.h), each in a child process; ends the process with 1 if one grows too fast.
void check_families(std::string_view target, const Call& call);

}  // namespace dllm::fuzz
