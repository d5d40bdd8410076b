#pragma once

#include <nlohmann/json_fwd.hpp>

#include "npu_compiler/compiler/split_step.h"

// Listings of a compiled step, for people and tools.

namespace dllm::npu {

struct Device;

/// One region of the program with its closed-form bounds, in cycles of the device's clock. `lower_bound`: for every
/// schedule of tiles (analytic/cost_model.h); for operators lowered as one, the larger of the array's and the others'
/// sum.
struct ListedOperator {
  std::string name;
  std::string kind;
  std::uint32_t begin = 0, end = 0;
  std::int64_t macs = 0;
  double matrix_cycles = 0, lower_bound = 0, read_bytes = 0, write_bytes = 0;
};
struct Listing {
  std::vector<ListedOperator> operators;
};

/// How a layout uses matrix SRAM, and the chunks of attention.
nlohmann::ordered_json mapping_json(const ModelLayout& layout);

/// The operators of all parts. Errors: those of the cost model.
Expected<Listing> list_step(const ModelLayout& layout, const Device& device, const SplitStep& step);

/// Assembly source that gives the program, with operators as .profile regions and their bounds in comments.
std::string listing_asm(const SplitStep& step, const Listing& listing);
nlohmann::ordered_json listing_json(const SplitStep& step, const Listing& listing, const ModelLayout& layout);
std::string listing_summary(const SplitStep& step, const Listing& listing, const ModelLayout& layout,
                            const Device& device);

}  // namespace dllm::npu
