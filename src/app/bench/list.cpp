#include "app/bench/list.h"

#include <fmt/format.h>

#include <string_view>

#include "base/try.h"

namespace dllm::app {
namespace {

constexpr std::size_t kMaxMembers = 10000;

class ListParser {
 public:
  ListParser(std::int32_t minimum, std::int32_t maximum) : minimum_(minimum), maximum_(maximum) {}

  Expected<void> add_item(std::string_view item) {
    // A leading sign belongs to the number, which is then refused with its own message.
    const std::size_t dash = item.find('-', 1);
    if (dash == std::string_view::npos) {
      DLLM_TRY(const std::int32_t value, number(item));
      return add(value);
    }
    DLLM_TRY(const std::int32_t first, number(item.substr(0, dash)));
    std::string_view rest = item.substr(dash + 1);
    const std::size_t op = rest.find_first_of("+*");
    const bool multiplies = op != std::string_view::npos && rest[op] == '*';
    std::int64_t step = 1;
    if (op != std::string_view::npos) {
      const auto parsed = parse_number<std::int32_t>(rest.substr(op + 1));
      step = parsed.value_or(0);
      if (step < (multiplies ? 2 : 1))
        return bad_value(fmt::format("'{}' ends with no {}", item, multiplies ? "factor above 1" : "step above 0"));
      rest = rest.substr(0, op);
    }
    DLLM_TRY(const std::int32_t last, number(rest));
    if (first > last) return bad_value(fmt::format("'{}' runs backwards", item));
    if (multiplies && first == 0) return bad_value(fmt::format("'{}' never leaves 0", item));
    for (std::int64_t value = first; value <= last; value = multiplies ? value * step : value + step)
      DLLM_CHECK_OK(add(static_cast<std::int32_t>(value)));
    return {};
  }

  std::vector<std::int32_t> take() { return std::move(values_); }

 private:
  Expected<std::int32_t> number(std::string_view text) const {
    const auto value = parse_number<std::int32_t>(text);
    if (!value)
      return bad_value(fmt::format("'{}' is not an integer", text), "lists and ranges look like 1,8-64+8,128-512*2");
    if (*value < minimum_ || *value > maximum_)
      return bad_value(fmt::format("{} is outside [{}, {}]", *value, minimum_, maximum_));
    return *value;
  }

  Expected<void> add(std::int32_t value) {
    if (values_.size() == kMaxMembers) return bad_value(fmt::format("more than {} values", kMaxMembers));
    values_.push_back(value);
    return {};
  }

  std::int32_t minimum_, maximum_;
  std::vector<std::int32_t> values_;
};

}  // namespace

Expected<std::vector<std::int32_t>> parse_number_list(const std::string& text, std::int32_t minimum,
                                                      std::int32_t maximum) {
  ListParser parser(minimum, maximum);
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    DLLM_CHECK_OK(parser.add_item(rest.substr(0, comma)));
    if (comma == std::string_view::npos) return parser.take();
    rest.remove_prefix(comma + 1);
  }
}

Apply into_numbers(std::vector<std::int32_t>& target, std::int32_t minimum, std::int32_t maximum) {
  return [&target, minimum, maximum](const std::string& value) -> Expected<void> {
    DLLM_TRY(target, parse_number_list(value, minimum, maximum));
    return {};
  };
}

}  // namespace dllm::app
