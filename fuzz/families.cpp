#include "families-inl.h"

namespace dllm::fuzz {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> joined = families_of_texts();
    for (Family& family : families_of_files()) joined.push_back(std::move(family));
    return joined;
  }();
  return all;
}

}  // namespace dllm::fuzz
