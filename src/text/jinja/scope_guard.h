#pragma once

#include <utility>

#include "text/jinja/interpreter.h"

namespace dllm::jinja {

/// Counts nesting during its lifetime.
class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

/// Makes `inner` the current scope during its lifetime.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(ScopePtr& scope, ScopePtr inner) : scope_(scope), outer_(std::exchange(scope, std::move(inner))) {}
  ~ScopeGuard() { scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  ScopePtr& scope_;
  ScopePtr outer_;
};

}  // namespace dllm::jinja
