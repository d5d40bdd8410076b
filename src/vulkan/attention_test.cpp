// Storing K and V and attending to them, on the device and by the CPU's scalar kernels: 0 bits differ.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "cpu/attention.h"
#include "cpu/cpu_kv_cache.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"
#include "vulkan/kv_cache.h"
#include "vulkan/pass_arguments.h"
#include "vulkan/testing/operator_rig.h"
#include "vulkan/testing/test_device.h"

namespace dllm::vulkan {
namespace {

using cpu::test::Random;
using cpu::test::random_floats;
using test::difference;
using test::OperatorRig;
using test::test_device;

constexpr std::int32_t kHeads = 4, kKvHeads = 2, kLayers = 2;

/// One model's layer 1 in both worlds.
struct Worlds {
  Worlds(TensorType cache_type, std::int64_t dim, Position capacity, bool plain = false)
      : type(cache_type), plain_keys(plain), head_dim(dim), shapes(kLayers, cpu::KvShape{kKvHeads, dim}) {
    layout = std::make_shared<const CacheLayout>(shapes, CacheFormat{type, plain});
    for (int s = 0; s < 2; ++s) {
      here.push_back(*cpu::CpuKvCache::create(capacity + 64 * s, shapes, type, plain));
      there.push_back(*VulkanKvCache::create(test_device(), layout, capacity + 64 * s));
    }
  }

  /// Stores K and V of a batch's rows and attends to what the plans make visible.
  std::string compare(std::vector<SequenceStep> batch, std::int32_t window, Random& random) {
    std::int64_t rows = 0;
    for (const SequenceStep& step : batch) rows += step.plan.row_count();
    const auto k = random_floats(random, rows * kKvHeads * head_dim, 2.f),
               v = random_floats(random, rows * kKvHeads * head_dim),
               q = random_floats(random, rows * kHeads * head_dim, 2.f);
    op::Attention attention{0, 1, kHeads, kKvHeads, static_cast<std::int32_t>(head_dim), 0.125f, 1};
    attention.window = window;
    return difference(on_device(batch, attention, k, v, q), here_of(batch, attention, k, v, q));
  }

  std::vector<float> here_of(std::vector<SequenceStep> batch, const op::Attention& attention,
                             const std::vector<float>& k, const std::vector<float>& v, const std::vector<float>& q) {
    const cpu::KernelSet& scalar = *cpu::find_kernel_set("scalar");
    std::int64_t r = 0;
    for (std::size_t s = 0; s < batch.size(); ++s) {
      batch[s].cache = here[s].get();
      for (const PlanRow& row : batch[s].plan.rows) {
        for (std::int64_t head = 0; head < kKvHeads; ++head) {
          const std::int64_t at = row.position * here[s]->position_bytes(1), from = (r * kKvHeads + head) * head_dim;
          (plain_keys ? scalar.encode : scalar.encode_key)(type, k.data() + from, head_dim, here[s]->k(1, head) + at);
          scalar.encode(type, v.data() + from, head_dim, here[s]->v(1, head) + at);
        }
        ++r;
      }
      r += static_cast<std::int64_t>(batch[s].plan.shadows.size());
    }
    ThreadPool pool(1);
    cpu::AttentionRunner runner(scalar, pool);
    runner.begin(batch);
    std::vector<float> out(q.size());
    runner.run(attention, q.data(), out.data());
    return out;
  }

  std::vector<float> on_device(std::vector<SequenceStep> batch, const op::Attention& attention,
                               const std::vector<float>& k, const std::vector<float>& v, const std::vector<float>& q) {
    for (std::size_t s = 0; s < batch.size(); ++s) batch[s].cache = there[s].get();
    OperatorRig rig;
    Operators& device = OperatorRig::operators();
    const PassSize size = size_of_pass(batch, {});
    auto arguments = PassArguments::make(test_device(), Graph(), Weights(), size, 1);
    EXPECT_TRUE(arguments);
    arguments->fill(batch, {}, Weights());
    const auto out = rig.room(static_cast<std::int64_t>(q.size()));
    rig.run(device.store_kv(layout->format(), kKvHeads, head_dim, layout->layer(1), rig.put(k), rig.put(v),
                            arguments->stores()),
            size.stored);
    KernelPart part;
    part.count = arguments->count(false);
    rig.run(device.attention(attention, layout->format(), layout->layer(1),
                             {rig.put(q), arguments->rows(), arguments->visible(), arguments->tiles(), out}, part),
            size.rows);
    return rig.get(out, static_cast<std::int64_t>(q.size()));
  }

