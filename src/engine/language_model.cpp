#include "dllm/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/lead.h"
#include "base/to_size.h"
#include "base/try.h"
#include "engine/backend/cpu.h"
#include "engine/choices.h"
#include "engine/embedded_model.h"
#include "engine/language_model_impl.h"
#include "engine/likelihood.h"
#include "engine/load.h"
#include "model/drafter_source.h"

namespace dllm {

LanguageModel::LanguageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

namespace {

Expected<ModelSource> source_of_bytes(std::span<const std::byte> gguf, const std::string& name) {
  DLLM_TRY(auto file, GgufFile::parse(MappedFile::wrap(gguf, name)));
  return source_from_gguf(std::move(file));
}

}  // namespace

Expected<ModelSource> open_or_embedded(const std::string& path) {
  if (!path.empty()) return open_source(path);
  if (embedded_model().empty())
    return Error{ErrorCode::kUsage, "no model is inside this build", "", "name a GGUF file, or load its bytes"};
  return source_of_bytes(embedded_model(), "embedded tiny-llada");
}

Expected<std::vector<AdapterRequest>> adapter_requests(const LoadOptions& options) {
  std::vector<AdapterRequest> requests;
  for (const auto& [texts, drafts_only] : {std::pair(&options.lora, false), std::pair(&options.lora_draft, true)})
    for (const std::string& text : *texts) {
      DLLM_TRY(AdapterRequest request, parse_adapter_request(text, drafts_only));
      requests.push_back(std::move(request));
    }
  return requests;
}

RopeRequest rope_request(const LoadOptions& options) {
  return {options.rope_scaling, options.rope_scale, options.rope_original_context};
}

/// What a load reads: empty `path`: no file, so that nothing can be named after it.
struct LanguageModel::Opened {
  ModelSource source;
  std::string path;
};

Expected<LanguageModel> LanguageModel::load(const std::string& path, const LoadOptions& options) {
  DLLM_CHECK_OK(requested_backend(options));
  DLLM_TRY(auto source, open_or_embedded(path));
  return load_opened({std::move(source), path}, options);
}

Expected<LanguageModel> LanguageModel::load_bytes(std::span<const std::byte> gguf, const std::string& name,
                                                  const LoadOptions& options) {
  DLLM_CHECK_OK(requested_backend(options));
  DLLM_TRY(auto source, source_of_bytes(gguf, name));
  return load_opened({std::move(source), ""}, options);
}

Expected<LanguageModel> LanguageModel::load_opened(Opened opened, const LoadOptions& options) {
  DLLM_TRY(const BackendEntry* const entry, requested_backend(options));
  auto& [source, path] = opened;
  if (is_drafter(source))
    return Error{ErrorCode::kUsage, "this is a drafter, which runs beside the model that it drafts for", path,
                 "give it as --draft-model, and that model as --model"};
  DLLM_CHECK_OK(rescale_rope(rope_request(options), source));
  source.device_tiles = entry->tiles.has_value();
  auto impl = std::make_unique<Impl>(options.poll);
  impl->log = options.warnings ? Log() : Log([](LogLevel, const std::string&) {});
  const Error stopped{ErrorCode::kCancelled, "the load was stopped", path, ""};
  // Both parts of a load can take seconds: reading a vocabulary and packing weights.
  if (options.progress && !options.progress(0)) return stopped;
  DLLM_TRY(const auto adapters, adapter_requests(options));
  DLLM_TRY(impl->model, Model::load(std::move(source), impl->log, adapters));
  if (options.progress && !options.progress(0)) return stopped;
  DLLM_TRY(impl->running, entry->make(*impl->model, path, options, impl->log));
  if ((impl->desc().decided_first || impl->desc().slot_length > 0) && !impl->running.backend->runs_lead())
    return Error{ErrorCode::kUnsupported, "the model reads tokens in an order of its own, which this backend has not",
                 "--backend", "--backend cpu runs the model"};
  DLLM_CHECK_OK(impl->load_images(options));
  DLLM_CHECK_OK(impl->model->check());
  return LanguageModel(std::move(impl));
}

Expected<void> LanguageModel::Impl::load_images(const LoadOptions& options) {
  if (options.mmproj.empty()) return {};
  if (desc().canvas.length == 0 || !running.backend->takes_embeddings())
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} reads no images", desc().canvas.length == 0 ? "this model" : "this backend"),
                 "--mmproj", "DiffusionGemma does, with --backend cpu"};
  DLLM_TRY(const Tokenizer* const known, tokenizer());
  DLLM_TRY(images, Images::load(options.mmproj, desc().width, *known, cpu_options(options)));
  running.files.insert(running.files.end(), images->files().begin(), images->files().end());
  return {};
}

