#include "test/column.h"

#include <gtest/gtest.h>

#include "npu_core/device/device.h"
#include "npu_core/timing/latency.h"
#include "test/engine.h"

namespace dllm::rtl {
namespace {

class RtlColumn : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Formats, RtlColumn, ::testing::Range(std::size_t{0}, column_models().size()),
                         [](const auto& index) { return column_models()[index.param].name; });

TEST_P(RtlColumn, AsTheMachinesAccumulator) {
  const ColumnModel& model = column_models()[GetParam()];
  const ColumnResult result = check_column(GetParam(), 100000);
  EXPECT_EQ(result.wrong, 0u) << "of " << result.outputs << ", first: " << result.first;
  // Terms, skew of the rows, alignment, conversion.
  EXPECT_EQ(result.cycles, model.klen + model.blen - 1 + 2);
}

// The last column of the array starts BLEN - 1 cycles after the first: together this is the simulator's M_MM.
TEST(RtlColumn, FillOfTheArray) {
  const ColumnModel& model = column_models()[0];
  ASSERT_EQ(model.blen, model.klen);
  npu::Device device = engine_device();
  device.array.blen = device.array.mlen = model.blen;
  npu::MachineConfig machine = engine_config(8);
  machine.blen = machine.mlen = model.blen;
  const npu::LatencyTable table(device.array, device.latency, machine, {});
  EXPECT_EQ(check_column(0, 100).cycles + model.blen - 1, model.klen + table.fill());
}

}  // namespace
}  // namespace dllm::rtl