  TensorType type;
  bool plain_keys;
  std::int64_t head_dim;
  std::vector<cpu::KvShape> shapes;
  std::shared_ptr<const CacheLayout> layout;
  std::vector<std::unique_ptr<cpu::CpuKvCache>> here;
  std::vector<std::unique_ptr<VulkanKvCache>> there;
};

SequenceStep rows_from(Position begin, Position end) {
  SequenceStep step;
  for (Position p = begin; p < end; ++p) step.plan.rows.push_back({p, 0});
  step.plan.visible = {{0, end}};
  return step;
}

class Attention : public test::OnDevice, public testing::WithParamInterface<TensorType> {
 protected:
  Random random_{5};
};

TEST_P(Attention, OverTilesHolesAndBatches) {
  for (const std::int64_t head_dim : codec(GetParam()).block_elems > 1 ? std::vector<std::int64_t>{32, 64, 96}
                                                                       : std::vector<std::int64_t>{16, 34, 128}) {
    Worlds worlds(GetParam(), head_dim, 200);
    EXPECT_EQ(worlds.compare({rows_from(0, 130)}, 0, random_), "") << head_dim;
    // A few rows at the end of what is cached, and ranges with holes.
    SequenceStep few = rows_from(127, 133);
    few.plan.visible = {{0, 3}, {5, 70}, {100, 101}, {126, 133}};
    EXPECT_EQ(worlds.compare({few}, 0, random_), "") << head_dim;
    // Two sequences whose caches have different capacities.
    EXPECT_EQ(worlds.compare({few, rows_from(0, 70)}, 0, random_), "") << head_dim;
  }
}

TEST_P(Attention, MasksAndWindows) {
  Worlds worlds(GetParam(), 32, 200);
  for (const std::int32_t block : {0, 1, 8}) {
    SequenceStep step = rows_from(0, 140);
    step.plan.causal_block = block;
    EXPECT_EQ(worlds.compare({step}, 0, random_), "") << block;
    EXPECT_EQ(worlds.compare({step}, 70, random_), "") << block;
    SequenceStep later = rows_from(96, 104);
    later.plan.causal_block = block;
    EXPECT_EQ(worlds.compare({later}, 20, random_), "") << block;
  }
}

TEST_P(Attention, OfNothingIsZero) {
  Worlds worlds(GetParam(), 32, 64);
  SequenceStep step = rows_from(0, 2);
  step.plan.visible = {};
  EXPECT_EQ(worlds.compare({step}, 0, random_), "");
}

std::string name_of_cache(const testing::TestParamInfo<TensorType>& param) {
  return std::string(codec(param.param).name);
}

INSTANTIATE_TEST_SUITE_P(EveryCache, Attention,
                         testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                         TensorType::kQ4_0),
                         name_of_cache);

TEST_P(Attention, LongHeads) {
  for (const std::int64_t head_dim : {288, 512}) {
    Worlds worlds(GetParam(), head_dim, 100);
    EXPECT_EQ(worlds.compare({rows_from(0, 6), rows_from(0, 70)}, 0, random_), "") << head_dim;
  }
}

class CachedCodes : public test::OnDevice {};

TEST_F(CachedCodes, KeysThatTheModelRotates) {
  Random random(4);
  Worlds worlds(TensorType::kQ4_0, 64, 100, true);
  EXPECT_EQ(worlds.compare({rows_from(0, 70)}, 0, random), "");
}

/// Blocks of zeros, of tiny and huge numbers and of what is no number.
TEST_F(CachedCodes, OfLimits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_0})
    for (const float limit : {0.f, 0x1p-121f, 1e-30f, 6e4f, 1e30f, kInf, std::numeric_limits<float>::quiet_NaN()}) {
      Worlds worlds(type, 32, 64);
      std::vector<float> k(std::size_t{4 * kKvHeads * 32}), v = k, q(std::size_t{4 * kHeads * 32}, 0.01f);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 32) * limit * 0.03f;
      for (std::size_t i = 0; i < k.size(); i += 5) k[i] = limit;
      const std::vector<SequenceStep> batch = {rows_from(0, 4)};
      const op::Attention attention{0, 1, kHeads, kKvHeads, 32, 0.125f, 1};
      EXPECT_EQ(difference(worlds.on_device(batch, attention, k, v, q), worlds.here_of(batch, attention, k, v, q)), "")
          << limit;
    }
}

