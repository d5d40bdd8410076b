// Properties of plans for random programs, and the search compared with all placements of small ones.
#include "npu_compiler/runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/integers.h"
#include "npu_compiler/runtime/memory_map.h"
#include "npu_compiler/runtime/placement.h"
#include "npu_compiler/runtime/scratch.h"
#include "npu_compiler/runtime/staged_waits.h"
#include "npu_compiler/runtime/staging.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kPage = 64;

MemoryLimits limits_of(std::int64_t window, std::int64_t staging) {
  return {.window_bytes = window,
          .staging_bytes = staging,
          .page_bytes = kPage,
          .alignment = 16,
          .map_us = 2,
          .map_us_per_page = 1};
}

/// A chain of operators: each reads the activation before it and up to two lasting tensors; some write a cache.
MemoryProgram random_program(std::mt19937& random, std::int32_t lasting, std::int32_t operators) {
  MemoryProgram program;
  for (std::int32_t t = 0; t < lasting; ++t) {
    const auto bytes = static_cast<std::int64_t>(1 + random() % 2000);
    program.tensors.push_back({.name = "w" + std::to_string(t),
                               .bytes = bytes,
                               .granule = random() % 3 == 0 ? 0 : std::min<std::int64_t>(bytes, kPage),
                               .lasting = true});
  }
  for (std::int32_t o = 0; o <= operators; ++o)
    program.tensors.push_back(
        {.name = "x" + std::to_string(o), .bytes = static_cast<std::int64_t>(1 + random() % 500)});
  for (std::int32_t o = 0; o < operators; ++o) {
    MemoryOp op{"op" + std::to_string(o), static_cast<double>(random() % 60) * 1e-6, {lasting + o}, {lasting + o + 1}};
    for (auto n = random() % 3; n > 0; --n)
      op.reads.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(lasting)));
    if (random() % 8 == 0) op.writes.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(lasting)));
    if (o > 2 && random() % 4 == 0) op.reads.push_back(lasting + o - 2);
    program.ops.push_back(std::move(op));
  }
  return program;
}

std::int64_t lasting_bytes(const MemoryProgram& program) {
  std::int64_t sum = 0;
  for (const MemoryTensor& tensor : program.tensors) sum += tensor.lasting ? tensor.bytes : 0;
  return sum;
}

