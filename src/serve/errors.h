#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "serve/http.h"

namespace dllm::serve {

/// Which API's error format is used.
enum class Dialect { kOpenAi, kAnthropic, kOllama };

/// An error as a client sees it.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  ///< the request's field; empty: none
  std::string code;   ///< "context_length_exceeded"; empty: none
};

/// Options are named by their fields, not by their flags.
ApiError api_error(const Error& error);

/// Errors that have their own HTTP status.
/// A 404. `served`: the names of all models that may be asked for.
Error unknown_model(const std::string& name, const std::vector<std::string>& served);

nlohmann::ordered_json error_json(const ApiError& error, Dialect dialect);
/// Adds Retry-After where the client may try again.
HttpResponse error_response(const ApiError& error, Dialect dialect, int retry_seconds = 1);

/// `text` with every flag of a generation's options replaced by the field's name: "--top-p" -> "top_p".
std::string in_fields(std::string text);

}  // namespace dllm::serve
