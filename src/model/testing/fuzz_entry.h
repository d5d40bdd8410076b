#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/log.h"
#include "format/gguf.h"
#include "format/mapped_file.h"
#include "format/safetensors.h"
#include "model/hf_config.h"
#include "model/hf_scaled.h"
#include "model/model.h"

/// The bodies of fuzz targets, which a test replays over their corpora.
namespace dllm {

/// Any text is a config.json or gives an error; its values are read as every type.
inline void fuzz_config(std::string_view text) {
  const auto config = HfConfig::parse(std::string(text), "input");
  if (!config) {
    if (config.error().what.empty()) __builtin_trap();
    return;
  }
  (void)config->architecture();
  for (const auto& [key, value] : config->json().items()) {
    (void)config->integer(key);
    (void)config->number_or(key, 0);
    (void)config->boolean_or(key, false);
    (void)config->string_or(key, "");
    (void)config->optional_integer(key);
  }
}

/// Any safetensors file whose metadata have a config.json gives decoded matrices of their full size, or an error.
inline void fuzz_scaled(std::span<const std::byte> bytes) {
  const auto files = Safetensors::parse(MappedFile::wrap(bytes, "input"));
  if (!files) return;
  const auto text = files->metadata().find("config");
  const auto config = HfConfig::parse(text == files->metadata().end() ? "{}" : text->second, "input");
  if (!config) return;
  const auto decoded = decode_scaled(*files, *config, [](std::string_view) { return false; });
  if (!decoded) {
    if (decoded.error().what.empty()) __builtin_trap();
    return;
  }
  for (const SafeTensor& tensor : decoded->tensors)
    if (static_cast<std::int64_t>(tensor.data.size()) != codec(tensor.type).row_bytes(element_count(tensor.shape)))
      __builtin_trap();
}

/// Any GGUF file that parses is a model that can run, or gives an error: metadata, shapes, tokenizer, template, graph.
inline void fuzz_model(std::span<const std::byte> bytes) {
  auto file = GgufFile::parse(MappedFile::wrap(bytes, "input"));
  if (!file) return;
  auto source = source_from_gguf(*std::move(file));
  if (!source) return;
  const auto model = Model::load(*std::move(source), Log([](LogLevel, const std::string&) {}));
  if (!model) {
    if (model.error().what.empty()) __builtin_trap();
    return;
  }
  (void)(*model)->build({1, 1});
}

}  // namespace dllm
