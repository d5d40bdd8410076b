#include "backend/failed_pass.h"

namespace dllm {

void invalidate_rows(std::span<const SequenceStep> batch) noexcept {
  for (const SequenceStep& writer : batch)
    for (const PlanRow& row : writer.plan.rows)
      for (const SequenceStep& reader : batch)
        if (reader.cache == writer.cache ||
            (row.position < reader.cache->capacity() && &reader.cache->holder(row.position) == writer.cache))
          reader.cache->invalidate({row.position, row.position + 1});
}

}  // namespace dllm
