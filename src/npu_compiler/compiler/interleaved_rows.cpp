#include "base/to_size.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {

void interleave_rows(StepContext& c, std::int64_t count, std::int64_t group, std::span<const std::int64_t> first,
                     const std::function<void(std::span<const std::vector<Gp>>)>& body) {
  const auto walk = [&](std::int64_t from, std::int64_t trips, std::int64_t width) {
    if (trips == 0) return;
    std::vector<std::vector<Gp>> rows(to_size(width));
    for (std::int64_t g = 0; g < width; ++g)
      for (const std::int64_t row : first) rows[to_size(g)].push_back(c.e.reg(c.address(row + from + g)));
    c.e.loop(trips, [&] {
      body(rows);
      for (const std::vector<Gp>& row : rows)
        for (const Gp& pointer : row) c.e.add(pointer, pointer, width * c.vlen());
    });
  };
  walk(0, count / group, group);
  walk(count / group * group, count % group, 1);
}

}  // namespace dllm::npu
