#pragma once

#include "dllm/error.h"
#include "dllm/model.h"
#include "serve/json.h"
#include "serve/server.h"

namespace dllm::serve {

/// The options of a generation that a request's members give, over the server's. Every option of options_info() is a
/// field, by its key or by one of its flags' names with underscores (max_tokens, n_predict). Fields of other servers'
/// APIs that change no answer are read over; those that would, and are not supported, are errors, and so is every name
/// that nobody knows. Call last: all members that `fields` was not asked for are options. Errors: kUsage.
Expected<GenerateOptions> read_options(Fields& fields, const LanguageModel& model, const ServerOptions& server);

}  // namespace dllm::serve