TEST(CacheLayout, CopiesWholeTilesAtOnce) {
  const std::vector<cpu::KvShape> shapes(2, {3, 16});
  const CacheLayout layout(shapes, CacheFormat{TensorType::kF16});
  EXPECT_EQ(layout.tile_bytes(), 2 * 2 * 3 * 64 * 16 * 2);
  EXPECT_EQ(layout.bytes(65), 2 * layout.tile_bytes());
  EXPECT_EQ(layout.pieces({0, 192}, 64).size(), 1U);
  // Two whole tiles, and 10 positions of 12 heads.
  EXPECT_EQ(layout.pieces({64, 202}, 0).size(), 13U);
  EXPECT_EQ(layout.pieces({5, 5}, 0).size(), 0U);
  // Shifted, every run ends where a tile of either cache does.
  EXPECT_EQ(layout.pieces({0, 64}, 10).size(), 2 * 12U);
}

class Caches : public test::OnDevice {};

TEST_F(Caches, RowsSayWhatTheirPlansSay) {
  Worlds worlds(TensorType::kF16, 16, 200);
  SequenceStep prompt = rows_from(0, 3), canvas = rows_from(70, 72);
  prompt.plan.causal_block = 2;
  canvas.plan.region = Region::kCanvas;
  prompt.cache = worlds.there[0].get();
  canvas.cache = worlds.there[1].get();
  const std::vector<SequenceStep> batch = {prompt, canvas};
  auto arguments = PassArguments::make(test_device(), Graph(), Weights(), size_of_pass(batch, {}), 1);
  ASSERT_TRUE(arguments);
  arguments->fill(batch, {}, Weights());
  const auto* const row = reinterpret_cast<const RowArgument*>(arguments->memory().data() +
                                                               (arguments->rows() - arguments->memory().address()));
  EXPECT_EQ(row[0].limit, 2);
  EXPECT_EQ(row[2].limit, 4);
  EXPECT_EQ(row[2].first, 2);
  EXPECT_EQ(row[2].tile_count, 1);
  EXPECT_EQ(row[2].kind, 0U);
  EXPECT_EQ(row[3].position, 70);
  EXPECT_EQ(row[3].first, 70);
  EXPECT_EQ(row[3].tile_count, 2);
  EXPECT_EQ(row[3].kind, kOfCanvas);
  EXPECT_EQ(row[3].cache, worlds.there[1]->address());
}

void give_rows(TensorType type) {
  Random random(8);
  Worlds worlds(type, 32, 200);
  ASSERT_EQ(worlds.compare({rows_from(0, 150)}, 0, random), "");
  std::vector<PlanRow> rows(150);
  for (Position p = 0; p < 150; ++p) rows[static_cast<std::size_t>(p)] = {p, p + 7};
  worlds.there[0]->wrote(rows);
  worlds.here[0]->record(rows);
  for (const auto& [range, to] : {std::pair{PositionRange{0, 150}, 0}, {PositionRange{3, 90}, 70}}) {
    worlds.there[1]->copy(*worlds.there[0], range, to);
    worlds.here[1]->copy(*worlds.here[0], range, to);
    EXPECT_EQ(worlds.there[1]->token_of(to + 2), range.begin + 2 + 7);
    // The other sequence's cache now gives what the first one would.
    std::swap(worlds.here[0], worlds.here[1]);
    std::swap(worlds.there[0], worlds.there[1]);
    SequenceStep step = rows_from(160, 164);
    step.plan.visible = {{to, to + range.size()}, {160, 164}};
    EXPECT_EQ(worlds.compare({step}, 0, random), "");
    std::swap(worlds.here[0], worlds.here[1]);
    std::swap(worlds.there[0], worlds.there[1]);
  }
}

TEST_F(Caches, GiveTheirRowsToOthers) {
  for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0, TensorType::kQ4_0}) give_rows(type);
}

}  // namespace
}  // namespace dllm::vulkan
