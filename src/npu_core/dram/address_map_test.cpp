#include "npu_core/dram/address_map.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace dllm::npu::dram {
namespace {

DramStandard small(const char* name) {
  DramStandard standard = *load_standard(name);
  standard.rows = 4;
  return standard;
}

TEST(AddressMap, EveryMappingIsOneToOne) {
  for (const char* name : {"hbm2-2000", "hbm3-6400", "lpddr5x-8533"})
    for (const std::string& mapping : mapping_names())
      for (const int channels : {1, 4}) {
        const DramStandard standard = small(name);
        const auto map = AddressMap::named(mapping, standard, channels);
        ASSERT_TRUE(map) << map.error().message();
        ASSERT_EQ(map->bursts() * static_cast<std::uint64_t>(standard.burst_bytes),
                  static_cast<std::uint64_t>(standard.bytes_per_channel() * channels));
        std::set<std::tuple<int, int, int, int, int>> seen;
        for (std::uint64_t burst = 0; burst < map->bursts(); ++burst) {
          const Location at = map->locate(burst);
          ASSERT_LT(at.channel, channels);
          ASSERT_LT(at.bank, standard.banks());
          ASSERT_LT(at.column, standard.columns);
          ASSERT_TRUE(seen.emplace(at.channel, at.pseudochannel, at.bank, at.row, at.column).second);
        }
      }
}

TEST(AddressMap, RunsAreConsecutiveColumnsOfARow) {
  for (const std::string& mapping : mapping_names()) {
    const DramStandard standard = small("hbm2-2000");
    const auto map = AddressMap::named(mapping, standard, 1);
    const auto run = static_cast<std::uint64_t>(map->run());
    for (std::uint64_t burst = 0; burst < map->bursts(); burst += run) {
      const Location first = map->locate(burst);
      for (std::uint64_t i = 1; i < run; ++i) {
        const Location at = map->locate(burst + i);
        ASSERT_EQ(std::tie(at.pseudochannel, at.bank, at.row), std::tie(first.pseudochannel, first.bank, first.row));
        ASSERT_EQ(at.column, first.column + static_cast<int>(i));
      }
    }
  }
  EXPECT_EQ(AddressMap::named("robaracoch", small("hbm2-2000"), 1)->run(), 32);
  EXPECT_EQ(AddressMap::named("mop4clxor", small("hbm2-2000"), 1)->run(), 1);  // bit 0 of the column picks the half
}

TEST(AddressMap, RefusesIncompleteAndAmbiguousMappings) {
  const DramStandard standard = small("hbm2-2000");
  const auto parse = [&](const char* text) { return AddressMap::parse(text, "m.toml", "m", standard, 1); };
  EXPECT_FALSE(parse("[m]\norder = [\"column\", \"row\"]\nsummary = \"\"\n"));
  EXPECT_FALSE(parse("[m]\norder = [\"colunm\"]\nsummary = \"\"\n"));
  EXPECT_FALSE(
      parse("[m]\norder = [\"column\",\"bank\",\"bankgroup\",\"pseudochannel\",\"row\"]\nsummary = \"\"\n"
            "xor = [{ field = \"row\", source = \"column\" }]\n"));
  EXPECT_TRUE(
      parse("[m]\norder = [\"column\",\"bank\",\"bankgroup\",\"pseudochannel\",\"row\"]\nsummary = \"\"\n"
            "xor = [{ field = \"bank\", source = \"row\", shift = 1 }]\n"));
  EXPECT_FALSE(AddressMap::named("mop4clxor", standard, 3));
}

}  // namespace
}  // namespace dllm::npu::dram
