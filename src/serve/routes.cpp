// The table of routes.
#include "serve/api.h"
#include "serve/page.h"

namespace dllm::serve {

// What answers them, by file. A new route needs its file, a line here and one in the table.
Expected<void> chat_completions(const CallPtr& call);
Expected<void> completions(const CallPtr& call);
Expected<void> infill(const CallPtr& call);
Expected<void> llama_completion(const CallPtr& call);
Expected<void> messages(const CallPtr& call);
Expected<void> count_tokens(const CallPtr& call);
Expected<void> responses(const CallPtr& call);
Expected<void> score(const CallPtr& call);
Expected<void> choose(const CallPtr& call);
Expected<void> tokenize(const CallPtr& call);
Expected<void> detokenize(const CallPtr& call);
Expected<void> apply_template(const CallPtr& call);
Expected<void> tokenizer_info(const CallPtr& call);
Expected<void> health(const CallPtr& call);
Expected<void> models(const CallPtr& call);
Expected<void> one_model(const CallPtr& call);
Expected<void> ollama_chat(const CallPtr& call);
Expected<void> ollama_generate(const CallPtr& call);
Expected<void> ollama_tags(const CallPtr& call);
Expected<void> ollama_running(const CallPtr& call);
Expected<void> ollama_show(const CallPtr& call);
Expected<void> ollama_version(const CallPtr& call);
Expected<void> ollama_pull(const CallPtr& call);
Expected<void> ollama_unsupported(const CallPtr& call);
Expected<void> metrics(const CallPtr& call);
Expected<void> list_options(const CallPtr& call);
Expected<void> props(const CallPtr& call);
Expected<void> slots(const CallPtr& call);

const std::vector<Route>& routes() {
  static const std::vector<Route> all = {
      {"POST", "/v1/chat/completions", chat_completions},
      {"POST", "/v1/completions", completions},
      {"POST", "/v1/messages", messages, Dialect::kAnthropic},
      {"POST", "/v1/messages/count_tokens", count_tokens, Dialect::kAnthropic},
      {"POST", "/v1/responses", responses},
      {"POST", "/infill", infill},
      {"POST", "/completion", llama_completion},
      {"POST", "/v1/score", score},
      {"POST", "/v1/choose", choose},
      {"POST", "/tokenize", tokenize},
      {"POST", "/detokenize", detokenize},
      {"POST", "/apply-template", apply_template},
      {"GET", "/tokenizer_info", tokenizer_info},
      {"GET", "/v1/models", models, Dialect::kOpenAi, Answers::kServer},
      {"GET", "/v1/models/", one_model, Dialect::kOpenAi, Answers::kServer, /*open=*/false, /*prefix=*/true},
      {"GET", "/health", health, Dialect::kOpenAi, Answers::kAtOnce, /*open=*/true},
      {"GET", "/metrics", metrics, Dialect::kOpenAi, Answers::kAtOnce},
      {"GET", "/options", list_options},
      {"GET", "/props", props},
      {"GET", "/slots", slots, Dialect::kOpenAi, Answers::kAtOnce},
      {"POST", "/api/chat", ollama_chat, Dialect::kOllama},
      {"POST", "/api/generate", ollama_generate, Dialect::kOllama},
      {"POST", "/api/show", ollama_show, Dialect::kOllama, Answers::kServer},
      {"GET", "/api/tags", ollama_tags, Dialect::kOllama, Answers::kServer},
      {"GET", "/api/ps", ollama_running, Dialect::kOllama, Answers::kAtOnce},
      {"GET", "/api/version", ollama_version, Dialect::kOllama, Answers::kAtOnce},
      {"POST", "/api/pull", ollama_pull, Dialect::kOllama, Answers::kServer},
      // The rest of Ollama's API, so that its clients read why and not only "not found".
      {"POST", "/api/embed", ollama_unsupported, Dialect::kOllama, Answers::kAtOnce},
      {"POST", "/api/embeddings", ollama_unsupported, Dialect::kOllama, Answers::kAtOnce},
      {"POST", "/api/push", ollama_unsupported, Dialect::kOllama, Answers::kAtOnce},
      {"POST", "/api/create", ollama_unsupported, Dialect::kOllama, Answers::kAtOnce},
      {"POST", "/api/copy", ollama_unsupported, Dialect::kOllama, Answers::kAtOnce},
      {"DELETE", "/api/delete", ollama_unsupported, Dialect::kOllama, Answers::kAtOnce},
      // The page contains nothing of the model, and prompts for the key itself.
      {"GET", "/", page, Dialect::kOpenAi, Answers::kAtOnce, /*open=*/true},
  };
  return all;
}

}  // namespace dllm::serve