Expected<Generation> LanguageModel::generate(std::string_view prompt, const GenerateOptions& options,
                                             const StepCallback& on_step, std::stop_token stop) const {
  return generate({{"user", std::string(prompt)}}, options, on_step, std::move(stop));
}

Expected<Generation> LanguageModel::generate(const std::vector<ChatTurn>& turns, const GenerateOptions& options,
                                             const StepCallback& on_step, std::stop_token stop) const {
  DLLM_TRY(const TemplatedPrompt prompt, impl_->encode_turns(turns));
  return impl_->generate(prompt, options, on_step, std::move(stop));
}

Expected<Generation> LanguageModel::generate_ids(const std::vector<std::int32_t>& prompt,
                                                 const GenerateOptions& options, const StepCallback& on_step,
                                                 std::stop_token stop) const {
  return impl_->generate({.ids = prompt, .opening = ""}, options, on_step, std::move(stop));
}

Expected<std::vector<Generation>> LanguageModel::generate_batch(const std::vector<std::vector<ChatTurn>>& conversations,
                                                                const GenerateOptions& options, std::int32_t batch,
                                                                const AnswerCallback& on_answer, std::stop_token stop,
                                                                const std::vector<std::uint64_t>& seeds) const {
  if (!seeds.empty() && seeds.size() != conversations.size())
    return Error{ErrorCode::kUsage, fmt::format("{} seeds for {} answers", seeds.size(), conversations.size()), "seeds",
                 "give one for each"};
  std::vector<TemplatedPrompt> prompts;
  for (const std::vector<ChatTurn>& turns : conversations) {
    DLLM_TRY(prompts.emplace_back(), impl_->encode_turns(turns));
  }
  return impl_->generate_batch(prompts, options, batch, on_answer, std::move(stop), seeds);
}

Expected<Generation> LanguageModel::replay(const Generation& recorded, std::stop_token stop) const {
  return impl_->replay(recorded, std::move(stop));
}

Expected<std::vector<float>> LanguageModel::logits(const std::vector<std::int32_t>& ids, bool causal,
                                                   std::int32_t canvas) const {
  const ModelDesc& desc = impl_->model->desc();
  if (ids.empty()) return Error{ErrorCode::kUsage, "no token ids are given", "--tokens", ""};
  if (static_cast<std::int64_t>(ids.size()) > desc.context_length)
    return Error{ErrorCode::kUsage, fmt::format("{} tokens exceed the context of {}", ids.size(), desc.context_length),
                 "--tokens", ""};
  const auto count = static_cast<Position>(ids.size());
  const bool refines = desc.canvas.length > 0;
  if (canvas > 0 && !refines)
    return Error{ErrorCode::kUsage, "the model has no separate canvas", "--canvas", "leave the option out"};
  if (canvas < 0 || canvas > count)
    return Error{ErrorCode::kUsage, fmt::format("a canvas of {} in {} tokens", canvas, count), "--canvas", ""};
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= desc.vocab)
      return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", ids[i], desc.vocab),
                   fmt::format("--tokens, position {}", i), ""};
  DLLM_TRY(const Turns::Turn turn, impl_->passes.take());
  DLLM_TRY(const auto cache, impl_->running.backend->make_cache(count));
  std::vector<float> result;
  const auto pass = [&](PositionRange range, Region region, std::int32_t causal_block) -> Expected<void> {
    if (range.size() == 0) return {};
    SequenceStep step{cache.get(), {}, {}, std::nullopt};
    for (Position p = range.begin; p < range.end; ++p) {
      step.plan.rows.push_back({p, ids[to_size(p)]});
      step.plan.scored.push_back(p - range.begin);
    }
    step.plan.visible = {{0, range.end}};
    step.plan.causal_block = causal_block;
    step.plan.region = region;
    if (!causal) lead_decided(desc, *cache, step.plan);
    step.request.logits = true;
    DLLM_TRY(const auto scores, impl_->checked(impl_->running.backend->forward({&step, 1})));
    result.insert(result.end(), scores.front().logits.begin(), scores.front().logits.end());
    return {};
  };
  const Position context = count - canvas;
  DLLM_CHECK_OK(pass({0, context}, Region::kContext, causal || refines ? 1 : desc.causal_block));
  DLLM_CHECK_OK(pass({context, count}, Region::kCanvas, causal ? 1 : 0));
  return result;
}

