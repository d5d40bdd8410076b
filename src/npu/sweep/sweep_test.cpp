#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "npu/sweep/run.h"

namespace dllm::npu {
namespace {

constexpr const char* kSpec =
    "name = \"t\"\nmodel = \"llada-8b\"\n[device]\nbase = \"dart-2048\"\n\"array.blen\" = [32, 96, 128]\n"
    "\"memory.stacks\" = [1, 2]\n\"clock.ghz\" = [1, 1.0]\n[workload]\nbatch = [1, 16]\n[limits]\narea_mm2 = 40\n";

struct Database {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dllm_sweep_test_" + std::to_string(::getpid()) + ".sqlite");
  Database() { std::filesystem::remove(path); }
  ~Database() { std::filesystem::remove(path); }
};

Expected<SweepReport> run(const std::string& spec_text, const Database& database, int threads,
                          const SweepProgress& progress = {}) {
  auto spec = parse_sweep(spec_text, "s.toml");
  if (!spec) return spec.error();
  auto store = SweepStore::open(database.path.string());
  if (!store) return store.error();
  return run_sweep(*spec, *store, threads, progress);
}

TEST(Sweep, EvaluatesOnceAndGoesOn) {
  const Database database;
  const auto first = run(kSpec, database, 2);
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_EQ(first->rows.size(), 24u);
  EXPECT_EQ(first->invalid, 8);     // BLEN 96 does not divide MLEN
  EXPECT_EQ(first->duplicates, 8);  // 1 GHz is 1.0 GHz
  EXPECT_EQ(first->evaluated, 8);
  EXPECT_EQ(first->reused, 0);
  const auto second = run(kSpec, database, 1);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->evaluated, 0);
  EXPECT_EQ(second->reused, 8);
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  EXPECT_EQ(sweep_csv(spec, *first), sweep_csv(spec, *second));
}

TEST(Sweep, ThreadsDoNotChangeTheResult) {
  const Database one, four;
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  EXPECT_EQ(sweep_csv(spec, *run(kSpec, one, 1)), sweep_csv(spec, *run(kSpec, four, 4)));
}

TEST(Sweep, InvalidPointsSayWhy) {
  const Database database;
  const auto report = run(kSpec, database, 2);
  int invalid = 0;
  for (const SweepRow& row : report->rows)
    if (!row.result.error.empty()) {
      ++invalid;
      EXPECT_NE(row.result.error.find("no multiple of BLEN"), std::string::npos) << row.result.error;
      EXPECT_FALSE(row.pareto);
    }
  EXPECT_EQ(invalid, 8);
}

TEST(Sweep, ParetoFront) {
  std::vector<SweepRow> rows(5);
  const std::size_t area = metric_index("area_mm2"), speed = metric_index("tokens_per_second");
  const double points[5][2] = {{1, 10}, {2, 20}, {2, 15}, {3, 20}, {4, 30}};
  for (std::size_t i = 0; i < 5; ++i) {
    rows[i].result.metrics.assign(sweep_metrics().size(), 0.0);
    rows[i].result.metrics[area] = points[i][0];
    rows[i].result.metrics[speed] = points[i][1];
  }
  mark_pareto(rows, area, speed);
  EXPECT_TRUE(rows[0].pareto);
  EXPECT_TRUE(rows[1].pareto);
  EXPECT_FALSE(rows[2].pareto);
  EXPECT_FALSE(rows[3].pareto);
  EXPECT_TRUE(rows[4].pareto);
  rows[1].over_limit = "area_mm2";
  for (SweepRow& row : rows) row.pareto = false;
  mark_pareto(rows, area, speed);
  EXPECT_TRUE(rows[2].pareto);
}

TEST(Sweep, PlotHasAPointPerValidRow) {
  const Database database;
  const SweepSpec spec = *parse_sweep(kSpec, "s");
  const std::string svg = sweep_svg(spec, *run(kSpec, database, 2));
  std::size_t circles = 0;
  for (std::size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(circles, 16u);
  EXPECT_NE(svg.find("tokens_per_second [1/s]"), std::string::npos);
}

TEST(Sweep, MistakesAreNamed) {
  const auto message = [](const std::string& text) {
    const auto spec = parse_sweep(text, "s.toml");
    return spec ? "" : spec.error().message();
  };
  const std::string head = "name = \"t\"\nmodel = \"llada-8b\"\n";
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n\"array.vlan\" = [1]\n").find("array.vlen"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n[limits]\nspeed = 3\n").find("unknown metric"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n[workload]\nbacth = 3\n").find("s.toml:6"),
            std::string::npos);
  EXPECT_NE(message(head + "[device]\nbase = \"dart-2048\"\n\"array.blen\" = []\n").find("no values"),
            std::string::npos);
  EXPECT_FALSE(SweepStore::open("/nonexistent/folder/x.sqlite"));
}

}  // namespace
}  // namespace dllm::npu