struct Range {
  std::int64_t begin, end;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

std::pair<std::int32_t, std::int32_t> life(const MemoryProgram& program, std::size_t tensor) {
  std::int32_t first = -1, last = -1;
  for (std::size_t o = 0; o < program.ops.size(); ++o)
    for (const auto* list : {&program.ops[o].reads, &program.ops[o].writes})
      if (std::ranges::count(*list, static_cast<std::int32_t>(tensor)) > 0) {
        last = static_cast<std::int32_t>(o);
        if (first < 0) first = last;
      }
  return {first, last};
}

/// No two tensors that live at the same time overlap, each is inside its mapping, and mappings are disjoint pages
/// within the window.
void expect_sound(const MemoryProgram& program, const MemoryLimits& limits, const MemoryPlan& plan) {
  std::int64_t end = 0;
  for (const MemoryMapping& mapping : plan.mappings) {
    EXPECT_GE(mapping.address, end);
    EXPECT_EQ(mapping.address % limits.page_bytes, 0);
    EXPECT_EQ(mapping.bytes % limits.page_bytes, 0);
    if (limits.mapping_bytes > 0 && mapping.use == MemoryMapping::kResident) {
      EXPECT_LE(mapping.bytes, limits.mapping_bytes);
    }
    end = mapping.address + mapping.bytes;
  }
  if (limits.window_bytes > 0) {
    EXPECT_LE(end, limits.window_bytes);
  }
  if (limits.mappings > 0) {
    EXPECT_LE(static_cast<std::int64_t>(plan.mappings.size()), limits.mappings);
  }
  ASSERT_EQ(plan.places.size(), program.tensors.size());
  for (std::size_t t = 0; t < plan.places.size(); ++t) {
    const TensorPlace& a = plan.places[t];
    const auto [first, last] = life(program, t);
    ASSERT_EQ(a.kind == TensorPlace::kUnused, first < 0);
    if (a.mapping < 0) continue;
    const MemoryMapping& home = plan.mappings[static_cast<std::size_t>(a.mapping)];
    const Range range{a.address, a.address + program.tensors[t].bytes};
    EXPECT_GE(range.begin, home.address);
    EXPECT_LE(range.end, home.address + home.bytes);
    for (std::size_t u = 0; u < t; ++u) {
      const TensorPlace& b = plan.places[u];
      if (b.mapping < 0) continue;
      const auto [from, to] = life(program, u);
      const bool together =
          a.kind == TensorPlace::kResident || b.kind == TensorPlace::kResident || (first <= to && from <= last);
      if (together) {
        EXPECT_FALSE(range.overlaps({b.address, b.address + program.tensors[u].bytes}));
      }
    }
  }
}

/// Every part is moved completely before it is used, one at a time, into a slot whose work has ended; the parts of a
/// use add up to the tensor; reported waiting and hiding are right.
void expect_staged(const MemoryProgram& program, const MemoryLimits& limits, const MemoryPlan& plan) {
  double channel = -1e9, waited = 0, transfer = 0;
  std::vector<double> free = {-1e9, -1e9};
  std::vector<std::int64_t> moved(program.tensors.size());
  for (const StagedPart& part : plan.parts) {
    EXPECT_LE(part.bytes, plan.slot_bytes);
    EXPECT_GE(part.start, channel);
    EXPECT_GE(part.start, free[static_cast<std::size_t>(part.slot)]);
    EXPECT_NEAR(part.ready - part.start, staging_seconds(limits, part.bytes), 1e-12);
    EXPECT_GE(part.begin, part.ready);
    EXPECT_LE(part.waited, part.ready - part.start + 1e-12) << "no part is waited for longer than it takes";
    channel = part.ready;
    free[static_cast<std::size_t>(part.slot)] = part.end;
    waited += part.waited;
    transfer += part.ready - part.start;
    moved[static_cast<std::size_t>(part.tensor)] += part.bytes;
  }
  EXPECT_NEAR(waited, plan.waiting_seconds, 1e-9);
  EXPECT_NEAR(transfer, plan.transfer_seconds, 1e-9);
  EXPECT_LE(plan.hidden_seconds(), plan.compute_seconds + 1e-12) << "hidden behind computation";
  for (std::size_t t = 0; t < moved.size(); ++t) {
    std::int64_t reads = 0;
    for (const MemoryOp& op : program.ops) reads += std::ranges::count(op.reads, static_cast<std::int32_t>(t));
    EXPECT_EQ(moved[t], plan.places[t].kind == TensorPlace::kStaged ? reads * program.tensors[t].bytes : 0);
  }
}

TEST(MemoryPlan, HoldsForRandomPrograms) {
  std::mt19937 random(11);
  int planned = 0, staged = 0;
  for (int round = 0; round < 250; ++round) {
    const MemoryProgram program = random_program(random, 3 + static_cast<std::int32_t>(random() % 12), 20);
    MemoryLimits limits = limits_of(lasting_bytes(program) / 4 * static_cast<std::int64_t>(1 + random() % 6) + 1024,
                                    static_cast<std::int64_t>(random() % 20) * kPage);
    limits.staging_bytes = std::min(limits.staging_bytes, limits.window_bytes);
    if (round % 3 == 0) limits.mapping_bytes = 2048;
    if (round % 5 == 0) limits.mappings = 8;
    if (round % 7 == 0) limits.copy_gbps = 0.05;
    const auto plan = plan_memory(program, limits);
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kResource);
      continue;
    }
    ++planned;
    staged += plan->parts.empty() ? 0 : 1;
    expect_sound(program, limits, *plan);
    expect_staged(program, limits, *plan);
    EXPECT_LE(plan->seconds, plan->paging_seconds + 1e-12) << "never worse than without the planner";
    EXPECT_GE(plan->seconds, plan->compute_seconds - 1e-12);
    const auto again = plan_memory(program, limits);
    ASSERT_TRUE(again);
    EXPECT_EQ(memory_map_json(program, *again), memory_map_json(program, *plan)) << "deterministic";
  }
  EXPECT_GT(planned, 80);
  EXPECT_GT(staged, 40);
}

/// The shortest run over all placements that fit.
double best_of_all(const MemoryProgram& program, const std::vector<std::int32_t>& lasting,
                   const StagingTimeline& timeline, const ResidentRoom& room) {
  double best = 1e9;
  for (unsigned set = 0; set < 1u << lasting.size(); ++set) {
    std::vector<char> staged(program.tensors.size());
    std::vector<std::int32_t> resident;
    bool possible = true;
    for (std::size_t i = 0; i < lasting.size(); ++i) {
      const auto t = static_cast<std::size_t>(lasting[i]);
      staged[t] = (set >> i & 1u) != 0;
      possible = possible && (!staged[t] || timeline.can_stage(t));
      if (!staged[t]) resident.push_back(lasting[i]);
    }
    if (possible && pack_mappings(program, resident, room).fits) best = std::min(best, timeline.run(staged).seconds);
  }
  return best;
}

