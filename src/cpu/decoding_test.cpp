#include "cpu/decoding.h"

#include <gtest/gtest.h>

#include "cpu/kernels/test_data.h"
#include "cpu/linear.h"

namespace dllm::cpu {
namespace {

TEST(Decoding, IsMeasuredOnlyWhereThereIsAChoice) {
  for (const KernelSet* set : test::available_sets())
    for (const PackedFormat& format : kPackedFormats) {
      EXPECT_EQ(faster_decoding(*set, format, 1), Decoding::kDefault) << set->name;
      const Decoding chosen = faster_decoding(*set, format, 32);
      if (set->per_block_rows == 0 || !narrower_than_byte(format.codes)) {
        EXPECT_NE(chosen, Decoding::kPerBlock) << set->name;
      }
      if (set->exact_tile_rows == 0) {
        EXPECT_NE(chosen, Decoding::kTiles) << set->name;
      }
      // A process keeps what it measured: the machine's load must not change it from step to step.
      for (int again = 0; again < 3; ++again) EXPECT_EQ(faster_decoding(*set, format, 32), chosen) << set->name;
    }
}

TEST(Decoding, DoesNotChangeResults) {
  const std::int64_t k = 1792, n = 200, rows = 29;
  test::Random random(11);
  ThreadPool pool(2);
  for (const test::BlockLayout& layout : test::kBlockLayouts) {
    const std::vector<std::byte> data = random_blocks(random, layout, n * k);
    const std::vector<float> x = test::random_floats(random, rows * k);
    const WeightView weight{layout.type, {k, n}, data};
    const PackedMatrix packed(weight, pool);
    for (const KernelSet* set : test::available_sets()) {
      const auto product = [&](std::optional<Decoding> decoding) {
        LinearRunner runner(*set, pool, decoding);
        std::vector<float> out(static_cast<std::size_t>(rows * n));
        runner.run(runner.prepare(weight, &packed.weight(), nullptr, x.data(), rows, 0), n, out.data());
        return out;
      };
      const std::vector<float> expected = product(Decoding::kDefault);
      EXPECT_EQ(product(Decoding::kPerBlock), expected) << set->name;
      EXPECT_EQ(product(Decoding::kTiles), expected) << set->name;
      EXPECT_EQ(product(std::nullopt), expected) << set->name;
    }
  }
}

}  // namespace
}  // namespace dllm::cpu
