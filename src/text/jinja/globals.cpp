#include <fmt/format.h>

#include <array>
#include <ctime>

#include "base/try.h"
#include "text/jinja/runtime.h"

namespace dllm::jinja {
namespace {

Expected<Value> make_range(Runtime& runtime, const Arguments& arguments) {
  std::vector<std::int64_t> bounds;
  for (const Value& value : arguments.positional) {
    if (!value.integer_like()) return type_error(fmt::format("range() needs integers, not {}", value.type_name()));
    bounds.push_back(value.as_integer());
  }
  if (bounds.empty() || bounds.size() > 3) return type_error("range() takes one to three arguments");
  const std::int64_t start = bounds.size() == 1 ? 0 : bounds[0], stop = bounds.size() == 1 ? bounds[0] : bounds[1];
  const std::int64_t step = bounds.size() == 3 ? bounds[2] : 1;
  if (step == 0) return type_error("range() step must not be zero");
  std::vector<Value> items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<std::int64_t>(items.size()) >= runtime.limits().range) {
      return limit_error(fmt::format("range() has more than {} items", runtime.limits().range));
    }
    DLLM_CHECK_OK(runtime.step());
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_sequence(std::move(items));
}

Expected<Mapping> make_entries(Runtime& runtime, const Arguments& arguments) {
  Mapping mapping;
  if (arguments.positional.size() > 1) return type_error("at most one positional argument is possible");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const Mapping* known = source.mapping()) {
      mapping = *known;
    } else {
      DLLM_TRY(const SequencePtr items, runtime.iterate(source));
      for (const Value& item : items->items) {
        const Sequence* pair = item.sequence();
        if (pair == nullptr || pair->items.size() != 2) return type_error("a dict is made of pairs");
        DLLM_CHECK_OK(set_entry(runtime, mapping, pair->items[0], pair->items[1]));
      }
    }
  }
  DLLM_CHECK_OK(runtime.step(static_cast<std::int64_t>(mapping.entries.size() + arguments.named.size())));
  for (const auto& [name, value] : arguments.named) DLLM_CHECK_OK(set_entry(runtime, mapping, Value(name), value));
  return mapping;
}

Expected<Value> raise(Runtime& runtime, const Arguments& arguments) {
  const Value* message = arguments.find(0, "message");
  DLLM_TRY(MarkedText text, runtime.str(message != nullptr ? *message : Value(std::string())));
  return Error{ErrorCode::kUsage, std::move(text.bytes), "", "the chat template refuses these messages"};
}

Expected<Value> strftime_now(Runtime& runtime, const Arguments& arguments) {
  const Value* format = arguments.find(0, "format");
  if (format == nullptr || format->text() == nullptr) return type_error("strftime_now() needs a format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (format->text()->size() > 200 || localtime_r(&now, &local) == nullptr) return type_error("strftime_now() fails");
  std::array<char, 4096> buffer{};
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format->text()->c_str(), &local);
  return runtime.text(std::string(buffer.data(), size));
}

Expected<Value> new_namespace(Runtime& runtime, const Arguments& arguments) {
  DLLM_TRY(Mapping attributes, make_entries(runtime, arguments));
  Namespace* made = runtime.make_namespace();
  made->attributes = std::move(attributes);
  return Value(made);
}

Expected<Value> new_dict(Runtime& runtime, const Arguments& arguments) {
  DLLM_TRY(Mapping mapping, make_entries(runtime, arguments));
  return make_mapping(std::move(mapping));
}

struct Global {
  std::string_view name;
  Expected<Value> (*call)(Runtime&, const Arguments&);
};
constexpr std::array<Global, 5> kGlobals = {{{"range", make_range},
                                             {"namespace", new_namespace},
                                             {"dict", new_dict},
                                             {"raise_exception", raise},
                                             {"strftime_now", strftime_now}}};

}  // namespace

bool is_global(std::string_view name) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return true;
  }
  return false;
}

Expected<Value> call_global(Runtime& runtime, const std::string& name, const Arguments& arguments) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return global.call(runtime, arguments);
  }
  return type_error(fmt::format("there is no function '{}'", name));
}

}  // namespace dllm::jinja