Expected<std::vector<double>> LanguageModel::masked_log_probs(const std::vector<std::int32_t>& ids,
                                                              const std::vector<std::int32_t>& masked, double cfg_scale,
                                                              std::int32_t prompt) const {
  DLLM_TRY(auto logs, masked_log_probs_batch({{ids, masked, prompt}}, cfg_scale));
  return std::move(logs.front());
}

Expected<std::vector<std::vector<double>>> LanguageModel::masked_log_probs_batch(const std::vector<MaskedText>& texts,
                                                                                 double cfg_scale) const {
  DLLM_TRY(const Turns::Turn turn, impl_->passes.take());
  return impl_->checked(dllm::masked_log_probs(*impl_->running.backend, texts, cfg_scale));
}

Expected<double> LanguageModel::answer_log_prob(const std::vector<std::int32_t>& prompt,
                                                const std::vector<std::int32_t>& answer, std::int32_t canvas) const {
  DLLM_TRY(const Turns::Turn turn, impl_->passes.take());
  return impl_->checked(
      dllm::answer_log_prob(*impl_->running.backend, prompt, answer, impl_->model->desc().stop_ids, canvas));
}

Expected<std::vector<ChoiceScore>> LanguageModel::score_choices(const std::vector<std::int32_t>& prompt,
                                                                const std::vector<std::string>& choices) const {
  DLLM_TRY(const auto answers, choice_ids(*this, choices));
  std::vector<ChoiceScore> scores;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    DLLM_TRY(const double log, answer_log_prob(prompt, answers[i], choice_canvas(answers)));
    scores.push_back({choices[i], static_cast<std::int32_t>(answers[i].size()), log, 0});
  }
  set_shares(scores);
  return scores;
}

namespace {

/// As transformers has it: a text, or parts, images first.
nlohmann::ordered_json message_content(const ChatTurn& turn) {
  if (turn.images.empty()) return turn.content;
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < turn.images.size(); ++i) parts.push_back({{"type", "image"}});
  parts.push_back({{"type", "text"}, {"text", turn.content}});
  return parts;
}

}  // namespace

Expected<TemplatedPrompt> LanguageModel::Impl::with_images(TemplatedPrompt prompt,
                                                           const std::vector<std::string>& files,
                                                           const std::function<bool()>& go_on) const {
  if (images != nullptr) return images->place(std::move(prompt), files, desc().context_length, go_on);
  if (files.empty()) return prompt;
  return Error{ErrorCode::kUsage, "the model was loaded without a vision tower, and images are given", "--image",
               "name its tower with --mmproj, if it has one"};
}

