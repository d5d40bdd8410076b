#include <algorithm>
#include <cstddef>

#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

namespace dllm {

std::string StreamDecoder::push(TokenId id) {
  if (!with_special_ && tokenizer_.is_control(id) && std::ranges::count(shown_, id) == 0) return {};
  pending_ += tokenizer_.bytes(id);
  // Only the last three bytes can belong to an unfinished character.
  std::size_t ready = pending_.size();
  for (std::size_t i = pending_.size() - std::min<std::size_t>(pending_.size(), 3); i < pending_.size(); ++i) {
    if ((static_cast<unsigned char>(pending_[i]) & 0xC0) == 0x80) continue;
    const Utf8Char c = utf8_at(pending_, i);
    if (c.truncated && i + c.size == pending_.size()) {
      ready = i;
      break;
    }
  }
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, ready));
  pending_.erase(0, ready);
  return text;
}

std::string StreamDecoder::flush() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace dllm