/// More tensors than the exhaustive search handles.
TEST(MemoryPlan, IsNearTheBestOfAllPlacements) {
  constexpr std::int32_t kTensors = 13;
  std::mt19937 random(12);
  int compared = 0;
  for (int round = 0; round < 60; ++round) {
    const MemoryProgram program = random_program(random, kTensors, 24);
    const MemoryLimits limits = limits_of(1 << 20, 0);
    const StagingTimeline timeline(program, limits, 512);
    ResidentRoom room{lasting_bytes(program) / 5 * static_cast<std::int64_t>(1 + random() % 4), 0, 0, kPage, 16};
    std::vector<std::int32_t> lasting;
    for (std::int32_t t = 0; t < kTensors; ++t) lasting.push_back(t);
    const auto staged = choose_staged(program, lasting, timeline, room);
    const double best = best_of_all(program, lasting, timeline, room);
    ASSERT_EQ(static_cast<bool>(staged), best < 1e9);
    if (!staged) continue;
    ++compared;
    EXPECT_LE(timeline.run(*staged).seconds, 1.05 * best);
  }
  EXPECT_GT(compared, 15);
}

/// With all the times that the same operators may have.
TEST(StagedWaits, AreThoseOfThePlan) {
  std::mt19937 random(17);
  int hidden = 0, waiting = 0, whole = 0, refused = 0, longer = 0;
  for (int round = 0; round < 60; ++round) {
    MemoryProgram program = random_program(random, 3 + static_cast<std::int32_t>(random() % 12), 20);
    MemoryLimits limits = limits_of(lasting_bytes(program) / 4 * static_cast<std::int64_t>(1 + random() % 6) + 1024,
                                    static_cast<std::int64_t>(random() % 20) * kPage);
    limits.staging_bytes = std::min(limits.staging_bytes, limits.window_bytes);
    auto waits = StagedWaits::create(program, limits);
    const auto first = plan_memory(program, limits);
    ASSERT_EQ(static_cast<bool>(waits), static_cast<bool>(first));
    if (!waits) {
      EXPECT_EQ(waits.error().message(), first.error().message());
      ++refused;
      continue;
    }
    for (const double longest : {60.0, 3000.0, 5.0}) {
      std::vector<double> seconds;
      for (MemoryOp& op : program.ops)
        seconds.push_back(op.seconds = static_cast<double>(random() % 100) * longest * 1e-8);
      const MemoryPlan plan = *plan_memory(program, limits);
      const auto found = waits->waiting(seconds);
      ASSERT_TRUE(found);
      EXPECT_NEAR(*found, plan.waiting_seconds, 1e-12 * plan.seconds);
      const double spread = *waits->waiting(seconds, false);
      EXPECT_GE(spread, *found - 1e-12 * plan.seconds);
      longer += spread > *found + 1e-9 ? 1 : 0;
      ++(plan.slot_bytes == 0 && plan.parts.empty() ? whole : plan.waiting_seconds > 1e-9 ? waiting : hidden);
    }
  }
  EXPECT_GT(hidden, 5);
  EXPECT_GT(waiting, 20);
  EXPECT_GT(whole, 10);
  EXPECT_GT(refused, 3);
  EXPECT_GT(longer, 5);
  const MemoryProgram one = random_program(random, 3, 4);
  EXPECT_FALSE(StagedWaits::create(one, limits_of(1 << 20, 0))->waiting(std::vector<double>(3)));
}

TEST(MemoryPlan, RunsWithNothingResident) {
  MemoryProgram program;
  program.tensors = {{"a", 4096, 64, true}, {"b", 4096, 64, true}};
  program.ops = {{"first", 1e-3, {0}, {}}, {"second", 1e-3, {1}, {}}};
  const auto plan = plan_memory(program, limits_of(1024, 1024));
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_EQ(plan->resident_bytes, 0);
  EXPECT_EQ(plan->parts.size(), 16u) << "parts of a slot of 512 bytes";
  // A part takes 2 + 8 us, work on it 125 us: all but the very first are hidden.
  EXPECT_NEAR(plan->seconds, 2e-3, 1e-12);
  EXPECT_NEAR(plan->first_seconds, 2e-3 + 10e-6, 1e-12);
  EXPECT_NEAR(plan->paging_seconds, 2e-3 + 160e-6, 1e-12);
}

TEST(MemoryPlan, TransfersThatComputationIsTooShortForAreWaitedFor) {
  MemoryProgram program;
  program.tensors = {{"a", 512, 0, true}, {"b", 512, 0, true}, {"c", 512, 0, true}};
  program.ops = {{"a", 4e-6, {0}, {}}, {"b", 4e-6, {1}, {}}, {"c", 4e-6, {2}, {}}};
  const auto plan = plan_memory(program, limits_of(1024, 1024));
  ASSERT_TRUE(plan);
  // One channel, three parts of 10 us each: it is always busy.
  EXPECT_NEAR(plan->seconds, 30e-6, 1e-12);
  EXPECT_NEAR(plan->hidden_seconds(), 12e-6, 1e-12);
}

