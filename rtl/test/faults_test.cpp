// Faults injected into the hardware (`FAULT(n) in rtl/*.sv): each must be detected by the check intended for it.

#include <gtest/gtest.h>

#include "test/column.h"
#include "test/engine.h"
#include "test/fault.h"
#include "test/units.h"

namespace dllm::rtl {
namespace {

bool seen(const UnitResult& result) { return result.wrong > 0; }
bool seen(const ColumnResult& result) { return result.wrong > 0; }
bool seen(const EngineResult& result) { return result.wrong > 0 || result.units_apart > 0; }
bool programs(ProgramKind kind) { return seen(check_programs(8, kind, 3000, 31)); }

struct Planted {
  int number;
  const char* name;
  bool (*caught)();
};

const Planted kFaults[] = {
    {1, "MinusZeroBelowZero", [] { return seen(check_max_index(8, 3000)); }},
    {2, "LaterLaneWinsTies", [] { return seen(check_max_index(8, 3000)); }},
    {3, "NoStickyBitInAdders", [] { return seen(check_add(20000)); }},
    {4, "ExponentialNotClamped", [] { return seen(check_exp()); }},
    {5, "ExceptionsOfTheExponentialForgotten", [] { return seen(check_exp()); }},
    {6, "SubnormalReciprocalsFlushed", [] { return seen(check_reciprocal()); }},
    {7, "HigherLaneFirstAmongEquals", [] { return seen(check_top_mask(8, 3000)); }},
    {8, "SelectionInverted", [] { return programs(ProgramKind::kSelect); }},
    {9, "WrittenRowNotForwarded", [] { return programs(ProgramKind::kLanes); }},
    {10, "MappedRowKeepsOldLanes", [] { return programs(ProgramKind::kMap); }},
    {11, "OneTripTooMany", [] { return programs(ProgramKind::kMixed); }},
    {12, "ACycleLostAfterIntegers", [] { return programs(ProgramKind::kScalar); }},
    {13, "NoStickyBitInTheWindow", [] { return seen(check_column(0, 4000)); }},
    {14, "NanScaleIgnored", [] { return seen(check_column(0, 4000)); }},
};

class RtlFaults : public ::testing::TestWithParam<Planted> {};
INSTANTIATE_TEST_SUITE_P(Planted, RtlFaults, ::testing::ValuesIn(kFaults),
                         [](const auto& fault) { return fault.param.name; });

TEST_P(RtlFaults, AreCaught) {
  EXPECT_FALSE(GetParam().caught()) << "without the fault";
  const PlantedFault fault(GetParam().number);
  EXPECT_TRUE(GetParam().caught());
}

}  // namespace
}  // namespace dllm::rtl