Expected<TemplatedPrompt> LanguageModel::Impl::encode_turns(const std::vector<ChatTurn>& turns) const {
  if (turns.empty()) return Error{ErrorCode::kUsage, "the conversation is empty", "", ""};
  std::vector<std::string> files;
  for (const ChatTurn& turn : turns) files.insert(files.end(), turn.images.begin(), turn.images.end());
  const ChatTemplate* chat = chat_template();
  if (!chat) {
    if (turns.size() == 1) {
      TemplatedPrompt raw;
      DLLM_TRY(raw.ids, encode_prompt(MarkedText::content(turns.front().content), special_content));
      return with_images(std::move(raw), files);
    }
    return Error{ErrorCode::kUsage, "the model file has no chat template", "tokenizer.chat_template",
                 "give one with --chat-template-file, or complete raw text with --raw"};
  }
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const ChatTurn& turn : turns) messages.push_back({{"role", turn.role}, {"content", message_content(turn)}});
  DLLM_TRY(TemplatedPrompt prompt, encode_variables({{"messages", std::move(messages)}}));
  return with_images(std::move(prompt), files);
}

Expected<TemplatedPrompt> LanguageModel::Impl::encode_variables(nlohmann::ordered_json variables) const {
  const auto defaults = nlohmann::ordered_json::parse(template_variables);
  for (const auto& [name, value] : defaults.items())
    if (!variables.contains(name)) variables[name] = value;
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
  std::vector<std::string> absent;
  for (const char* name : {"tools", "documents"})
    if (!variables.contains(name)) absent.emplace_back(name);
  for (const std::string& name : absent) variables[name] = nullptr;
  const ChatTemplate* chat = chat_template(!variables["tools"].is_null());
  if (!chat)
    return Error{ErrorCode::kUsage, "the model file has no chat template", "tokenizer.chat_template",
                 "give one with --chat-template-file, or complete raw text with --raw"};
  DLLM_TRY(const Tokenizer* const tok, tokenizer());
  const TokenizerSpec& spec = tok->spec();
  variables["bos_token"] = spec.bos ? tok->bytes(*spec.bos) : "";
  variables["eos_token"] = spec.eos ? tok->bytes(*spec.eos) : "";
  if (spec.pad) variables["pad_token"] = tok->bytes(*spec.pad);
  if (spec.unk) variables["unk_token"] = tok->bytes(*spec.unk);
  auto text = chat->render_marked(variables);
  // Templates that were written for other programs may not expect none: there an absent variable is undefined.
  if (!text && text.error().code != ErrorCode::kUsage && !absent.empty()) {
    for (const std::string& name : absent) variables.erase(name);
    if (auto again = chat->render_marked(variables)) text = std::move(again);
  }
  if (!text) return std::move(text).error();
  const std::size_t last = text->marks.rfind(MarkedText::kContent);
  TemplatedPrompt prompt;
  prompt.opening = text->bytes.substr(last == std::string::npos ? 0 : last + 1);
  DLLM_TRY(prompt.ids, encode_prompt(*text, special_content));
  return prompt;
}

Expected<std::vector<std::int32_t>> LanguageModel::tokenize(std::string_view text, bool special) const {
  DLLM_TRY(const Tokenizer* const tokenizer, impl_->tokenizer());
  return tokenizer->encode(text, special);
}

Expected<std::string> LanguageModel::detokenize(const std::vector<std::int32_t>& ids, bool special) const {
  DLLM_TRY(const Tokenizer* const tokenizer, impl_->tokenizer());
  return tokenizer->decode(ids, special);
}

Expected<std::vector<std::int32_t>> LanguageModel::apply_template(const std::vector<ChatTurn>& turns) const {
  DLLM_TRY(TemplatedPrompt prompt, impl_->encode_turns(turns));
  if (prompt.images != nullptr) prompt.images->show(prompt.ids);
  return std::move(prompt.ids);
}

Expected<std::vector<std::int32_t>> LanguageModel::apply_template_variables(const std::string& variables) const {
  DLLM_TRY(TemplatedPrompt prompt, render_template(variables));
  DLLM_TRY(prompt, place_images(std::move(prompt), {}));
  return std::move(prompt.ids);
}

