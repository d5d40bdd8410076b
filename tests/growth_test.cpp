// Twice the input costs at most about three times the time, for every family of inputs of every fuzz target
// (fuzz/families.cpp). The times are of the processor, the least of several where they decide, and only longer ones
// count, so that other work on the machine makes no difference.
#include "../fuzz/growth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <ostream>
#include <string>

#include "../fuzz/families.h"
#include "app/testing/fuzz_entry.h"
#include "constrain/testing/fuzz_entry.h"
#include "engine/testing/fuzz_entry.h"
#include "engine/testing/recording_fuzz.h"
#include "eval/testing/fuzz_entry.h"
#include "format/testing/fuzz_entry.h"
#include "image/testing/fuzz_entry.h"
#include "model/testing/fuzz_entry.h"
#include "npu_compiler/sweep/testing/fuzz_entry.h"
#include "npu_compiler/workload/testing/fuzz_entry.h"
#include "npu_core/assembler/testing/fuzz_entry.h"
#include "npu_core/timing/testing/fuzz_entry.h"
#include "quant/testing/fuzz_entry.h"
#include "serve/testing/fuzz_entry.h"
#include "text/testing/fuzz_entry.h"

namespace dllm {
namespace fuzz {

/// Names of tests in a report, without the bytes of the functions.
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

}  // namespace fuzz

namespace {

using fuzz::Call;
using fuzz::Family;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
const std::uint8_t* data_of(std::string_view text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

const std::map<std::string, Call>& targets() {
  using std::string_view;
  static const std::map<std::string, Call> all = {
      {"caches", [](string_view t) { fuzz_caches(bytes_of(t)); }},
      {"chat_template", [](string_view t) { fuzz_chat_template(data_of(t), t.size()); }},
      {"compare_spec", app::fuzz_compare_spec},
      {"config", fuzz_config},
      {"constraint", constrain::fuzz_constraint},
      {"eval_set", fuzz_eval_set},
      {"gguf", [](string_view t) { fuzz_gguf(bytes_of(t)); }},
      {"http", serve::fuzz_http},
      {"image", fuzz_image},
      {"importance", fuzz_importance},
      {"model", [](string_view t) { fuzz_model(bytes_of(t)); }},
      {"network", npu::fuzz_network},
      {"npu_assembler",
       [](string_view t) {
         constexpr std::size_t kInstructions = 1 << 16;  // a search of a list of 4096 names takes too little time
         npu::fuzz_assembler(data_of(t), t.size(), kInstructions);
         npu::fuzz_program(data_of(t), t.size());
       }},
      {"npu_toml", npu::fuzz_npu_toml},
      {"npy", [](string_view t) { fuzz_npy(bytes_of(t)); }},
      {"recording", fuzz_recording},
      {"safetensors", [](string_view t) { fuzz_safetensors(bytes_of(t)); }},
      {"timing_cache", npu::fuzz_timing_cache},
      {"tokenizer_json", [](string_view t) { fuzz_tokenizer_json(data_of(t), t.size()); }},
  };
  return all;
}

class Growth : public ::testing::TestWithParam<Family> {};

TEST_P(Growth, IsAboutLinear) {
#ifdef DLLM_SANITIZED
  GTEST_SKIP() << "the fuzz targets measure this with sanitizers";
#endif
  constexpr unsigned kSeconds = 15;
  const Family& family = GetParam();
  const std::string problem = fuzz::growth_problem_in_child(family.make, targets().at(family.target), kSeconds);
  EXPECT_EQ(problem, "") << family.name << " of " << family.target;
}

INSTANTIATE_TEST_SUITE_P(Families, Growth, ::testing::ValuesIn(fuzz::families()), [](const auto& one) {
  std::string name = std::string(one.param.target) + "_" + one.param.name;
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(GrowthHarness, HasFamiliesOfEveryTarget) {
  std::map<std::string, int> count;
  for (const Family& family : fuzz::families()) ++count[family.target];
  for (const auto& [target, call] : targets()) EXPECT_GE(count[target], 1) << target;
  EXPECT_EQ(count.size(), targets().size());
}

/// Takes `steps` of one multiplication and one addition, each of which waits for the one before: 4 cycles on every
/// processor, whereas a chain of stores and loads takes 1 or 5.
void work(double steps) {
  static volatile std::uint64_t sink = 0;
  std::uint64_t x = sink;
  for (auto left = static_cast<std::uint64_t>(steps); left > 0; --left) x = x * 6364136223846793005U + 1;
  sink = x;
}

TEST(GrowthHarness, TellsPowersApart) {
#ifdef DLLM_SANITIZED
  GTEST_SKIP() << "the times of these loops are those of an optimised program";
#endif
  const auto text = [](std::size_t parts) { return std::string(parts, 'x'); };
  const auto problem = [&](auto steps) {
    return fuzz::growth_problem(text, [&](std::string_view input) { work(steps(static_cast<double>(input.size()))); });
  };
  EXPECT_EQ(problem([](double n) { return 100 * n; }), "");
  EXPECT_EQ(problem([](double n) { return 20 * n * std::log2(n); }), "");
  EXPECT_NE(problem([](double n) { return n * n; }), "");
  EXPECT_NE(problem([](double n) { return 1000 * n + n * n; }), "");
  EXPECT_NE(problem([](double n) { return std::exp2(std::min(n, 30.0)); }), "");
  EXPECT_EQ(problem([](double) { return 1e5; }), "");
  EXPECT_EQ(problem([](double n) { return n > 1000 ? 1e3 : 1e3 * n; }), "") << "what is too long may be refused";
  // A limit just above the size that decides hides nothing that is dear there.
  EXPECT_NE(problem([](double n) { return n > 8000 ? 1e3 : 8 * n * n; }), "");
  // A budget that is used up at once by inputs of a certain kind: 0.1 s, and more than a second.
  EXPECT_EQ(problem([](double n) { return n > 1000 ? 7e7 : 1.0; }), "");
  EXPECT_NE(problem([](double n) { return n > 1000 ? 1e9 : 1.0; }), "");
}

TEST(GrowthHarness, EndsWhatDoesNotEnd) {
  const auto text = [](std::size_t parts) { return std::string(parts, 'x'); };
  const auto forever = [](std::string_view input) {
    if (input.size() > 16) work(1e15);
  };
  EXPECT_NE(fuzz::growth_problem_in_child(text, forever, 1).find("more than 1 s"), std::string::npos);
  EXPECT_NE(fuzz::growth_problem_in_child(
                text, [](std::string_view) { std::abort(); }, 1)
                .find("ended with"),
            std::string::npos);
  EXPECT_EQ(fuzz::growth_problem_in_child(text, [](std::string_view) {}, 1), "");
}

TEST(GrowthHarness, StretchesKeysAndBrackets) {
  const std::string text = R"({"a": [[1]], "b": 2})";
  bool keys = false, brackets = false;
  for (std::uint64_t choice = 0; choice < 3000; ++choice) {
    const std::string three = fuzz::stretched(text, choice, 3);
    EXPECT_EQ(three, fuzz::stretched(text, choice, 3));
    keys = keys || three.find(R"("b0": 2, "b1": 2)") != three.npos ||
           three.find(R"("a0": [[1]], "a1": [[1]])") != three.npos;
    brackets = brackets || three.find("[[[[1]]]]") != three.npos;
  }
  EXPECT_TRUE(keys);
  EXPECT_TRUE(brackets);
}

}  // namespace
}  // namespace dllm
