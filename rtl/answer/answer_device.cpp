#include <Vanswer.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/core_executor_run.h"
#include "answer/core_parameters.h"
#include "base/try.h"

namespace dllm::rtl {

Expected<CoreShape> answer_device(const std::vector<npu::Override>& overrides) {
  // What the model was built with: key=value,key=value. Later ones replace earlier ones.
  std::vector<npu::Override> all;
  for (std::string_view text = DLLM_RTL_SET; !text.empty();) {
    const std::size_t end = std::min(text.find(','), text.size());
    DLLM_TRY(npu::Override parsed, npu::parse_override(text.substr(0, end)));
    all.push_back(std::move(parsed));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  all.insert(all.end(), overrides.begin(), overrides.end());
  DLLM_TRY(CoreParameters parameters, core_parameters(DLLM_RTL_DEVICE, all));
  parameters.shape.make = make_executor<Vanswer>;
  return std::move(parameters.shape);
}

}  // namespace dllm::rtl
