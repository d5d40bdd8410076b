#include "serve/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "dllm/options.h"
#include "dllm/scheduler.h"
#include "serve/json.h"

namespace dllm::serve {
namespace {

constexpr std::string_view kModelField = "model";

const OptionInfo* option_of_flag(std::string_view flag) {
  const auto has = [flag](const OptionInfo& info) { return std::ranges::count(info.flags, flag) > 0; };
  for (const OptionInfo& info : options_info().common)
    if (has(info)) return &info;
  for (const PartInfo& part : options_info().parts) {
    if (has(part.selector)) return &part.selector;
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& info : method.options)
        if (has(info)) return &info;
  }
  return nullptr;
}

bool is_flag_char(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }

std::string_view type_of(int status, Dialect dialect) {
  const bool anthropic = dialect == Dialect::kAnthropic;
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return anthropic ? "not_found_error" : "invalid_request_error";
    case 413:
      return anthropic ? "request_too_large" : "invalid_request_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return anthropic ? "overloaded_error" : "server_error";
    default:
      return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
  }
}

int status_of(const Error& error) {
  if (error.where == kQueueFull) return 429;
  if (error.where == kDeadline) return 504;
  switch (error.code) {
    case ErrorCode::kUsage:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kResource:
    case ErrorCode::kCancelled:
      return 503;
    case ErrorCode::kInvalidFile:
    case ErrorCode::kIo:
    case ErrorCode::kMismatch:
      return 500;
  }
  return 500;
}

/// Names and texts of requests may be in an error, and may be long.
Error short_of(Error error) {
  constexpr std::size_t kLongest = 1000;
  for (std::string* text : {&error.what, &error.where, &error.hint})
    if (text->size() > kLongest) text->replace(kLongest, text->npos, "...");
  return error;
}

}  // namespace

std::string in_fields(std::string text) {
  for (std::size_t at = 0; (at = text.find("-", at)) != std::string::npos;) {
    const bool begins = at == 0 || !is_flag_char(text[at - 1]);
    std::size_t end = at;
    while (end < text.size() && is_flag_char(text[end])) ++end;
    const OptionInfo* info = begins ? option_of_flag(std::string_view(text).substr(at, end - at)) : nullptr;
    if (info != nullptr) {
      // Requests ask for calls with a field of another name.
      const std::string field = info->key == "tool_calls" ? "tool_choice" : info->key;
      text.replace(at, end - at, field);
      at += field.size();
    } else {
      at = end > at ? end : at + 1;
    }
  }
  return text;
}

ApiError api_error(const Error& error) {
  ApiError result;
  result.status = status_of(error);
  Error told = short_of(error);
  // A failure of the server's own: the place is a file of its, which is nobody's business.
  if (result.status >= 500 && error.where != kDeadline) {
    told.where.clear();
    told.hint.clear();
    if (error.code != ErrorCode::kResource && error.code != ErrorCode::kCancelled) told.what = "an error of the server";
    if (error.code == ErrorCode::kIo) {  // FileWatch finds out what has happened to it
      told.what = "a file of the server has changed: it is being compared with what was loaded";
      result.status = 503;
    }
    result.message = told.what;
    return result;
  }
  result.param = in_fields(told.where);
  if (error.where == kQueueFull || error.where == kDeadline) {
    result.code = error.where == kQueueFull ? "queue_full" : "timeout";
    result.param.clear();
    told.where.clear();
  }
  if (error.where == kModelField && error.what.find("is not served") != std::string::npos) {
    result.status = 404;
    result.code = "model_not_found";
  }
  if (error.what.find("exceed the context") != std::string::npos) result.code = "context_length_exceeded";
  result.message = in_fields(told.message());
  return result;
}

Error unknown_model(const std::string& name, const std::vector<std::string>& served) {
  std::string hint = "no model is: put one into the folder, or `dllm pull` it";
  if (served.size() == 1) hint = "give '" + served.front() + "', or leave the field out";
  if (served.size() > 1) hint = fmt::format("give one of '{}'", fmt::join(served, "', '"));
  return {ErrorCode::kUsage, fmt::format("'{}' is not served here", name), std::string(kModelField), std::move(hint)};
}

nlohmann::ordered_json error_json(const ApiError& error, Dialect dialect) {
  const std::string type(type_of(error.status, dialect));
  if (dialect == Dialect::kAnthropic)
    return {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
  if (dialect == Dialect::kOllama) return {{"error", error.message}};
  nlohmann::ordered_json body = {{"message", error.message}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (!error.param.empty()) body["param"] = error.param;
  if (!error.code.empty()) body["code"] = error.code;
  return {{"error", std::move(body)}};
}

HttpResponse error_response(const ApiError& error, Dialect dialect, int retry_seconds) {
  HttpResponse response{.status = error.status, .body = dump(error_json(error, dialect))};
  if (error.status == 429 || error.status == 503)
    response.headers.emplace_back("Retry-After", std::to_string(retry_seconds));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace dllm::serve
