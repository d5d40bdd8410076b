#pragma once

#include <utility>

#include "dllm/error.h"

#define DLLM_CONCAT_IMPL(a, b) a##b
#define DLLM_CONCAT(a, b) DLLM_CONCAT_IMPL(a, b)

/// DLLM_TRY(declaration, expression): declares from the value of an Expected, or returns its Error.
#define DLLM_TRY(declaration, ...)                                                                     \
  auto DLLM_CONCAT(try_, __LINE__) = (__VA_ARGS__);                                                    \
  if (!DLLM_CONCAT(try_, __LINE__).has_value()) return std::move(DLLM_CONCAT(try_, __LINE__)).error(); \
  declaration = *std::move(DLLM_CONCAT(try_, __LINE__))

/// DLLM_CHECK_OK(expression): returns the Error of an Expected<void>, if there is one.
#define DLLM_CHECK_OK(...)                                                                        \
  do {                                                                                            \
    if (auto check_ok = (__VA_ARGS__); !check_ok.has_value()) return std::move(check_ok).error(); \
  } while (false)
