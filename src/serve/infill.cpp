// POST /infill: text between given texts: two (llama.cpp's fields), or any number (`template`). A masked model sees
// both at once.
#include "base/try.h"
#include "engine/answer_length.h"
#include "serve/answer.h"
#include "serve/formats.h"
#include "serve/request_options.h"

namespace dllm::serve {
namespace {

/// Answers as llama.cpp's server gives them.
class LlamaFormat final : public AnswerFormat {
 public:
  LlamaFormat(const CallPtr& call, Json prompt) : call_(call), prompt_(std::move(prompt)) {}

  Json whole(const std::vector<Generation>& answers) override { return last(answers.front(), answers.front().text); }
  std::string text(std::size_t, std::string_view more) override { return sse({{"content", more}, {"stop", false}}); }
  std::string step(std::size_t, std::string_view canvas, const Json& facts) override {
    return sse({{"content", canvas}, {"stop", false}, {"diffusion", facts}});
  }
  std::string closing(std::size_t, const Generation& answer) override { return sse(last(answer, "")); }
  std::string end(const std::vector<Generation>&) override { return ""; }
  std::string error(const ApiError& error) override { return sse(error_json(error, Dialect::kOpenAi)); }

 private:
  Json last(const Generation& answer, std::string_view text) const {
    const bool word = !answer.stop_text.empty();
    Json json = {{"content", text},
                 {"stop", true},
                 {"stop_type", word                                   ? "word"
                               : answer.finish == FinishReason::kStop ? "eos"
                                                                      : "limit"},
                 {"stopping_word", answer.stop_text},
                 {"tokens_predicted", answer.stats.answer_tokens},
                 {"tokens_evaluated", answer.stats.prompt_tokens},
                 {"model", call_->name()},
                 {"truncated", false},
                 {"dllm", facts_json(answer)}};
    if (!prompt_.is_null()) json["prompt"] = prompt_;
    return json;
  }

  CallPtr call_;
  Json prompt_;
};

}  // namespace

std::unique_ptr<AnswerFormat> llama_format(const CallPtr& call, Json prompt) {
  return std::make_unique<LlamaFormat>(call, std::move(prompt));
}

Expected<void> infill(const CallPtr& call) {
  const ServedModel& served = call->served();
  Fields fields(call->body, &call->ignored);
  DLLM_CHECK_OK(call->read_model(fields));
  DLLM_TRY(const auto before, fields.text("input_prefix"));
  DLLM_TRY(const auto prompt, fields.text("prompt"));
  DLLM_TRY(const auto after, fields.text("input_suffix"));
  if (const Json* extra = fields.find("input_extra"); extra != nullptr && !extra->empty())
    return Error{ErrorCode::kUsage, "other files are not supported", "input_extra", "put them into input_prefix"};
  DLLM_TRY(AnswerRequest request, read_stream_fields(fields));
  DLLM_TRY(const bool form, read_form(fields, served, request));
  if (form && (before || prompt || after))
    return Error{ErrorCode::kUsage, "the template holds all text", "template", "leave the others out"};
  if (!form && !before && !after) return wrong_type("input_prefix", "given, or \"input_suffix\" or \"template\"");
  DLLM_CHECK_OK(read_shown(fields, served, request));
  DLLM_TRY(GenerateOptions asked, read_options(fields, served.model, served.options, Bound::kIsCanvas));
  DLLM_TRY(GenerateOptions options, for_form(std::move(asked), request, served));
  DLLM_TRY(const ResolvedOptions resolved, served.model.resolve(options));
  take_whole_canvas(options, resolved);
  const std::string front = before.value_or("") + prompt.value_or("");
  DLLM_CHECK_OK(served.check_size(front.size(), "input_prefix"));
  DLLM_CHECK_OK(served.check_size(after.value_or("").size(), "input_suffix"));
  DLLM_TRY(const auto ids, served.model.prompt_ids(front, /*special=*/false));
  DLLM_TRY(request.suffix, served.model.tokenize(after.value_or(""), /*special=*/false));
  add_choices(request, ids, options, 1);
  return answer(call, std::move(request), llama_format(call));
}

}  // namespace dllm::serve
