// Answers with a given form: text that never changes, and gaps that the model fills.
#include <fmt/format.h>

#include "base/try.h"
#include "engine/ends.h"
#include "serve/answer.h"

namespace dllm::serve {
namespace {

constexpr std::size_t kMostParts = 1024;

/// The length of a gap, {"mask": N}.
Expected<std::int64_t> read_gap(const Json& part, const std::string& where, const ServedModel& served) {
  if (!part.is_object()) return wrong_type(where, "a text or {\"mask\": N}");
  Fields fields(part);
  const auto gap = fields.integer("mask", 1, served.model.context_length());
  if (!gap || !*gap)
    return wrong_type(where, fmt::format("a text or {{\"mask\": N}}, N from 1 to {}", served.model.context_length()));
  if (!fields.done()) return wrong_type(where, "a gap without other fields than \"mask\"");
  return **gap;
}

}  // namespace

Expected<bool> read_form(Fields& fields, const ServedModel& served, AnswerRequest& request) {
  const Json* list = fields.find("template");
  if (list == nullptr) return false;
  if (!list->is_array() || list->empty() || list->size() > kMostParts)
    return wrong_type("template", fmt::format("a list of up to {} texts and gaps, {{\"mask\": N}}", kMostParts));
  for (const char* length : {"max_tokens", "max_completion_tokens", "n_predict", "length"})
    if (fields.find(length) != nullptr)
      return Error{ErrorCode::kUsage, "the template says how long the answer is", length, "leave the field out"};
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& part = (*list)[i];
    const std::string where = fmt::format("template[{}]", i);
    if (part.is_string()) {
      const auto& text = part.get_ref<const std::string&>();
      DLLM_CHECK_OK(served.check_size(text.size(), where));
      DLLM_TRY(const auto ids, served.model.tokenize(text, /*special=*/false));
      request.form.insert(request.form.end(), ids.begin(), ids.end());
    } else {
      DLLM_TRY(const std::int64_t gap, read_gap(part, where, served));
      request.form.insert(request.form.end(), static_cast<std::size_t>(gap), -1);
    }
    if (request.form.size() > static_cast<std::size_t>(served.model.context_length()))
      return Error{ErrorCode::kUsage,
                   fmt::format("the template exceeds the context of {} tokens", served.model.context_length()), where,
                   "shorten it"};
  }
  return true;
}

Expected<GenerateOptions> for_form(GenerateOptions options, const AnswerRequest& request, const ServedModel& served) {
  if (request.form.empty()) return options;
  const auto length = static_cast<std::int32_t>(request.form.size());
  if (served.options.max_tokens && length > *served.options.max_tokens)
    return Error{ErrorCode::kUsage,
                 fmt::format("this server generates at most {} tokens per request", *served.options.max_tokens),
                 "template", "shorten it"};
  options.length = length;
  options.max_tokens.reset();  // the server's
  fill_gaps(served.model, options);
  return options;
}

}  // namespace dllm::serve
