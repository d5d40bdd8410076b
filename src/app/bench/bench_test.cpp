#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/bench/bench.h"
#include "app/bench/causal_twin.h"
#include "app/bench/list.h"
#include "app/bench/output.h"
#include "app/bench/stats.h"
#include "app/bench/work.h"
#include "app/bench/workload.h"
#include "engine/generate.h"
#include "engine/resolve.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;
using Numbers = std::vector<std::int32_t>;

Numbers list(const std::string& text) {
  auto numbers = parse_number_list(text, 0, 1000);
  if (numbers) return *std::move(numbers);
  ADD_FAILURE() << numbers.error().message();
  return {};
}

TEST(BenchList, ReadsListsAndRanges) {
  EXPECT_EQ(list("7"), (Numbers{7}));
  EXPECT_EQ(list("8,1,8"), (Numbers{8, 1, 8}));
  EXPECT_EQ(list("2-5"), (Numbers{2, 3, 4, 5}));
  EXPECT_EQ(list("8-30+8"), (Numbers{8, 16, 24}));
  EXPECT_EQ(list("1-100*3"), (Numbers{1, 3, 9, 27, 81}));
  EXPECT_EQ(list("0,4-4,512-1000*2"), (Numbers{0, 4, 512}));
}

TEST(BenchList, RefusesWhatIsNoList) {
  for (const char* text : {"", ",", "1,", "x", "1-", "-1", "5-1", "1-9+0", "1-9+", "1-9*1", "0-9*2", "1-9/2", "1001",
                           "1-2-3", "1 2", "9999999999"}) {
    const auto numbers = parse_number_list(text, 0, 1000);
    ASSERT_FALSE(numbers) << text;
    EXPECT_EQ(numbers.error().code, ErrorCode::kUsage);
  }
  EXPECT_FALSE(parse_number_list("0-1000000", 0, 1000000)) << "too many members";
}

TEST(BenchStats, MedianAndSpread) {
  const Summary odd = summarize({5, 1, 100, 2, 4});
  EXPECT_EQ(odd.count, 5u);
  EXPECT_DOUBLE_EQ(odd.median, 4);
  EXPECT_DOUBLE_EQ(odd.min, 1);
  EXPECT_DOUBLE_EQ(odd.max, 100);
  EXPECT_DOUBLE_EQ(odd.mad, 2);  // of 1, 3, 96, 2, 0
  EXPECT_DOUBLE_EQ(summarize({1, 2, 3, 10}).median, 2.5);
  EXPECT_DOUBLE_EQ(summarize({3}).mad, 0);
  const Json json = summary_json({0.5, 0.25}, 1e3);
  EXPECT_DOUBLE_EQ(json["median"], 375);
  EXPECT_EQ(json["samples"], (std::vector<double>{500, 250}));  // in the order of measurement
}

TEST(BenchWork, CountsTheTextbookFormula) {
  LoadOptions load;
  load.threads = 1;
  load.warnings = false;
  auto model = BenchModel::open("", load);
  ASSERT_TRUE(model) << model.error().message();
  const ModelDesc& d = model->model->desc();
  const auto count = [&](ModelDesc desc, StepSize size) {
    return work_of(model->model->build({size.rows, size.scored}), model->model->weights(), desc, size);
  };
  const std::int64_t layer =
      2 * d.width * d.heads * d.head_dim + 2 * d.width * d.kv_heads * d.head_dim + 3 * d.width * d.ffn_width;
  const StepWork work = count(d, {1, 8, 40, 3});
  EXPECT_DOUBLE_EQ(work.linear_ops, static_cast<double>(2 * 8 * layer * d.layers));
  EXPECT_DOUBLE_EQ(work.head_ops, static_cast<double>(2 * 3 * d.width * d.vocab));
  EXPECT_DOUBLE_EQ(work.attention_ops, static_cast<double>(4 * 8 * 40 * d.heads * d.head_dim * d.layers));
  EXPECT_DOUBLE_EQ(work.weight_bytes, static_cast<double>(4 * (layer * d.layers + d.width * d.vocab)));  // F32
  EXPECT_DOUBLE_EQ(count(d, {1, 8, 40, 0}).weight_bytes, static_cast<double>(4 * layer * d.layers));
  const StepWork four = count(d, {4, 8, 40, 3});
  EXPECT_DOUBLE_EQ(four.ops(), 4 * work.ops());
  EXPECT_DOUBLE_EQ(four.weight_bytes, work.weight_bytes) << "one pass over the weights serves the whole batch";
  // Causal: rows 32..39 see 33..40 keys; blocks of 16: rows 32..39 are in the block that ends at 48.
  ModelDesc causal = d;
  causal.causal_block = 1;
  EXPECT_DOUBLE_EQ(count(causal, {1, 8, 40, 0}).attention_ops, work.attention_ops / (8 * 40) * (33 + 40) * 4);
  causal.causal_block = 16;
  EXPECT_DOUBLE_EQ(count(causal, {1, 8, 40, 0}).attention_ops, work.attention_ops);
  EXPECT_EQ(main_type(model->model->build({1, 1}), model->model->weights()), TensorType::kF32);
}

