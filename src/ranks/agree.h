#pragma once

#include <optional>

#include "dllm/error.h"
#include "ranks/communicator.h"

namespace dllm {

/// Tells all ranks whether each has succeeded, and gives the error of the first that has not. Errors: those of
/// Communicator.
Expected<std::optional<Error>> first_failure(Communicator& ranks, const Expected<void>& own);
/// The same, whose error is that of the first.
Expected<void> agree(Communicator& ranks, const Expected<void>& own);

}  // namespace dllm
