#include "decode/suffix.h"

#include "decode/registry.h"

namespace dllm {
namespace {

struct NearOptions {
  Position suffix_near = 32;
};

OptionRows<NearOptions> near_rows() {
  return {option("suffix_near", &NearOptions::suffix_near, 0, kMostPositions, "positions",
                 "masks after the window that the model sees")};
}

SuffixEntry plain_suffix(std::string name, std::string meaning, SuffixPolicy policy) {
  return declare_method<Suffix>(
      std::move(name), std::move(meaning), OptionRows<NoOptions>{},
      [policy](const NoOptions&, const MethodContext&) { return std::make_unique<Suffix>(Suffix{policy}); });
}

}  // namespace

SuffixEntry full_suffix() { return plain_suffix("full", "all masks after the window", SuffixPolicy::kFull); }

SuffixEntry near_suffix() {
  return declare_method<Suffix>("near", "the nearest ones", near_rows(),
                                [](const NearOptions& options, const MethodContext&) {
                                  return std::make_unique<Suffix>(Suffix{SuffixPolicy::kNear, options.suffix_near});
                                });
}

SuffixEntry no_suffix() {
  return plain_suffix("none", "no mask: the canvas ends with the window", SuffixPolicy::kNone);
}

}  // namespace dllm
