// The small parts of base without a test program of their own.
#include <gtest/gtest.h>

#include "base/cache_directory.h"
#include "base/hash.h"
#include "base/human_bytes.h"
#include "base/integers.h"
#include "base/nearest.h"
#include "base/parallel.h"
#include "base/svg_plot.h"

namespace dllm {
namespace {

TEST(Fnv1a, HasThePublishedValues) {  // http://www.isthe.com/chongo/tech/comp/fnv/, test vectors
  EXPECT_EQ(Fnv1a().value(), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a().add("a").value(), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fnv1a().add("foobar").value(), 0x85944171f73967e8u);
  EXPECT_EQ(Fnv1a().add_word(0x6f6f6666u).value(), Fnv1a().add("ffoo").value()) << "the lowest byte comes first";
}

TEST(SplitMix64, HasThePublishedValues) {  // the authors' splitmix64.c with the state 1234567
  std::uint64_t state = 1234567;
  EXPECT_EQ(splitmix64(state), 6457827717110365317u);
  EXPECT_EQ(splitmix64(state), 3203168211198807973u);
}

TEST(Mix64, DependsOnTheOrder) {
  EXPECT_NE(mix64(mix64(1, 2), 3), mix64(mix64(1, 3), 2));
  EXPECT_NE(mix64(1, 0), mix64(0, 0));
}

TEST(Integers, RoundAsTheySay) {
  EXPECT_EQ(ceil_div(7, 4), 2);
  EXPECT_EQ(round_up(8, 4), 8);
  EXPECT_EQ(log2_exact(1), 0);
  EXPECT_EQ(log2_exact(std::int64_t{1} << 40), 40);
  for (const auto& [value, expected] : {std::pair{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}})
    EXPECT_EQ(log2_ceil(value), expected) << value;
}

TEST(Parallel, PiecesCoverAllItemsOnce) {
  ThreadPool pool(3);
  for (const std::int64_t items : {0, 1, 6, 7, 13}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(items));
    parallel_pieces(pool, items, 6, [&](std::int64_t begin, std::int64_t end, int) {
      EXPECT_EQ(begin % 6, 0);
      EXPECT_LE(end - begin, 6);
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    parallel_items(pool, items, 1 << 20, [&](std::int64_t i, int) { ++seen[static_cast<std::size_t>(i)]; });
    for (const auto& count : seen) EXPECT_EQ(count.load(), 2);
  }
  EXPECT_THROW(parallel(pool, 2, [](std::int64_t, int) { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST(Nearest, FindsTyposAndNothingElse) {
  EXPECT_EQ(nearest("--stpes", {"--steps", "--seed"}), "--steps");
  EXPECT_EQ(nearest("quantise", {"quantize", "run"}), "quantize");
  EXPECT_EQ(nearest("zzz", {"run", "chat"}), "");
}

TEST(HumanBytes, TakesDecimalUnits) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(5057168), "5.06 MB");
}

TEST(CacheDirectory, FollowsTheXdgSpecification) {
  EXPECT_EQ(cache_directory("/x/cache", "/home/u"), "/x/cache/dllm");
  EXPECT_EQ(cache_directory(nullptr, "/home/u"), "/home/u/.cache/dllm");
  EXPECT_EQ(cache_directory("relative", "/home/u"), "/home/u/.cache/dllm");
  EXPECT_EQ(cache_directory("", nullptr), "");
}

TEST(SvgPlot, ScalesAndTicks) {
  const PlotScale linear{0, 100, 10, 20};
  EXPECT_DOUBLE_EQ(linear(50), 15);
  EXPECT_EQ(linear.ticks(), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  const PlotScale log{1, 100, 0, 2, true};
  EXPECT_DOUBLE_EQ(log(10), 1);
  EXPECT_EQ(log.ticks(), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_DOUBLE_EQ(tick_step(7), 2);
  EXPECT_DOUBLE_EQ(tick_step(0.9), 0.2);
}

TEST(SvgPlot, EscapesWhatItIsGiven) {
  SvgPlot plot({}, "a < b & c");
  plot.circle(1, 2, 3, "red", "x > y");
  plot.polyline({{1, 2}, {3, 4}}, "blue");
  const std::string svg = std::move(plot).take();
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("<title>x &gt; y</title></circle>"), std::string::npos);
  EXPECT_NE(svg.find("points=\"1.0,2.0 3.0,4.0\""), std::string::npos);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace dllm