Expected<void> LanguageModel::set_template_variables(const std::string& variables) {
  auto json = nlohmann::ordered_json::parse(variables, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{ErrorCode::kUsage, "the variables are no JSON object", "", ""};
  for (const auto& [name, value] : json.items())
    if (const char* const why = why_not_settable(name)) return Error{ErrorCode::kUsage, why, name, "leave it out"};
  impl_->template_variables = variables;
  return {};
}

std::string LanguageModel::template_variables() const { return impl_->template_variables; }

Expected<TemplatedPrompt> LanguageModel::render_template(const std::string& variables) const {
  auto json = nlohmann::ordered_json::parse(variables, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{ErrorCode::kUsage, "the variables are no JSON object", "", ""};
  return impl_->encode_variables(std::move(json));
}

Expected<TemplatedPrompt> LanguageModel::place_images(TemplatedPrompt prompt, const std::vector<std::string>& images,
                                                      const std::function<bool()>& go_on) const {
  return impl_->with_images(std::move(prompt), images, go_on);
}

bool LanguageModel::reads_images() const { return impl_->images != nullptr; }

Expected<std::vector<std::int32_t>> LanguageModel::prompt_ids(std::string_view text, bool special) const {
  return impl_->encode_prompt(MarkedText::content(std::string(text)), special);
}

SpecialTokens LanguageModel::special_tokens() const {
  const Tokenizer* const tokenizer = impl_->model->tokenizer();
  if (tokenizer == nullptr) return {};
  const TokenizerSpec& spec = tokenizer->spec();
  return {spec.bos, spec.eos, spec.eot, spec.pad, spec.mask, spec.add_bos};
}

std::string LanguageModel::chat_template(bool tools) const {
  const ChatTemplate* const chat = impl_->chat_template(tools);
  return chat != nullptr ? chat->source() : "";
}

Expected<void> LanguageModel::set_chat_template(const std::string& source) {
  DLLM_TRY(auto compiled, ChatTemplate::compile(source));
  impl_->own_template.emplace(std::move(compiled));
  return {};
}

Expected<ResolvedOptions> LanguageModel::resolve(const GenerateOptions& options) const {
  return impl_->resolve(options);
}

void LanguageModel::set_special_content(bool special) { impl_->special_content = special; }

bool LanguageModel::has_chat_template() const { return impl_->chat_template() != nullptr; }
std::int32_t LanguageModel::vocab_size() const { return static_cast<std::int32_t>(impl_->model->desc().vocab); }
std::int32_t LanguageModel::context_length() const {
  return static_cast<std::int32_t>(impl_->model->desc().context_length);
}
std::int32_t LanguageModel::logit_shift() const { return impl_->model->desc().logit_shift; }
bool LanguageModel::autoregressive() const { return impl_->model->desc().autoregressive(); }
std::string LanguageModel::architecture() const { return impl_->model->desc().architecture; }
std::string LanguageModel::name() const { return impl_->model->desc().name; }
ModelSize LanguageModel::size() const {
  ModelSize size;
  std::map<TensorType, std::int64_t> parameters;
  for (const SourceTensor& tensor : impl_->model->tensors()) {
    parameters[tensor.type] += element_count(tensor.shape);
    size.parameters += element_count(tensor.shape);
    size.bytes += static_cast<std::int64_t>(byte_size(tensor));
  }
  const auto most = std::ranges::max_element(parameters, {}, &std::pair<const TensorType, std::int64_t>::second);
  if (most != parameters.end()) size.type = codec(most->first).name;
  return size;
}
std::string LanguageModel::isa() const { return impl_->running.isa; }
std::string LanguageModel::arithmetic() const { return impl_->running.arithmetic; }
std::optional<DeviceStatus> LanguageModel::device_status() const {
  if (!impl_->running.device) return std::nullopt;
  return impl_->running.device();
}
std::int32_t LanguageModel::threads() const { return impl_->running.threads; }

}  // namespace dllm
