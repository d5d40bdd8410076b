#include "constrain/product.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "base/to_size.h"

namespace dllm::constrain {
namespace {

class Pairs {
 public:
  Pairs(const Dfa& first, const Dfa& second, Product kind) : first_(first), second_(second), kind_(kind) {}

  Expected<Dfa> run(std::int32_t most_states, std::int64_t& work) {
    if (first_.states == 0 || (second_.states == 0 && kind_ == Product::kBoth)) return std::move(dfa_);
    set_classes();
    number(0, second_.states > 0 ? 0 : Dfa::kDead);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto [a, b] = pairs_[i];
      const bool other = b != Dfa::kDead && second_.accepting[to_size(b)] != 0;
      dfa_.accepting.push_back(first_.accepting[to_size(a)] != 0 && other == (kind_ == Product::kBoth) ? 1 : 0);
      for (const std::uint8_t byte : bytes_) {
        const std::int32_t to_a = first_.step(a, byte), to_b = b == Dfa::kDead ? Dfa::kDead : second_.step(b, byte);
        const bool dead = to_a == Dfa::kDead || (to_b == Dfa::kDead && kind_ == Product::kBoth);
        dfa_.next.push_back(dead ? Dfa::kDead : number(to_a, to_b));
      }
      work -= dfa_.classes;
      if (work < 0 || static_cast<std::int64_t>(pairs_.size()) > most_states)
        return Error{ErrorCode::kUsage, "the automaton is too large", "", ""};
    }
    dfa_.states = static_cast<std::int32_t>(pairs_.size());
    dfa_.counter.assign(pairs_.size(), 0);
    dfa_.between.assign(pairs_.size(), 0);
    return std::move(dfa_);
  }

 private:
  /// Bytes that neither automaton distinguishes share a class.
  void set_classes() {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto same = [&](const Dfa& dfa) { return dfa.byte_class[byte] == dfa.byte_class[byte - 1]; };
      if (byte == 0 || !same(first_) || !same(second_)) bytes_.push_back(static_cast<std::uint8_t>(byte));
      dfa_.byte_class[byte] = static_cast<std::uint8_t>(bytes_.size() - 1);
    }
    dfa_.classes = static_cast<std::int32_t>(bytes_.size());
  }

  std::int32_t number(std::int32_t a, std::int32_t b) {
    const auto key = (static_cast<std::int64_t>(a) << 32) | static_cast<std::uint32_t>(b);
    const auto [place, fresh] = numbers_.try_emplace(key, static_cast<std::int32_t>(pairs_.size()));
    if (fresh) pairs_.emplace_back(a, b);
    return place->second;
  }

  const Dfa& first_;
  const Dfa& second_;
  const Product kind_;
  Dfa dfa_;
  std::vector<std::uint8_t> bytes_;  ///< one of each class
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs_;
  std::unordered_map<std::int64_t, std::int32_t> numbers_;
};

}  // namespace

Expected<Dfa> product(const Dfa& first, const Dfa& second, Product kind, std::int32_t most_states, std::int64_t& work) {
  return Pairs(first, second, kind).run(most_states, work);
}

}  // namespace dllm::constrain
