#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace dllm::app {

enum class Fit : std::uint8_t {
  kFits,
  kTight,  ///< it fits, and leaves less than a fifth of the free memory for other programs and long contexts
  kNot,
};

/// What is known of a model before it is loaded.
struct FitFacts {
  std::int64_t bytes = 0;            ///< of its files
  std::string name;                  ///< of its file, which tells the weight type: "x-Q4_K_M.gguf"
  std::optional<std::int64_t> free;  ///< memory here; nullopt: unknown
  double read_bytes_per_second = 0;  ///< from memory; 0: not measured
  double operations_per_second = 0;  ///< of 8-bit products; 0: not measured
};

/// Those of a model on this machine. `measure`: the rates too, which takes half a second.
FitFacts fit_facts(const std::string& name, std::int64_t bytes, bool measure);

/// Bytes of a model's files: a GGUF file with its parts, or the weights in a folder; 0: there are none.
std::int64_t model_bytes(const std::string& path);

/// Memory that running a model takes, from the size of its files: 1.15 times as much, and 0.25 GB. Measured as peaks
/// of resident memory, with files of 0.65 to 2 GB in Q4_0, Q4_K_M, Q8_0 and F16; contexts of thousands of tokens take
/// more.
std::int64_t memory_needed(std::int64_t file_bytes);

Fit judge(const FitFacts& facts);

/// "4.90 GB on disk, 5.89 GB of memory needed, 22.10 GB free: fits; about 2.6 passes of 32 rows a second". Of a model
/// that does not fit, the size in a smaller type if that would: "does not fit; Q4_K_M takes about 4.85 GB". A pass
/// decides one token or more, so that its rate is the least rate of tokens.
std::string fit_text(const FitFacts& facts);

/// {"file_bytes", "memory_bytes", "free_bytes" (null: unknown), "fit": "fits" | "tight" | "does not fit",
/// "passes_per_second" (of 32 rows; null: not measured)}
nlohmann::ordered_json fit_json(const FitFacts& facts);

}  // namespace dllm::app
