#include "serve/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/try.h"
#include "serve/conversation.h"
#include "serve/foreign_fields.h"

namespace dllm::serve {
namespace {

std::string kind_of(const Json& part) {
  const Json type = part.is_object() ? part.value("type", Json()) : Json();
  return type.is_string() ? type.get<std::string>() : "";
}

bool is_image(const Json& part) {
  const std::string kind = kind_of(part);
  return kind == "image_url" || kind == "input_image" || kind == "image";
}

Error not_base64(const std::string& where) {
  return {ErrorCode::kUsage, "the image is not in base64", where, "give the bytes of a PNG, JPEG or WebP file"};
}

/// "data:image/png;base64,..." (RFC 2397).
Expected<std::string> bytes_of_url(const std::string& url, const std::string& where) {
  constexpr std::string_view kData = "data:", kBase64 = ";base64,";
  if (!url.starts_with(kData)) {
    const std::string scheme = url.substr(0, std::min<std::size_t>(url.find(':'), 16));
    return Error{ErrorCode::kUsage, fmt::format("the server fetches no images ('{}:')", scheme), where,
                 "send the image itself: \"data:image/png;base64,...\""};
  }
  const std::size_t comma = url.find(kBase64);
  if (comma == std::string::npos) return not_base64(where);
  auto bytes = decode_base64(std::string_view(url).substr(comma + kBase64.size()));
  if (!bytes) return not_base64(where);
  return *std::move(bytes);
}

/// image_url: a text, or an object with "url"; the wish for a resolution is the model's own matter.
Expected<std::string> bytes_of_openai(const Json& part, const std::string& where, Ignored* ignored) {
  Fields fields(part, ignored, where);
  for (const char* known : {"type", "id"}) fields.find(known);
  fields.ignore("cache_control");
  fields.ignore("detail");
  const Json* const url = fields.find("image_url");
  DLLM_CHECK_OK(fields.done());
  if (url != nullptr && url->is_string()) return bytes_of_url(url->get<std::string>(), where);
  if (url == nullptr || !url->is_object()) return wrong_type(where, "an image with an \"image_url\"");
  Fields inner(*url, ignored, where + ".image_url");
  inner.ignore("detail");
  DLLM_TRY(const auto text, inner.text("url"));
  DLLM_CHECK_OK(inner.done());
  if (!text) return wrong_type(where, "an image with a \"url\"");
  return bytes_of_url(*text, where);
}

Expected<std::string> bytes_of_anthropic(const Json& block, const std::string& where, Ignored* ignored) {
  Fields fields(block, ignored, where);
  fields.find("type");
  fields.ignore("cache_control");
  const Json* const source = fields.find("source");
  DLLM_CHECK_OK(fields.done());
  if (source == nullptr || !source->is_object()) return wrong_type(where, "an image with a \"source\"");
  Fields inner(*source, ignored, where + ".source");
  DLLM_TRY(const auto type, inner.text("type"));
  DLLM_TRY(const auto data, inner.text("data"));
  inner.find("media_type");  // the bytes say it
  if (type.value_or("") != "base64")
    return Error{ErrorCode::kUsage, fmt::format("a source of the type '{}'", type.value_or("")), where + ".source",
                 "send the image itself, with the type \"base64\""};
  DLLM_CHECK_OK(inner.done());
  auto bytes = decode_base64(data.value_or(""));
  if (!bytes || bytes->empty()) return not_base64(where);
  return *std::move(bytes);
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0, padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos || padding > 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (++count % 4 == 0)
      for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(bits >> shift & 0xff));
  }
  const int rest = count % 4;
  if (rest == 1 || (padding > 0 && (rest == 0 || rest + padding != 4))) return std::nullopt;
  if (rest == 2) bytes.push_back(static_cast<char>(bits >> 4 & 0xff));
  if (rest == 3)
    for (const int shift : {10, 2}) bytes.push_back(static_cast<char>(bits >> shift & 0xff));
  return bytes;
}

bool has_images(const Json& content) { return content.is_array() && std::ranges::any_of(content, is_image); }

bool may_have_images(const Json& body) {
  const auto is_or_holds_image = [](const Json& part) {  // in a tool's result
    if (!part.is_object()) return false;
    const auto content = part.find("content");
    return is_image(part) || (content != part.end() && has_images(*content));
  };
  const auto has_some = [](const Json& holder) {  // of Ollama's, beside a text
    const auto images = holder.find("images");
    return images != holder.end() && !images->empty();
  };
  constexpr const char* kContents[] = {"content", "output"};
  const auto message_has_some = [&](const Json& message) {
    if (!message.is_object()) return false;
    return has_some(message) || std::ranges::any_of(kContents, [&](const char* name) {
             const auto content = message.find(name);
             return content != message.end() && content->is_array() && std::ranges::any_of(*content, is_or_holds_image);
           });
  };
  if (!body.is_object()) return false;
  if (has_some(body)) return true;
  constexpr const char* kLists[] = {"messages", "input"};
  return std::ranges::any_of(kLists, [&](const char* name) {
    const auto list = body.find(name);
    return list != body.end() && list->is_array() && std::ranges::any_of(*list, message_has_some);
  });
}

Expected<Json> parts_with_images(const ServedModel& served, const Json& content, const std::string& where,
                                 Ignored* ignored, std::vector<std::string>& images) {
  if (!served.model.reads_images())
    return Error{ErrorCode::kUsage, "the model reads text only", where,
                 "give parts of type \"text\", or serve the model with its vision tower (--mmproj)"};
  Json parts = Json::array();
  for (const Json& part : content) {
    if (!is_image(part)) {
      DLLM_TRY(const std::string text, content_text(Json::array({part}), where, ignored));
      parts.push_back({{"type", "text"}, {"text", text}});
      continue;
    }
    DLLM_TRY(std::string bytes, kind_of(part) == "image" ? bytes_of_anthropic(part, where, ignored)
                                                         : bytes_of_openai(part, where, ignored));
    images.push_back(std::move(bytes));
    parts.push_back({{"type", "image"}});
  }
  return parts;
}

}  // namespace dllm::serve
