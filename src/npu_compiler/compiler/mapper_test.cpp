// The search of mappings: against every mapping there is, against less of each resource, and against the simulator.

#include "npu_compiler/compiler/mapper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/testing/temp_dir.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/analytic/model_schedule.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/compiler/step_time.h"
#include "npu_core/device/profile.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

/// Few layers of a narrow model with several shapes of matrices.
ModelShape narrow_model(bool experts = false) {
  ModelShape shape = *load_model_shape(experts ? "llada-moe" : "dream-7b");
  ModelDesc& d = shape.desc;
  d.layers = 2, d.vocab = 2048;
  d.width = 1024, d.ffn_width = 3072;
  d.head_dim = d.rope_dims = 128;
  d.heads = 8, d.kv_heads = experts ? 8 : 2;
  if (experts) d.experts.count = 16, d.experts.used = 2, d.experts.width = 512;
  return shape;
}

const std::vector<Override> kSmall = {{"array.vlen", "512"}, {"array.mlen", "512"}, {"sram.vector_rows", "4096"}};

Device device_of(std::vector<Override> changes, const char* name = "dart-1024") {
  changes.insert(changes.begin(), kSmall.begin(), kSmall.end());
  return *load_device(name, changes);
}

double searched(const Device& device, const ModelShape& shape, const StepSize& step) {
  const auto found = search_mapping(device, shape, {.steps = {{step}}});
  EXPECT_TRUE(found) << found.error().message();
  return found ? found->cycles : std::numeric_limits<double>::quiet_NaN();
}

double by_rule(const Device& device, const ModelShape& shape, const StepSize& step) {
  const auto parts = Feasibility(shape).step_parts(device, step, {});
  EXPECT_TRUE(parts) << parts.error().message();
  return *ModelSchedule(shape).cycles(device, step,
                                      {.logits = true,
                                       .logit_bytes = device.numerics.logit_bytes,
                                       .gbps = *achieved_bandwidth(device),
                                       .queue = device.issue.queue},
                                      *parts);
}

/// More of a resource, step by step: never slower, and never slower than the rule.
using Axes = std::map<std::string, std::vector<std::string>>;

void expect_monotone(const ModelShape& shape, const StepSize& step, const Axes& axes) {
  for (const auto& [key, values] : axes) {
    double before = std::numeric_limits<double>::infinity();
    for (const std::string& value : values) {
      SCOPED_TRACE(key + "=" + value);
      const Device device = device_of({{key, value}});
      const double cycles = searched(device, shape, step);
      EXPECT_LE(cycles, before);
      before = cycles;
      if (Feasibility(shape).step_parts(device, step, {})) {
        EXPECT_LE(cycles, by_rule(device, shape, step));
      }
    }
  }
}

TEST(Mapper, MoreOfAResourceIsNeverSlower) {
  const Axes axes = {
      {"sram.matrix_tiles", {"3", "4", "5", "6", "8", "12", "16", "24", "32", "64"}},
      {"sram.vector_rows", {"2048", "2560", "3072", "4096", "6144", "8192", "16384"}},
      {"sram.matrix_ports", {"1", "2"}},
      {"sram.vector_ports", {"2", "3", "4"}},
      {"memory.stacks", {"1", "2", "4"}},
  };
  expect_monotone(narrow_model(), {.sequences = 4, .rows = 32, .keys = 256, .scored = 32}, axes);
  expect_monotone(narrow_model(), {.sequences = 2, .rows = 128, .keys = 512, .scored = 32}, axes);
}

TEST(Mapper, MoreOfAResourceIsNeverSlowerForExperts) {
  const Axes axes = {{"sram.matrix_tiles", {"8", "9", "13", "16", "32"}},
                     {"sram.vector_rows", {"2048", "4096", "16384"}},
                     {"memory.stacks", {"1", "2"}}};
  expect_monotone(narrow_model(true), {.sequences = 4, .rows = 32, .keys = 256, .scored = 32}, axes);
}

