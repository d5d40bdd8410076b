#pragma once

#include <memory>
#include <optional>
#include <string>

#include "serve/answer_reader.h"

namespace dllm::serve {

/// Version of Ollama's API whose fields these routes have; clients ask for it to know what a server understands.
inline constexpr std::string_view kOllamaVersion = "0.12.0";

/// A request of /api/chat or /api/generate under our own fields: `options` and `format` are translated, `model`,
/// `messages` and `prompt` are left out. A name that ends in ":latest" may also be one without it. Errors: kUsage.
Expected<Json> from_ollama(Fields& fields);

/// The content of a user's message with images in base64: parts, as messages have them (serve/images.h). `where`: of
/// the images. Errors: kUsage.
Expected<Json> content_with_images(const Json& message, const Json& images, const std::string& where);

/// `messages` of /api/chat as chat completions write them. Errors: kUsage.
Expected<Json> messages_from_ollama(const Json& list);

/// An error about one of our fields, told about Ollama's: "max_tokens" -> "options.num_predict".
Error in_ollama_fields(Error error);

/// Reads `model`: with and without ":latest" it is the same model. Errors: kUsage (another model, none).
Expected<void> read_ollama_model(const CallPtr& call, Fields& fields);

/// A name without ":latest".
std::string without_latest(const std::string& name);

/// Answers a route of Ollama's API that is not offered: why.
Expected<void> ollama_unsupported(const CallPtr& call);

// Loading and unloading, where the server has several models.
/// `keep_alive` of a request of Ollama's API, which is then no field any more: seconds (negative: for ever); absent:
/// not given. Errors: kUsage.
Expected<std::optional<double>> read_keep_alive(Call& call);
/// "1h30m", "300ms", "-1" (seconds), as Go writes durations; nullopt: it is none.
std::optional<double> parse_duration(std::string_view text);
/// A request to load or unload a model, and to do nothing else.
bool is_without_words(const Call& call);
void reply_unloaded(const CallPtr& call);

/// The log-probabilities of an answer's tokens, which come with its end.
struct OllamaLogs {
  bool wanted = false;
  std::vector<std::int32_t> shown{};  ///< control tokens that have a text
};

/// Answers of /api/chat (`chat`) and /api/generate: one JSON object, or one per line of a stream.
std::unique_ptr<AnswerFormat> ollama_format(const CallPtr& call, bool chat, AnswerReader reader, OllamaLogs logs);

}  // namespace dllm::serve
