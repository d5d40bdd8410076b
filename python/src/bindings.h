#pragma once

#include <nanobind/nanobind.h>

namespace dllm::python {

// The parts of the module `dllm._dllm`, by file.
void bind_calls(nanobind::module_& module);
void bind_options(nanobind::module_& module);
void bind_answers(nanobind::module_& module);
void bind_hub(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_stream(nanobind::module_& module);
void bind_decoders(nanobind::module_& module);
void bind_comparison(nanobind::module_& module);
void bind_npu(nanobind::module_& module);

}  // namespace dllm::python
