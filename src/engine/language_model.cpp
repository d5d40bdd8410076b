#include "dllm/model.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <mutex>

#include "base/log.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/cpu_backend.h"
#include "engine/embedded_model.h"
#include "engine/generate.h"
#include "engine/latency_file.h"
#include "engine/likelihood.h"
#include "engine/load.h"
#include "engine/method.h"
#include "engine/second_path_runner.h"
#include "model/model.h"

namespace dllm {

struct LanguageModel::Impl {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Backend> backend;
  const CpuBackend* cpu = nullptr;  ///< `backend`, if it is the CPU's
  std::optional<ChatTemplate> own_template;
  std::mutex mutex;  ///< a backend runs one forward at a time
  std::string path;
  LoadOptions load;
  std::map<int, std::unique_ptr<ThreadedPassRunner>> second_paths;  ///< by threads; guarded by mutex
  std::map<std::string, LatencyTable, std::less<>> latency_tables;  ///< by GenerateOptions::latency; guarded by mutex

  const ChatTemplate* chat_template() const { return own_template ? &*own_template : model->chat_template(); }

  Expected<const Tokenizer*> tokenizer() const { return model->require_tokenizer(); }

  Expected<Generation> generate(const std::vector<TokenId>& prompt, const GenerateOptions& options,
                                const StepCallback& on_step, std::stop_token stop) {
    DLLM_TRY(const GenerateOptions resolved, resolve_options(options, model->desc()));
    const std::lock_guard lock(mutex);
    DLLM_TRY(const LatencyTable* const latency, latency_table(resolved, stop));
    DLLM_TRY(PassRunner* const second, second_path(resolved));
    return dllm::generate(*backend, model->tokenizer(), prompt, resolved, latency, on_step, std::move(stop), second);
  }

  Expected<std::vector<Generation>> generate_batch(const std::vector<std::vector<TokenId>>& prompts,
                                                   const GenerateOptions& options, std::int32_t batch,
                                                   const AnswerCallback& on_answer, std::stop_token stop) {
    if (batch < 1) return Error{ErrorCode::kUsage, fmt::format("a batch of {}", batch), "--batch", "give at least 1"};
    DLLM_TRY(const GenerateOptions resolved, resolve_options(options, model->desc()));
    const std::lock_guard lock(mutex);
    DLLM_TRY(const LatencyTable* const latency, latency_table(resolved, stop));
    DLLM_TRY(PassRunner* const second, second_path(resolved));
    return dllm::generate_batch(*backend, model->tokenizer(), prompts, resolved, latency, batch, on_answer,
                                std::move(stop), second);
  }

  /// What steps cost, if the request asks for it or a part of its method does; else null.
  Expected<const LatencyTable*> latency_table(const GenerateOptions& resolved, std::stop_token stop) {
    const std::string name = latency_name(resolved);
    if (name.empty()) return nullptr;
    if (const auto known = latency_tables.find(name); known != latency_tables.end()) return &known->second;
    const Log log = load.warnings ? Log() : Log([](LogLevel, const std::string&) {});
    if (cpu == nullptr && name == "auto")
      return Error{ErrorCode::kUsage, "steps of a simulated processor are not timed by this machine's clock",
                   "--latency", "name a file with a table of its steps"};
    const LatencyKey key = cpu == nullptr ? LatencyKey() : latency_key(path, load, *cpu);
    DLLM_TRY(LatencyTable table, requested_latency(name, *backend, key, log, std::move(stop)));
    return &latency_tables.emplace(name, std::move(table)).first->second;
  }

  /// The thread group of the second path, made at its first use; null if the request keeps to one.
  Expected<PassRunner*> second_path(const GenerateOptions& resolved) {
    if (resolved.refresh_path != "second") return nullptr;
    if (cpu == nullptr)
      return Error{ErrorCode::kUnsupported, "there is no second path beside this backend", "--refresh-path",
                   "leave the option out"};
    std::unique_ptr<ThreadedPassRunner>& runner = second_paths[resolved.refresh_threads];
    if (!runner) {
      DLLM_TRY(runner, ThreadedPassRunner::create(*cpu, resolved.refresh_threads));
    }
    return runner.get();
  }

  /// Ids of raw text, with the special tokens that the metadata asks for.
  Expected<std::vector<TokenId>> encode_prompt(std::string_view text) const {
    DLLM_TRY(const Tokenizer* const tok, tokenizer());
    std::vector<TokenId> ids = tok->encode(text, /*parse_special=*/true);
    const TokenizerSpec& spec = tok->spec();
    // Templates usually write the bos token themselves; a second one would shift every answer.
    if (spec.add_bos && spec.bos && (ids.empty() || ids.front() != *spec.bos)) ids.insert(ids.begin(), *spec.bos);
    return ids;
  }

