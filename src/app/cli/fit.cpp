#include "app/cli/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/free_memory.h"
#include "base/human_bytes.h"
#include "base/thread_pool.h"
#include "cpu/peak.h"
#include "format/gguf.h"
#include "numerics/tensor_type.h"
#include "quant/recipe.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;

/// Recipes to advise, the best first, with the bits per weight of their files (LLaDA-8B's shape).
struct Smaller {
  std::string_view name;
  double bits;
};
constexpr Smaller kSmaller[] = {{"Q4_K_M", 4.85}, {"Q3_K_M", 4.0}, {"Q2_K", 3.15}};
/// Products of 32 rows reach somewhat more than half of the measured peak: 54.6 % with sdar-1.7b in Q4_0 on a Zen 4
/// (`dllm bench -r 32 -c 64`, a busy machine).
constexpr double kShareOfPeak = 0.6, kRows = 32;

/// Bits that a weight takes, by the longest name of a type within the file's: "x-BF16.gguf" is not F16.
std::optional<double> bits_of(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const Recipe* found = nullptr;
  for (const Recipe& one : recipes())
    if (upper.find(one.name) != upper.npos && (found == nullptr || one.name.size() > found->name.size())) found = &one;
  if (found == nullptr) return std::nullopt;
  const Codec& of = codec(found->base);
  return 8.0 * static_cast<double>(of.block_bytes) / static_cast<double>(of.block_elems);
}

/// Of 32 rows; nullopt: not measured. Experts that a pass does not choose are counted, so a mixture of experts is
/// faster.
std::optional<double> passes_per_second(const FitFacts& facts) {
  if (facts.read_bytes_per_second <= 0 || facts.bytes <= 0) return std::nullopt;
  const auto bytes = static_cast<double>(facts.bytes);
  double seconds = bytes / facts.read_bytes_per_second;
  if (const auto bits = bits_of(facts.name); bits && facts.operations_per_second > 0)
    seconds = std::max(seconds, 2 * kRows * (bytes * 8 / *bits) / (kShareOfPeak * facts.operations_per_second));
  return 1 / seconds;
}

std::string rate_text(const FitFacts& facts) {
  const auto rate = passes_per_second(facts);
  return rate ? fmt::format("; about {:.{}f} passes of 32 rows a second", *rate, *rate < 10 ? 1 : 0) : "";
}

std::string_view word_of(Fit fit) { return fit == Fit::kFits ? "fits" : fit == Fit::kTight ? "tight" : "does not fit"; }

std::string advice(const FitFacts& facts) {
  const double bits = bits_of(facts.name).value_or(16);
  FitFacts other = facts;
  for (const Smaller& one : kSmaller) {
    other.bytes = static_cast<std::int64_t>(static_cast<double>(facts.bytes) * one.bits / bits);
    if (bits > one.bits * 1.1 && judge(other) != Fit::kNot)
      return fmt::format("; {} takes about {}", one.name, human_bytes(static_cast<double>(other.bytes)));
  }
  return "; take a smaller model";
}

}  // namespace

FitFacts fit_facts(const std::string& name, std::int64_t bytes, bool measure) {
  FitFacts facts{.bytes = bytes, .name = name, .free = free_memory()};
  if (!measure) return facts;
  if (const auto peaks = cpu::measure_peaks(default_thread_count())) {
    facts.read_bytes_per_second = peaks->read_bytes_per_second;
    facts.operations_per_second = peaks->int8.per_second;
  }
  return facts;
}

std::int64_t model_bytes(const std::string& path) {
  std::error_code ignored;
  std::vector<std::string> files;
  if (fs::is_directory(path, ignored)) {
    for (const auto& one : fs::directory_iterator(path, ignored))
      if (one.path().extension() == ".safetensors") files.push_back(one.path().string());
  } else {
    files = gguf_parts(path);
  }
  std::int64_t bytes = 0;
  for (const std::string& file : files)
    if (const auto size = fs::file_size(file, ignored); !ignored) bytes += static_cast<std::int64_t>(size);
  return bytes;
}

std::int64_t memory_needed(std::int64_t file_bytes) {
  return static_cast<std::int64_t>(static_cast<double>(file_bytes) * 1.15) + 250'000'000;
}

Fit judge(const FitFacts& facts) {
  if (!facts.free) return Fit::kFits;
  const std::int64_t needed = memory_needed(facts.bytes);
  if (needed > *facts.free) return Fit::kNot;
  return needed > *facts.free / 5 * 4 ? Fit::kTight : Fit::kFits;
}

std::string fit_text(const FitFacts& facts) {
  std::string text = fmt::format("{} on disk, {} of memory needed", human_bytes(static_cast<double>(facts.bytes)),
                                 human_bytes(static_cast<double>(memory_needed(facts.bytes))));
  if (!facts.free) return text + rate_text(facts);
  const Fit fit = judge(facts);
  return fmt::format("{}, {} free: {}{}", text, human_bytes(static_cast<double>(*facts.free)), word_of(fit),
                     fit == Fit::kNot ? advice(facts) : rate_text(facts));
}

nlohmann::ordered_json fit_json(const FitFacts& facts) {
  using Json = nlohmann::ordered_json;
  const auto rate = passes_per_second(facts);
  return {{"file_bytes", facts.bytes},
          {"memory_bytes", memory_needed(facts.bytes)},
          {"free_bytes", facts.free ? Json(*facts.free) : Json()},
          {"fit", word_of(judge(facts))},
          {"passes_per_second", rate ? Json(*rate) : Json()}};
}

}  // namespace dllm::app