TEST(MemoryPlan, EverythingResidentIfItFits) {
  MemoryProgram program;
  program.tensors = {{"a", 5000, 64, true}, {"b", 100, 0, true}, {"never", 100, 0, true}};
  program.ops = {{"b", 1e-6, {1}, {}}, {"a", 1e-6, {0}, {}}};
  const auto plan = plan_memory(program, limits_of(8192, 1024));
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->mappings.size(), 1u);
  EXPECT_EQ(plan->places[1].address, 0) << "in the order of first use";
  EXPECT_EQ(plan->places[0].address, 112);
  EXPECT_EQ(plan->places[2].kind, TensorPlace::kUnused);
  EXPECT_EQ(plan->slot_bytes, 0);
  EXPECT_EQ(plan->seconds, plan->paging_seconds);
}

TEST(MemoryPlan, WhatIsWrittenStaysResident) {
  MemoryProgram program;
  program.tensors = {{"cache", 2048, 64, true}, {"w", 2048, 64, true}};
  program.ops = {{"store", 1e-6, {}, {0}}, {"read", 1e-6, {0, 1}, {}}};
  const auto plan = plan_memory(program, limits_of(3072, 1024));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->places[0].kind, TensorPlace::kResident);
  EXPECT_EQ(plan->places[1].kind, TensorPlace::kStaged);
  const auto small = plan_memory(program, limits_of(2048, 1024));
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::kResource);
}

TEST(MemoryPlan, Errors) {
  MemoryProgram program;
  program.tensors = {{"a", 64, 0, true}};
  program.ops = {{"a", 1e-6, {0}, {}}};
  const auto code = [&](const MemoryLimits& limits) { return plan_memory(program, limits).error().code; };
  EXPECT_EQ(code(limits_of(64, 128)), ErrorCode::kUsage) << "staging larger than the window";
  EXPECT_EQ(code({.page_bytes = 0}), ErrorCode::kUsage);
  EXPECT_EQ(code({.map_us = -1}), ErrorCode::kUsage);
  program.ops[0].reads = {1};
  EXPECT_EQ(code(limits_of(1024, 0)), ErrorCode::kUsage);
  program.ops[0] = {"a", -1, {0}, {}};
  EXPECT_EQ(code(limits_of(1024, 0)), ErrorCode::kUsage);
  program.ops[0] = {"a", 0, {0}, {}};
  program.tensors[0].bytes = 0;
  EXPECT_EQ(code(limits_of(1024, 0)), ErrorCode::kUsage);
}

TEST(Scratch, BuffersThatMeetTakeTheMaximum) {
  // Live at 0-1, 1-2, 2-3: the first and the third share.
  const ScratchPlan plan = share_scratch(std::vector<LiveBuffer>{{100, 0, 1}, {50, 1, 2}, {100, 2, 3}}, 1);
  EXPECT_EQ(plan.bytes, 150);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
}

TEST(Scratch, IsAtLeastWhatLivesAndSeldomMuchMore) {
  std::mt19937 random(13);
  double taken = 0, needed = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<LiveBuffer> buffers;
    std::vector<std::int64_t> live(40);
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<std::int32_t>(random() % 38);
      const LiveBuffer one{static_cast<std::int64_t>(1 + random() % 900), first,
                           std::min(39, first + static_cast<std::int32_t>(random() % 5))};
      for (std::int32_t o = one.first; o <= one.last; ++o) live[static_cast<std::size_t>(o)] += one.bytes;
      buffers.push_back(one);
    }
    const std::int64_t least = *std::ranges::max_element(live);
    const ScratchPlan plan = share_scratch(buffers, 1);
    EXPECT_GE(plan.bytes, least);
    taken += static_cast<double>(plan.bytes);
    needed += static_cast<double>(least);
  }
  EXPECT_LT(taken, 1.1 * needed);
}

TEST(MemoryMap, NamesEveryMapping) {
  MemoryProgram program;
  program.tensors = {{"a", 2048, 64, true}, {"b", 2048, 64, true}, {"x", 100}};
  program.ops = {{"first", 20e-6, {0}, {2}}, {"second", 20e-6, {1, 2}, {}}};
  const auto plan = plan_memory(program, limits_of(3456, 1024));
  ASSERT_TRUE(plan);
  const std::string text = memory_map_text(program, *plan), svg = memory_map_svg(program, *plan, "title <1>");
  for (const char* word : {"scratch", "staging", "resident", "2 slots"}) EXPECT_NE(text.find(word), std::string::npos);
  EXPECT_NE(svg.find("title &lt;1&gt;"), std::string::npos);
  EXPECT_EQ(memory_map_json(program, *plan)["parts"].size(), plan->parts.size());
}

}  // namespace
}  // namespace dllm::npu
