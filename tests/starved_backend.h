#pragma once

#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace dllm::test {

/// Finds no memory for a pass, if it `starves`.
class StarvedBackend final : public Backend {
 public:
  explicit StarvedBackend(std::unique_ptr<Backend> own, bool starves = true)
      : own_(std::move(own)), starves_(starves) {}
  const ModelDesc& desc() const override { return own_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return own_->make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    if (starves_) throw std::bad_alloc();
    return own_->forward(batch);
  }

 private:
  std::unique_ptr<Backend> own_;
  bool starves_;
};

}  // namespace dllm::test