/// Every combination of panels and chunks, one by one.
TEST(Mapper, IsNearTheBestOfAll) {
  const ModelShape shape = narrow_model();
  for (const char* tiles : {"4", "8", "20"}) {
    const Device device = device_of({{"sram.matrix_tiles", tiles}});
    const StepSize step{.sequences = 2, .rows = 64, .keys = 512, .scored = 64};
    const MappingChoices choices = *mapping_choices(device, shape, std::vector<MappedStep>{{step}});
    const SramShape sram = sram_shape(device);
    const double gbps = *achieved_bandwidth(device);
    ModelSchedule schedule(shape);
    double best = std::numeric_limits<double>::infinity();
    std::int64_t tried = 0;
    for (std::int64_t chunk = 1; chunk <= 4; ++chunk) {
      Mapping mapping;
      mapping.chunk_tiles = chunk;
      mapping.kv_rows = chunk * choices.key_rows;
      mapping.weight_rows = sram.matrix_rows / 2 - mapping.kv_rows;
      if (mapping.weight_rows < choices.buffers.front()) continue;
      std::vector<PanelChoice> smallest = choices.matrices;
      for (PanelChoice& p : smallest) p.lanes = sram.blen;
      mapping.panels = smallest;
      for (bool more = true; more;) {
        const bool fits = std::ranges::all_of(
            mapping.panels, [&](const PanelChoice& p) { return p.lanes * p.k_tiles <= mapping.weight_rows; });
        if (fits) {
          ++tried;
          best = std::min(best, *schedule.cycles(device, step,
                                                 {.logits = true,
                                                  .logit_bytes = device.numerics.logit_bytes,
                                                  .gbps = gbps,
                                                  .queue = device.issue.queue,
                                                  .mapping = &mapping}));
        }
        more = false;  // the next combination, as an odometer
        for (std::size_t i = 0; i < mapping.panels.size(); ++i) {
          if (mapping.panels[i].lanes < choices.matrices[i].lanes) {
            mapping.panels[i].lanes *= 2;
            more = true;
            break;
          }
          mapping.panels[i].lanes = sram.blen;
        }
      }
    }
    EXPECT_GT(tried, 100);
    const auto found = search_mapping(device, shape, {.steps = {{step}}});
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_LT(found->priced, tried);
    EXPECT_LE(found->cycles, 1.05 * best) << tiles << " tiles, " << tried << " mappings";
    EXPECT_GE(found->cycles, best * (1 - 1e-9)) << "what is found is one of them";
  }
}

double simulated(const Device& device, const ModelShape& shape, const StepRequest& request) {
  const auto step = compile_step(shape, device, request);
  EXPECT_TRUE(step) << step.error().message();
  if (!step) return std::numeric_limits<double>::quiet_NaN();
  TimingOptions options;
  options.repeat = true;
  const auto timing = simulate(device, step->machine, step->step.program, options);
  EXPECT_TRUE(timing) << timing.error().message();
  const auto priced = price(*step, {});
  EXPECT_TRUE(priced) << priced.error().message();
  const auto cycles = static_cast<double>(timing->total);
  EXPECT_NEAR(priced->time.device, cycles, 0.05 * cycles);
  return cycles;
}

/// The figures of the search are those of programs: at most 0.5 % slower with more matrix SRAM, and than the rule.
TEST(Mapper, SimulatesAsItPrices) {
  for (const bool experts : {false, true}) {
    double before = std::numeric_limits<double>::infinity();
    for (const char* tiles : {"8", "16", "32"}) {
      SCOPED_TRACE(std::string(tiles) + (experts ? " tiles, experts" : " tiles"));
      const Device device = device_of({{"sram.matrix_tiles", tiles}});
      StepRequest request{.size = {.sequences = 4, .rows = 32, .keys = 256}};
      const double rule = simulated(device, narrow_model(experts), request);
      request.search = true;
      const double best = simulated(device, narrow_model(experts), request);
      EXPECT_LE(best, 1.005 * rule);
      EXPECT_LE(best, 1.005 * before);
      before = best;
    }
  }
}

/// Rows that vector SRAM cannot hold take turns, at the price of the schedule.
TEST(Mapper, LongSequencesRunOnPhones) {
  const ModelShape shape = narrow_model();
  const std::vector<Override> quarter = {{"sram.vector_rows", "8192"}};  // for a quarter of an 8B model's width
  const Device device = *load_device("mobile-v79-mx", quarter);
  StepRequest request{.size = {.sequences = 1, .rows = 32, .keys = 256}, .cache = CacheKind::kNone};
  const auto step = compile_step(shape, device, request);
  ASSERT_TRUE(step) << step.error().message();
  EXPECT_EQ(step->size.rows, 256);
  EXPECT_GT(step->step.row_parts.size(), 1u);
  EXPECT_EQ(step->step.parts.size(), 3 * step->step.row_parts.size()) << "segments begin at two attentions";
  const auto parts =
      check_feasible(device, shape, {.sequences = 1, .rows = 256, .keys = 256, .scored = 256}, ChoiceAssumption{});
  ASSERT_TRUE(parts) << parts.error().message();
  EXPECT_EQ(*parts, step->step.row_parts);
  const double rule = simulated(device, shape, request);
  request.search = true;
  EXPECT_LE(simulated(device, shape, request), 1.005 * rule);
}

