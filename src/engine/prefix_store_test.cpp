// Prefixes that requests share: which rows are final, which are found, which are dropped.
#include "engine/prefix_store.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/try.h"
#include "cpu/cpu_kv_cache.h"

namespace dllm {
namespace {

constexpr Position kBlock = 4;
constexpr TokenId kMask = 99;

/// Makes caches of one layer with one head of one float; forwards nothing.
class RowBackend final : public Backend {
 public:
  const ModelDesc& desc() const override { return desc_; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override {
    DLLM_TRY(auto cache, cpu::CpuKvCache::create(capacity, {{1, 1}}, TensorType::kF32));
    return std::unique_ptr<KvCache>(std::move(cache));
  }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep>) override { return std::vector<Scores>(); }

 private:
  ModelDesc desc_;
};

class PrefixStoreTest : public ::testing::Test {
 protected:
  static std::vector<TokenId> text(Position length, TokenId first = 0) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(length));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  std::unique_ptr<cpu::CpuKvCache> empty(Position capacity = 64) {
    return *cpu::CpuKvCache::create(capacity, {{1, 1}}, TensorType::kF32);
  }
  /// One pass over positions [begin, ...) with these tokens. K of each row is `mark` plus its position, V the negative.
  static void pass(cpu::CpuKvCache& cache, const std::vector<TokenId>& tokens, float mark, Position begin = 0) {
    std::vector<PlanRow> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Position p = begin + static_cast<Position>(i);
      rows.push_back({p, tokens[i]});
      reinterpret_cast<float*>(cache.k(0, 0))[p] = mark + static_cast<float>(p);
      reinterpret_cast<float*>(cache.v(0, 0))[p] = -mark - static_cast<float>(p);
    }
    cache.record(rows);
  }
  Position found(PrefixStore& store, const std::vector<TokenId>& tokens) {
    const auto cache = empty();
    return store.read(tokens, *cache);
  }
  /// Bytes of a piece.
  std::int64_t piece() {
    PrefixStore store(kBlock, 1 << 20);
    const auto cache = empty();
    pass(*cache, text(16), 0);
    store.keep(backend, *cache, 16, kMask);
    EXPECT_EQ(store.counters().tokens, 16);
    return store.counters().bytes;
  }
  RowBackend backend;
};

TEST_F(PrefixStoreTest, GivesTheRowsOfEqualTokens) {
  PrefixStore store(kBlock, 1 << 20);
  const auto cache = empty();
  pass(*cache, text(40), 100);
  store.keep(backend, *cache, 40, kMask);
  EXPECT_EQ(store.counters().tokens, 32) << "whole pieces of 16";

  const auto next = empty(37);
  EXPECT_EQ(store.read(text(37), *next), 32);
  for (Position p = 0; p < 32; ++p) {
    EXPECT_EQ(next->token_of(p), p);
    EXPECT_EQ(reinterpret_cast<float*>(next->k(0, 0))[p], 100.0F + static_cast<float>(p));
    EXPECT_EQ(reinterpret_cast<float*>(next->v(0, 0))[p], -100.0F - static_cast<float>(p));
  }
  EXPECT_FALSE(next->holds(32));
  auto other = text(37);
  other[20] = 5;
  EXPECT_EQ(found(store, other), 16);
  other[3] = 5;
  EXPECT_EQ(found(store, other), 0);
  EXPECT_EQ(found(store, text(15)), 0);
  EXPECT_EQ(store.counters().hits, 2U);
  EXPECT_EQ(store.counters().misses, 2U);
  EXPECT_EQ(store.counters().cached_tokens, 48U);

  store.keep(backend, *next, 32, kMask);  // nothing new
  EXPECT_EQ(store.counters().tokens, 32);
}

TEST_F(PrefixStoreTest, HoldsOnlyWhatCannotChange) {
  const auto held = [&](const cpu::CpuKvCache& cache, Position end) {
    PrefixStore store(kBlock, 1 << 20);
    store.keep(backend, cache, end, kMask);
    return store.counters().tokens;
  };
  const auto masked = empty();
  auto tokens = text(48);
  tokens[30] = kMask;
  pass(*masked, tokens, 0);
  EXPECT_EQ(held(*masked, 48), 16) << "the block of the mask is not final, and 28 positions have one whole piece";

  // The mask is decided, but its row alone is computed again: the others of its block saw the mask.
  pass(*masked, {30}, 0, 30);
  EXPECT_EQ(held(*masked, 48), 16);
  // The whole block is: the one after it saw the mask.
  pass(*masked, {28, 29, 30, 31}, 0, 28);
  EXPECT_EQ(held(*masked, 48), 32);
  pass(*masked, text(16, 32), 0, 32);
  EXPECT_EQ(held(*masked, 48), 48);
  EXPECT_EQ(held(*masked, 47), 32);
  EXPECT_EQ(held(*masked, 0), 0);
}

TEST_F(PrefixStoreTest, DropsWhatWasNotUsedForTheLongestTime) {
  const std::int64_t bytes = piece();
  PrefixStore store(kBlock, 4 * bytes);
  const auto keep = [&](const std::vector<TokenId>& tokens) {
    const auto cache = empty();
    pass(*cache, tokens, 0);
    store.keep(backend, *cache, static_cast<Position>(tokens.size()), kMask);
  };
  keep(text(32));       // two pieces
  keep(text(32, 200));  // two others
  EXPECT_EQ(store.counters().bytes, 4 * bytes);
  EXPECT_EQ(found(store, text(32)), 32);
  keep(text(16, 300));  // the end of the second text goes, not its beginning
  EXPECT_EQ(found(store, text(32, 200)), 16);
  EXPECT_EQ(found(store, text(32)), 32);
  EXPECT_EQ(store.counters().evicted_tokens, 16U);
  auto branch = text(32);
  branch[31] = 7;
  keep(branch);  // shares its first piece
  EXPECT_EQ(store.counters().bytes, 4 * bytes);
  EXPECT_EQ(found(store, branch), 32);
  EXPECT_EQ(found(store, text(16, 300)), 0);

  keep(text(64, 400));  // as long as the budget: it alone stays
  EXPECT_EQ(found(store, text(64, 400)), 64);
  EXPECT_EQ(store.counters().tokens, 64);
  keep(text(64, 500));
  EXPECT_EQ(found(store, text(64, 500)), 64);
  EXPECT_EQ(found(store, text(64, 400)), 0);
}

TEST_F(PrefixStoreTest, ATextLongerThanTheBudgetIsHeldAsFarAsItFits) {
  PrefixStore store(kBlock, 2 * piece());
  const auto cache = empty();
  pass(*cache, text(64), 0);
  store.keep(backend, *cache, 64, kMask);
  EXPECT_EQ(found(store, text(64)), 32);
  PrefixStore none(kBlock, piece() - 1);
  none.keep(backend, *cache, 64, kMask);
  EXPECT_EQ(none.counters().tokens, 0);
  EXPECT_EQ(none.counters().bytes, 0);
}

TEST_F(PrefixStoreTest, LongTextsAreFreedWithoutRecursion) {
  PrefixStore store(1, 1 << 30);
  const Position length = 1 << 20;
  const auto cache = empty(length);
  pass(*cache, text(length), 0);
  store.keep(backend, *cache, length, -1);
  EXPECT_EQ(store.counters().tokens, length);
}

}  // namespace
}  // namespace dllm
