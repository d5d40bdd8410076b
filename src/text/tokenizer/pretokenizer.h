#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

/// The chain of regular-expression splits that cuts text into words before BPE. Immutable, shareable.
class Pretokenizer {
 public:
  /// `rules` may be empty (all isolated). Errors (kInvalidFile) name the pattern and the offset in it.
  static Expected<Pretokenizer> compile(const std::vector<std::string>& patterns, const std::vector<SplitRule>& rules);

  ~Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;

  /// Appends the pieces of `text` (any bytes) to `pieces`, in order; they borrow from `text`. Runs of invalid UTF-8 are
  /// separate pieces that patterns do not see. If a pattern exceeds its match limit, the rest of the current piece is
  /// not split, so the result is the same on every machine.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Impl;
  explicit Pretokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace dllm