/// Both steps of a block have one mapping, since they share the weights' order in memory.
TEST(Mapper, BlocksHaveOneMapping) {
  const Device device = device_of({});
  const Workload w{.batch = 4, .block = 32, .context = 128, .steps = 8};
  const auto parts = search_block(device, narrow_model(), w, "");
  ASSERT_TRUE(parts) << parts.error().message();
  ASSERT_TRUE(parts->mapping);
  std::int64_t warm = 0, refine = 0;
  for (const RowPart& p : parts->warm) warm += p.sequences;
  for (const RowPart& p : parts->refine) refine += p.sequences;
  EXPECT_EQ(warm, 4);
  EXPECT_EQ(refine, 4);
  Workload many = w;
  many.batch = 1 << 20;
  EXPECT_FALSE(search_block(device, narrow_model(), many, "")) << "caches beyond the memory";
}

TEST(Mapper, WhatIsFoundIsKept) {
  const dllm::test::TempDir directory;
  const std::string path = directory.path().string();
  const Device device = device_of({});
  const MappingQuestion question{.steps = {{{.sequences = 2, .rows = 32, .keys = 128, .scored = 32}}}};
  const auto first = cached_mapping(device, narrow_model(), question, path);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_GT(first->priced, 10);
  const auto again = cached_mapping(device, narrow_model(), question, path);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->priced, 0);
  EXPECT_EQ(again->mapping, first->mapping);
  EXPECT_EQ(again->parts, first->parts);
  EXPECT_EQ(again->cycles, first->cycles);
  // Another device, model or step is another question.
  MappingQuestion other = question;
  other.steps[0].step.keys = 256;
  EXPECT_GT(cached_mapping(device, narrow_model(), other, path)->priced, 0);
  EXPECT_GT(cached_mapping(device_of({{"memory.stacks", "1"}}), narrow_model(), question, path)->priced, 0);
  ModelShape wider = narrow_model();
  wider.desc.ffn_width = 4096;
  EXPECT_GT(cached_mapping(device, wider, question, path)->priced, 0);
  // A damaged file is not used.
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto at = text.find("buffers\":[") + 10;
    text[at] = text[at] == '9' ? '8' : '9';
    std::ofstream(entry.path()) << text;
  }
  EXPECT_GT(cached_mapping(device, narrow_model(), question, path)->priced, 0);
}

/// The rule gives each buffer for K and V an eighth of matrix SRAM, which here holds no tile of keys.
TEST(Mapper, FitsWhereTheRuleDoesNot) {
  const Device device = device_of({{"array.blen", "32"}, {"sram.vector_rows", "16384"}, {"sram.matrix_tiles", "2"}});
  const Workload w{.batch = 2, .block = 32, .context = 128, .steps = 8};
  const auto rule = check_feasible(device, narrow_model(), w);
  ASSERT_FALSE(rule);
  EXPECT_NE(rule.error().message().find("one tile of 128 keys"), std::string::npos) << rule.error().message();
  const StepRequest step{.size = {.sequences = 2, .rows = 32, .keys = 128}, .search = true};
  EXPECT_TRUE(compile_step(narrow_model(), device, step));
  const auto parts = search_block(device, narrow_model(), w, "");
  EXPECT_TRUE(parts) << parts.error().message();
}

/// What no mapping fits is refused in the words of the one by rule, which name the memory.
TEST(Mapper, NothingFits) {
  for (const Override& few : {Override{"sram.vector_rows", "512"}, Override{"sram.vector_rows", "1024"}}) {
    const Device device = device_of({few});
    const auto found =
        search_mapping(device, narrow_model(), {.steps = {{{.sequences = 1, .rows = 32, .keys = 256, .scored = 32}}}});
    ASSERT_FALSE(found);
    EXPECT_NE(found.error().message().find("sram.vector_rows"), std::string::npos) << found.error().message();
    const Workload w{.batch = 1, .block = 32, .context = 256, .steps = 8};
    const auto rule = check_feasible(device, narrow_model(), w);
    const auto block = search_block(device, narrow_model(), w, "");
    ASSERT_FALSE(rule);
    ASSERT_FALSE(block);
    EXPECT_EQ(found.error().message(), rule.error().message());
    EXPECT_EQ(block.error().message(), rule.error().message());
  }
}

}  // namespace
}  // namespace dllm::npu
