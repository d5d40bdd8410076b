#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "text/jinja/runtime.h"

namespace dllm::jinja {

/// A filter call: its input and arguments, with typed access.
struct FilterCall {
  Runtime& runtime;
  const std::string& name;
  const Value& input;
  const Arguments& arguments;

  const Value* find(std::size_t index, std::string_view parameter) const { return arguments.find(index, parameter); }
  Expected<std::int64_t> integer_or(std::size_t index, std::string_view parameter, std::int64_t otherwise) const;
  bool flag_or(std::size_t index, std::string_view parameter, bool otherwise) const;
  /// str() of the argument.
  Expected<MarkedText> text_or(std::size_t index, std::string_view parameter, std::string otherwise) const;
  /// str() of the input.
  Expected<MarkedText> input_text() const { return runtime.str(input); }
};

using Filter = Expected<Value> (*)(const FilterCall&);

/// nullptr if there is no such filter in this group.
Filter find_text_filter(std::string_view name);
Filter find_number_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Filter find_selection_filter(std::string_view name);

/// `attribute` of map(), sort(), ...: a key, an index, or several of them separated by dots.
Expected<Value> attribute_path(Runtime& runtime, const Value& object, const Value& path);

}  // namespace dllm::jinja
