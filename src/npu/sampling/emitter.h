#pragma once

#include <fmt/format.h>

#include <string>

#include "npu/sampling/kernel.h"

namespace dllm::npu::sampling {

/// Assembly text under construction, indented by nesting.
class Emitter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += indent_ + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  /// `.loop`; a count of 0 emits nothing for the body.
  template <class F>
  void loop(const char* counter, std::int64_t count, F&& body) {
    if (count <= 0) return;
    line(".loop {}, {}", counter, count);
    nested(body);
    line(".endloop");
  }
  template <class F>
  void region(const char* name, F&& body) {
    line(".profile {}", name);
    nested(body);
    line(".endprofile");
  }
  std::string take() { return std::move(text_); }

 private:
  template <class F>
  void nested(F&& body) {
    indent_ += "  ";
    body();
    indent_.resize(indent_.size() - 2);
  }
  std::string text_, indent_;
};

// One file per form.
std::string published_text(const SamplingKernel& kernel, std::int64_t idle_instructions);
std::string chunked_text(const SamplingKernel& kernel);
std::string one_pass_text(const SamplingKernel& kernel);

}  // namespace dllm::npu::sampling
