#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/json.h"
#include "serve/served_model.h"

namespace dllm::serve {

/// The bytes that a text in base64 (RFC 4648, 4) stands for; line breaks are skipped. nullopt: it is none.
std::optional<std::string> decode_base64(std::string_view text);

/// Whether a message's content is a list with an image: a part of OpenAI's (image_url, input_image) or a block of
/// Anthropic's (image).
bool has_images(const Json& content);

/// Whether a request's body has images in some API's form: reading them takes long.
bool may_have_images(const Json& body);

/// The parts of such a content as chat templates have them: {"type": "image"}, whose bytes are added to `images`, and
/// {"type": "text"}. Images are data: URLs or base64: the server fetches nothing. Errors: kUsage (the model reads no
/// images; an address elsewhere; other parts).
Expected<Json> parts_with_images(const ServedModel& served, const Json& content, const std::string& where,
                                 Ignored* ignored, std::vector<std::string>& images);

}  // namespace dllm::serve