  Expected<std::vector<TokenId>> encode_turns(const std::vector<ChatTurn>& turns) const {
    if (turns.empty()) return Error{ErrorCode::kUsage, "the conversation is empty", "", ""};
    const ChatTemplate* chat = chat_template();
    if (!chat) {
      if (turns.size() == 1) return encode_prompt(turns.front().content);
      return Error{ErrorCode::kUsage, "the model file has no chat template", "tokenizer.chat_template",
                   "give one with --chat-template-file, or complete raw text with --raw"};
    }
    DLLM_TRY(const Tokenizer* const tok, tokenizer());
    std::vector<ChatMessage> messages;
    for (const ChatTurn& turn : turns) messages.push_back({turn.role, turn.content});
    ChatTemplate::Options options;
    if (tok->spec().bos) options.bos_token = tok->bytes(*tok->spec().bos);
    if (tok->spec().eos) options.eos_token = tok->bytes(*tok->spec().eos);
    DLLM_TRY(const std::string text, chat->render(messages, options));
    return encode_prompt(text);
  }
};

LanguageModel::LanguageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

Expected<ModelSource> open_or_embedded(const std::string& path) {
  if (!path.empty()) return open_source(path);
  DLLM_TRY(auto file, GgufFile::parse(MappedFile::wrap(embedded_model(), "embedded tiny-llada")));
  return source_from_gguf(std::move(file));
}

Expected<CpuOptions> cpu_options(const LoadOptions& options) {
  CpuOptions cpu;
  if (options.threads < 0 || options.threads > 1024)
    return Error{ErrorCode::kUsage, fmt::format("{} threads make no sense", options.threads), "--threads", ""};
  cpu.threads = options.threads > 0 ? options.threads : default_thread_count();
  cpu.isa = options.isa;
  if (options.cache_type == "f32") {
    cpu.kv = CpuKvType::kF32;
  } else if (options.cache_type == "f16") {
    cpu.kv = CpuKvType::kF16;
  } else if (options.cache_type == "bf16") {
    cpu.kv = CpuKvType::kBF16;
  } else if (options.cache_type == "q8_0") {
    cpu.kv = CpuKvType::kQ8_0;
  } else if (!options.cache_type.empty()) {
    return Error{ErrorCode::kUsage, fmt::format("unknown cache type '{}'", options.cache_type), "--cache-type",
                 "known: f32, f16, bf16, q8_0"};
  }
  if (options.activations == "int8") {
    cpu.activations = CpuActivations::kInt8;
  } else if (options.activations == "f32") {
    cpu.activations = CpuActivations::kF32;
  } else if (!options.activations.empty()) {
    return Error{ErrorCode::kUsage, fmt::format("unknown activation type '{}'", options.activations), "--activations",
                 "known: int8, f32"};
  }
  return cpu;
}

Expected<LanguageModel> LanguageModel::load(const std::string& path, const LoadOptions& options) {
  DLLM_TRY(CpuOptions cpu, cpu_options(options));
  DLLM_TRY(auto source, open_or_embedded(path));
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->load = options;
  const Log log = options.warnings ? Log() : Log([](LogLevel, const std::string&) {});
  DLLM_TRY(cpu.weight_cache, weight_cache_options(path, options, log));
  DLLM_TRY(impl->model, Model::load(std::move(source), log));
  const Model* model = impl->model.get();
  DLLM_TRY(std::unique_ptr<CpuBackend> backend,
           CpuBackend::create(
               model->desc(), [model](StepShape shape) { return model->build(shape); }, model->weights(), cpu));
  impl->cpu = backend.get();
  impl->backend = std::move(backend);
  return LanguageModel(std::move(impl));
}

Expected<LanguageModel> LanguageModelParts::load(const std::string& path, const LoadOptions& options,
                                                 const BackendFactory& factory) {
  DLLM_TRY(auto source, open_or_embedded(path));
  auto impl = std::make_unique<LanguageModel::Impl>();
  const Log log = options.warnings ? Log() : Log([](LogLevel, const std::string&) {});
  DLLM_TRY(impl->model, Model::load(std::move(source), log));
  DLLM_TRY(impl->backend, factory(*impl->model));
  return LanguageModel(std::move(impl));
}

Backend& LanguageModelParts::backend(LanguageModel& model) { return *model.impl_->backend; }

Expected<Generation> LanguageModel::generate(std::string_view prompt, const GenerateOptions& options,
                                             const StepCallback& on_step, std::stop_token stop) const {
  return generate({{"user", std::string(prompt)}}, options, on_step, std::move(stop));
}

Expected<Generation> LanguageModel::generate(const std::vector<ChatTurn>& turns, const GenerateOptions& options,
                                             const StepCallback& on_step, std::stop_token stop) const {
  DLLM_TRY(const auto ids, impl_->encode_turns(turns));
  return impl_->generate(ids, options, on_step, std::move(stop));
}

Expected<Generation> LanguageModel::generate_ids(const std::vector<std::int32_t>& prompt,
                                                 const GenerateOptions& options, const StepCallback& on_step,
                                                 std::stop_token stop) const {
  return impl_->generate(prompt, options, on_step, std::move(stop));
}

Expected<std::vector<Generation>> LanguageModel::generate_batch(const std::vector<std::vector<ChatTurn>>& conversations,
                                                                const GenerateOptions& options, std::int32_t batch,
                                                                const AnswerCallback& on_answer,
                                                                std::stop_token stop) const {
  std::vector<std::vector<TokenId>> prompts;
  for (const std::vector<ChatTurn>& turns : conversations) {
    DLLM_TRY(std::vector<TokenId> ids, impl_->encode_turns(turns));
    prompts.push_back(std::move(ids));
  }
  return impl_->generate_batch(prompts, options, batch, on_answer, std::move(stop));
}

Expected<std::vector<float>> LanguageModel::logits(const std::vector<std::int32_t>& ids, bool causal) const {
  const ModelDesc& desc = impl_->model->desc();
  if (ids.empty()) return Error{ErrorCode::kUsage, "no token ids are given", "--tokens", ""};
  if (static_cast<std::int64_t>(ids.size()) > desc.context_length)
    return Error{ErrorCode::kUsage, fmt::format("{} tokens exceed the context of {}", ids.size(), desc.context_length),
                 "--tokens", ""};
  SequenceStep step;
  const auto count = static_cast<Position>(ids.size());
  for (Position p = 0; p < count; ++p) {
    const TokenId id = ids[static_cast<std::size_t>(p)];
    if (id < 0 || id >= desc.vocab)
      return Error{ErrorCode::kUsage, fmt::format("token id {} is outside the vocabulary of {}", id, desc.vocab),
                   fmt::format("--tokens, position {}", p), ""};
    step.plan.rows.push_back({p, id});
    step.plan.scored.push_back(p);
  }
  step.plan.visible = {{0, count}};
  step.plan.causal_block = causal ? 1 : desc.causal_block;
  // What is not read causally is a canvas, to a model that tells them apart.
  step.plan.region = causal ? Region::kContext : Region::kCanvas;
  step.request.logits = true;
  const std::lock_guard lock(impl_->mutex);
  DLLM_TRY(const auto cache, impl_->backend->make_cache(count));
  step.cache = cache.get();
  DLLM_TRY(auto scores, impl_->backend->forward({&step, 1}));
  return std::move(scores.front().logits);
}

Expected<std::vector<double>> LanguageModel::masked_log_probs(const std::vector<std::int32_t>& ids,
                                                              const std::vector<std::int32_t>& masked, double cfg_scale,
                                                              std::int32_t prompt) const {
  const std::lock_guard lock(impl_->mutex);
  return dllm::masked_log_probs(*impl_->backend, ids, masked, cfg_scale, prompt);
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
  return impl_->encode_turns(turns);
}

Expected<void> LanguageModel::set_chat_template(const std::string& source) {
  DLLM_TRY(auto compiled, ChatTemplate::compile(source));
  impl_->own_template.emplace(std::move(compiled));
  return {};
}

bool LanguageModel::has_chat_template() const { return impl_->chat_template() != nullptr; }
std::int32_t LanguageModel::vocab_size() const { return static_cast<std::int32_t>(impl_->model->desc().vocab); }
std::int32_t LanguageModel::context_length() const {
  return static_cast<std::int32_t>(impl_->model->desc().context_length);
}
bool LanguageModel::autoregressive() const { return impl_->model->desc().autoregressive(); }
std::string LanguageModel::architecture() const { return impl_->model->desc().architecture; }
std::string LanguageModel::name() const { return impl_->model->desc().name; }
std::string LanguageModel::isa() const { return impl_->cpu == nullptr ? "" : std::string(impl_->cpu->isa()); }
std::int32_t LanguageModel::threads() const { return impl_->cpu == nullptr ? 0 : impl_->cpu->threads(); }

}  // namespace dllm
