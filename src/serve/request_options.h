#pragma once

#include "dllm/error.h"
#include "dllm/model.h"
#include "serve/json.h"
#include "serve/server.h"

namespace dllm::serve {

/// What `max_tokens`, by any of its names, is to a route.
enum class Bound {
  kCuts,      ///< the most tokens of the answer (AnswerLength)
  kIsCanvas,  ///< exactly how many are generated, where text is given after them
};

/// Reads generation options from a request's members, on top of the server's. Every option of options_info() is a
/// field, named by its key or by one of its flags with underscores (canvas_length, n_predict). Fields of other servers'
/// APIs that do not change answers are ignored and named as such; those that would, and are not supported, are errors,
/// and so are unknown names. A bound above the server's limit is lowered to it. Call it last: all unread members of
/// `fields` are options. Errors: kUsage.
Expected<GenerateOptions> read_options(Fields& fields, const LanguageModel& model, const ServerOptions& server,
                                       Bound bound = Bound::kCuts);

}  // namespace dllm::serve