TEST(BenchToken, AvoidsSpecialTokensAndRepeats) {
  ModelDesc desc;
  desc.vocab = 64;
  desc.mask = 7;
  desc.stop_ids = {9, 11};
  std::set<TokenId> seen;
  for (Position p = 0; p < 2000; ++p) {
    const TokenId token = bench_token(desc, 3, p);
    ASSERT_GE(token, 0);
    ASSERT_LT(token, desc.vocab);
    EXPECT_EQ(token, bench_token(desc, 3, p));
    seen.insert(token);
  }
  EXPECT_EQ(seen.size(), 61u);
  for (const TokenId special : {7, 9, 11}) EXPECT_FALSE(seen.contains(special));
}

Json shared() {
  return {{"time", "now"},
          {"host",
           {{"cpu", "Fast, \"very\""},
            {"cpu_family", "f"},
            {"cpus", 2},
            {"memory_bytes", 1e9},
            {"governor", "x"},
            {"system", "s"},
            {"load_average", 0.5}}},
          {"build", {{"version", "1"}, {"compiler", "c"}, {"flags", "-O3"}}},
          {"command", "dllm bench"}};
}

Json load_record() {
  return {{"test", "load"},
          {"name", "m"},
          {"type", "Q4_0"},
          {"threads", 2},
          {"file_bytes", 1000},
          {"open_ms", summary_json({0.001}, 1e3)},
          {"ms", summary_json({0.002}, 1e3)},
          {"peak_rss_bytes", 5000}};
}

std::string printed(const std::string& format, int records) {
  std::ostringstream out;
  BenchOutput output(out, format, shared());
  for (int i = 0; i < records; ++i) output.add(load_record());
  output.finish();
  return out.str();
}

TEST(BenchOutput, EveryRowCarriesHostAndCommand) {
  const Json all = Json::parse(printed("json", 2));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1]["command"], "dllm bench");
  EXPECT_EQ(all[1]["host"]["cpus"], 2);
  std::istringstream lines(printed("jsonl", 2));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(Json::parse(line)["build"]["flags"], "-O3");
  EXPECT_EQ(count, 2);
  const std::string csv = printed("csv", 1);
  EXPECT_NE(csv.find("now,\"Fast, \"\"very\"\"\",f,2,"), std::string::npos) << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2);
  const std::string markdown = printed("md", 2);
  EXPECT_EQ(markdown.find("dllm bench"), markdown.rfind("dllm bench")) << "told once";
  EXPECT_NE(markdown.find("| m | Q4_0 | 2 | 1.00 kB | 1.0 | 2.0 |"), std::string::npos) << markdown;
  EXPECT_EQ(printed("json", 0), "[]\n");
}

cpu::Peaks some_peaks() {
  cpu::Peaks peaks;
  peaks.int8 = {8e9, "mul"};
  peaks.f32 = {1e9, "fma"};
  peaks.read_bytes_per_second = 4e9;
  return peaks;
}

TEST(BenchPeaks, BoundTheProductsThatRun) {
  cpu::Peaks here = some_peaks(), device = some_peaks();
  here.bf16 = {2e9, "dot"};
  here.int8_tiles = {16e9, "tiles"};
  device.f16 = {32e9, "matrices"};
  const auto bound = [](const cpu::Peaks& peaks, TensorType weights, const char* arithmetic, const char* isa = "",
                        const char* activations = "") {
    return bound_of(peaks, {weights, activations, arithmetic, isa}).instruction;
  };
  for (const TensorType half : {TensorType::kF16, TensorType::kBF16}) {
    EXPECT_EQ(bound(here, half, "exact"), "dot");
    EXPECT_EQ(bound(some_peaks(), half, "exact"), "fma");
    EXPECT_EQ(bound(device, half, "exact"), "fma") << "multiply-adds of F32";
    EXPECT_EQ(bound(device, half, "f16"), "matrices");
    EXPECT_EQ(bound(some_peaks(), half, "f16"), "fma");
  }
  EXPECT_EQ(bound(device, TensorType::kF32, "f16"), "fma");
  EXPECT_EQ(bound(device, TensorType::kQ4_0, "f16"), "mul");
  EXPECT_EQ(bound(here, TensorType::kQ4_0, "exact", "amx"), "mul");
  EXPECT_EQ(bound(here, TensorType::kQ4_0, "super", "avx512"), "mul");
  EXPECT_EQ(bound(here, TensorType::kQ4_0, "super", "amx"), "tiles");
  EXPECT_EQ(bound(here, TensorType::kBF16, "super", "amx"), "dot") << "no such tiles";
  EXPECT_EQ(bound(here, TensorType::kQ4_0, "exact", "", "f32"), "fma");
}

