#include <Vanswer.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/core_executor_run.h"
#include "answer/core_parameters.h"
#include "base/try.h"

namespace dllm::rtl {

Expected<CoreShape> answer_device(std::vector<npu::Override> overrides) {
  // What the model was built with: key=value,key=value.
  for (std::string_view text = DLLM_RTL_SET; !text.empty();) {
    const std::size_t end = std::min(text.find(','), text.size());
    DLLM_TRY(npu::Override parsed, npu::parse_override(text.substr(0, end)));
    overrides.push_back(std::move(parsed));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  DLLM_TRY(CoreParameters parameters, core_parameters(DLLM_RTL_DEVICE, overrides));
  parameters.shape.make = make_executor<Vanswer>;
  return std::move(parameters.shape);
}

}  // namespace dllm::rtl
