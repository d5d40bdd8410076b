#include "raise.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dllm/model.h"
#include "dllm/options.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

/// Flags that are no options of a generation or a load, in Python's words.
constexpr std::pair<std::string_view, std::string_view> kOtherFlags[] = {
    {"--batch", "batch"},     {"--chat-template-file", "Model.chat_template"},
    {"--model", "path"},      {"--raw", "token ids as the prompt"},
    {"--tokens", "ids"},      {"-hf", "hf"},
    {"--hf-file", "hf_file"}, {"--offline", "offline"},
    {"--task", "task"},       {"--offset", "offset"},
    {"--shots", "shots"}};

/// The keyword argument of a flag; empty: there is none.
std::string keyword_of(std::string_view flag) {
  for (const auto& [known, keyword] : kOtherFlags)
    if (known == flag) return std::string(keyword);
  for (const OptionInfo& info : load_options_info())
    if (std::ranges::find(info.flags, flag) != info.flags.end()) return info.key;
  const OptionsInfo& all = options_info();
  const auto has = [flag](const OptionInfo& info) { return std::ranges::find(info.flags, flag) != info.flags.end(); };
  for (const OptionInfo& info : all.common)
    if (has(info)) return info.key;
  for (const PartInfo& part : all.parts) {
    if (has(part.selector)) return part.selector.key;
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& info : method.options)
        if (has(info)) return info.key;
  }
  return flag == "--preset" ? "preset" : "";
}

}  // namespace

std::string in_python(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
  std::string result;
  while (!text.empty()) {
    const bool begins = text.front() == '-' && (result.empty() || kLetters.find(result.back()) == kLetters.npos);
    const std::size_t end = begins ? std::min(text.find_first_not_of(kLetters), text.size()) : 1;
    std::string_view word = text.substr(0, end);
    const std::string keyword = begins ? keyword_of(word) : "";
    result += keyword.empty() ? word : std::string_view(keyword);
    text.remove_prefix(end);
  }
  return result;
}

void raise(const Error& error) {
  const char* const name = [&error] {
    switch (error.code) {
      case ErrorCode::kUsage:
        return "UsageError";
      case ErrorCode::kInvalidFile:
        return "InvalidFileError";
      case ErrorCode::kUnsupported:
        return "UnsupportedError";
      case ErrorCode::kIo:
        return "FileAccessError";
      case ErrorCode::kResource:
        return "ResourceError";
      case ErrorCode::kCancelled:
        return "CancelledError";
      case ErrorCode::kMismatch:
        return "MismatchError";
    }
    return "Error";
  }();
  const nb::object type = nb::module_::import_("dllm.errors").attr(name);
  const nb::object value = type(in_python(error.what), in_python(error.where), in_python(error.hint));
  PyErr_SetObject(type.ptr(), value.ptr());
  throw nb::python_error();
}

}  // namespace dllm::python
