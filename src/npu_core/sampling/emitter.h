#pragma once

#include <fmt/format.h>

#include <string>

#include "npu_core/sampling/kernel.h"

namespace dllm::npu::sampling {

/// Assembly text under construction, indented by nesting.
class Emitter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += indent_ + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  /// `.loop`; for a count of 0 the body is not emitted.
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

/// Loads the masks of all batch items into VRAM, one vector per transfer; then sets transfers up for logits: base a1,
/// their scales, `preload` vectors each. Uses gp1, gp2, gp3, gp12 and a2.
inline void load_masks(Emitter& e, const SamplingKernel& k) {
  const SamplingLayout& at = k.layout;
  e.line("li gp3, {}", at.masks);
  e.line("C_SET_ADDR_REG a2, gp0, gp3");
  e.line("li gp3, {}", at.masks_scales);
  e.line("C_SET_SCALE_REG gp3");
  e.line("li gp3, 1");
  e.line("C_SET_CSR gp3, prefetch_v_rows");
  e.line("li gp1, {}", static_cast<std::int64_t>(at.mask_row) * k.machine.vlen);
  e.line("li gp2, 0");
  e.loop("gp12", k.shape.batch, [&] {
    e.line("H_PREFETCH_V gp1, gp2, a2, 0, 0");
    e.line("S_ADDI_INT gp1, gp1, {}", k.machine.vlen);
    e.line("S_ADDI_INT gp2, gp2, {}", k.machine.vlen);
  });
  e.line("C_SET_ADDR_REG a1, gp0, gp0");
  e.line("li gp3, {}", at.logits_scales);
  e.line("C_SET_SCALE_REG gp3");
  e.line("li gp3, {}", k.shape.preload);
  e.line("C_SET_CSR gp3, prefetch_v_rows");
}

/// One vector of the search for the maximum f1: gp3 is its address, gp4 the index of its first lane, gp5 the arg-max.
inline void find_maximum(Emitter& e, std::int64_t vlen) {
  e.line("V_RED_MAX_IDX gp5, gp3, gp4, f1");
  e.line("S_ADDI_INT gp3, gp3, {}", vlen);
  e.line("S_ADDI_INT gp4, gp4, {}", vlen);
}

/// One vector of the sum f2 of exponentials, relative to the maximum f1; gp3 is its address.
inline void add_exponentials(Emitter& e, std::int64_t vlen) {
  e.line("V_SUB_VF gp3, gp3, f1, 0, 0");
  e.line("V_EXP_V gp3, gp3, 0");
  e.line("V_RED_SUM f2, gp3, 0");
  e.line("S_ADDI_INT gp3, gp3, {}", vlen);
}

/// Moves on to the next batch item: gp6 tokens, gp7 predictions, gp8 the row of its mask, gp14 its count.
inline void next_item(Emitter& e, const SamplingKernel& k) {
  e.line("S_ADDI_INT gp6, gp6, {}", k.shape.block);
  e.line("S_ADDI_INT gp7, gp7, {}", k.shape.block);
  e.line("S_ADDI_INT gp8, gp8, {}", k.machine.vlen);
  e.line("S_ADDI_INT gp14, gp14, 1");
}

// One file per form.
std::string published_text(const SamplingKernel& kernel, std::int64_t idle_instructions);
std::string chunked_text(const SamplingKernel& kernel);
std::string one_pass_text(const SamplingKernel& kernel);

}  // namespace dllm::npu::sampling
