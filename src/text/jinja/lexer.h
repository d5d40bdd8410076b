#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "text/jinja/ast.h"

namespace dllm::jinja {

enum class TokenType : std::uint8_t {
  kData,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  Place place;
  std::string text;  ///< data, name, operator, or the value of a string
  std::int64_t integer = 0;
  double real = 0;
};

/// Splits a template into tokens with the white space rules that transformers sets: trim_blocks, lstrip_blocks, one
/// trailing newline dropped. Comments are removed, raw blocks become data. The last token is kEnd.
Expected<std::vector<Token>> tokenize(std::string_view source);

}  // namespace dllm::jinja
