#include "decode/window/suffix.h"

#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

struct NearOptions {
  Position suffix_near = 32;
};

OptionRows<NearOptions> near_rows() {
  return {option("suffix_near", &NearOptions::suffix_near, 0, kMostPositions, "positions",
                 "masks after the window that the model sees; of sparse, all of those")};
}

SuffixEntry plain_suffix(std::string name, std::string meaning, SuffixPolicy policy) {
  return declare_method<Suffix>(
             std::move(name), std::move(meaning), OptionRows<NoOptions>{},
             [policy](const NoOptions&, const MethodContext&) { return std::make_unique<Suffix>(Suffix{policy}); })
      .always({.all_masks = policy == SuffixPolicy::kFull});
}

SuffixEntry seen_up_to(std::string name, std::string meaning, SuffixPolicy policy) {
  return declare_method<Suffix>(std::move(name), std::move(meaning), near_rows(),
                                [policy](const NearOptions& options, const MethodContext&) {
                                  return std::make_unique<Suffix>(Suffix{policy, options.suffix_near});
                                });
}

}  // namespace

SuffixEntry full_suffix() {
  return plain_suffix("full", "all masks after the window", SuffixPolicy::kFull).standard_for("", [](const ModelDesc&) {
    return true;
  });
}

SuffixEntry near_suffix() { return seen_up_to("near", "the nearest ones", SuffixPolicy::kNear); }

SuffixEntry sparse_suffix() {
  return seen_up_to("sparse", "the nearest ones, then fewer with distance (after DPad)", SuffixPolicy::kSparse);
}

bool shows_sparsely(Position position, Position end, Position near) {
  Position stride = 1;
  for (Position reach = std::max<Position>(near, 1); position - end >= reach; reach *= 2) stride *= 2;
  return position % stride == 0;
}

SuffixEntry no_suffix() {
  return plain_suffix("none", "no mask: the canvas ends with the window", SuffixPolicy::kNone);
}

}  // namespace dllm
