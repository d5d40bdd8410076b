#pragma once

#include <nanobind/nanobind.h>

#include "dllm/options.h"

namespace dllm::python {

/// Option values by key, as the stubs name them.
using Dict = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;

/// Options from keyword arguments: any key of dllm.options(), and `stop`, a text or a list of texts. None: not given.
/// Raises UsageError.
GenerateOptions to_options(const Dict& given);

nanobind::object to_python(const OptionValue& value);
/// Errors: kUsage if Python's value has no counterpart.
Expected<OptionValue> to_value(const nanobind::handle& value, std::string_view key);

/// {"length": 128, …}
Dict to_dict(const ResolvedOptions& options);

}  // namespace dllm::python