TEST(BenchPeaks, AreThoseOfAllLayersOrOfNone) {
  const BackendEntry card{"card", "a card"};
  RunningBackend running;
  EXPECT_TRUE(runs_where_peaks_are(backends().front(), running));
  EXPECT_FALSE(runs_where_peaks_are(card, running)) << "no layer is on the device";
  DeviceStatus status;
  running.device = [&] { return status; };
  EXPECT_TRUE(runs_where_peaks_are(card, running));
  status.split = "on this processor: layer 1 of 2";
  EXPECT_FALSE(runs_where_peaks_are(card, running));
}

TEST(BenchPeaks, AreAbsentWhereNothingMeasuresThem) {
  BackendEntry card{"card", "a card"};
  card.peaks = [](const LoadOptions&) -> Expected<PeakMeter> {
    return Error{ErrorCode::kUnsupported, "the card has no timestamps", "--peak", "leave it out"};
  };
  const auto plain = peaks_to_compare(card, {}, false);
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_FALSE(plain->has_value());
  EXPECT_FALSE(peaks_to_compare(card, {}, true));
  card.peaks = [](const LoadOptions&) -> Expected<PeakMeter> {
    return Error{ErrorCode::kUsage, "no such card", "--device", ""};
  };
  EXPECT_FALSE(peaks_to_compare(card, {}, false));
  card.peaks = [](const LoadOptions&) -> Expected<PeakMeter> {
    return PeakMeter([]() -> Expected<cpu::Peaks> { return some_peaks(); });
  };
  const auto found = peaks_to_compare(card, {}, false);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->best.int8.per_second, 8e9);
}

TEST(BenchPeaks, AreNamedByWhatTheyAreOf) {
  const auto table = [](const Json& record) {
    std::ostringstream out;
    BenchOutput output(out, "md", shared());
    output.add(record);
    return out.str();
  };
  cpu::Peaks here = some_peaks(), device = some_peaks();
  here.threads = 2;
  here.bf16 = {2e9, "dot"};
  device.f16 = {32e9, "matrices"};
  const Json of_device = peak_record(device), of_threads = peak_record(here);
  EXPECT_FALSE(of_device.contains("threads"));
  EXPECT_EQ(of_device["f16"]["gops"], 32);
  EXPECT_TRUE(of_device["bf16"].is_null());
  EXPECT_NE(table(of_device).find("| int8 GOP/s |  | f16 GFLOP/s | f32 GFLOP/s | read GB/s |"), std::string::npos);
  EXPECT_NE(table(of_device).find("| 8 | mul | 32 | 1 | 4.0 |"), std::string::npos) << table(of_device);
  EXPECT_TRUE(of_threads["f16"].is_null());
  EXPECT_NE(table(of_threads).find("| 2 | 8 | mul | 2 | 1 |  |  | 4.0 |"), std::string::npos) << table(of_threads);
}

TEST(BenchWorkload, EvenSchedulesKeepBlocksApart) {
  EXPECT_EQ(even_schedule(6, 3, 2).pass_of, (Numbers{0, 0, 1, 2, 2, 3}));
  EXPECT_EQ(even_schedule(5, 4, 1).pass_of, (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(even_schedule(4, 2, 8).pass_of, (Numbers{0, 0, 1, 1})) << "at most a block";
  EXPECT_FALSE(even_schedule(4, 2, 8).stop);
}

TEST(BenchWorkload, TheCausalTwinIsTheModelUnderACausalMask) {
  BenchModel model = *BenchModel::open("", {});
  CausalTwin twin(model.backend());
  GenerateOptions options;
  options.length = 12;
  options.exact_length = true;
  const auto resolved = resolve_options(options, twin.desc());
  ASSERT_TRUE(resolved) << resolved.error().message();
  const std::vector<TokenId> prompt = bench_prompt(twin.desc(), 3, 0, 20);
  const auto answer = generate({twin}, prompt, *resolved);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->stats.nfe, 12);
  EXPECT_EQ(answer->stats.rows_forwarded, 20 + 11) << "the prompt once, then a row per token";
  EXPECT_EQ(answer->stats.rows_scored, 12);

  const LanguageModel plain = *LanguageModel::load("");
  std::vector<TokenId> ids = prompt;
  for (const TokenId token : answer->ids) {
    const auto logits = plain.logits(ids, /*causal=*/true);
    ASSERT_TRUE(logits);
    const auto last = logits->end() - plain.vocab_size();
    EXPECT_EQ(token, std::max_element(last, logits->end()) - last);
    ids.push_back(token);
  }
}

}  // namespace
}  // namespace dllm::app
