#include "text/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/utf8.h"

namespace dllm {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

Error bad_merge(std::size_t rank, const std::string& merge, const std::string& why) {
  return {ErrorCode::kInvalidFile, fmt::format("merge {} '{}' {}", rank, replace_invalid_utf8(merge), why), "", ""};
}

}  // namespace

Expected<Bpe> Bpe::create(const TokenIndex& index, const std::vector<std::string>& merges, Unknown unknown) {
  Bpe bpe;
  bpe.unknown_ = unknown;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(static_cast<std::uint8_t>(byte));
    const auto token = index.find(encode_alphabet({&raw, 1}));
    bpe.byte_ids_[byte] = token == index.end() ? -1 : token->second;
  }
  DLLM_CHECK_OK(bpe.add_merges(index, merges));
  return bpe;
}

Expected<Bpe> Bpe::over_characters(const TokenIndex& index, const std::vector<std::string>& merges) {
  Bpe bpe;
  bpe.by_character_ = true;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto token = index.find(fmt::format("<0x{:02X}>", byte));
    if (token == index.end())
      return Error{ErrorCode::kInvalidFile, fmt::format("the vocabulary has no token <0x{:02X}>", byte), "",
                   "a vocabulary of characters falls back to all 256 bytes"};
    bpe.byte_ids_[byte] = token->second;
  }
  for (const auto& [text, id] : index)
    if (const Utf8Char c = utf8_at(text, 0); c.valid && c.size == text.size()) bpe.characters_.emplace(text, id);
  DLLM_CHECK_OK(bpe.add_merges(index, merges));
  return bpe;
}

Expected<void> Bpe::add_merges(const TokenIndex& index, const std::vector<std::string>& merges) {
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& merge = merges[rank];
    // The byte alphabet has no space, so the only one separates the parts.
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string::npos) {
      return bad_merge(rank, merge, "is not two tokens with a space between");
    }
    const auto left = index.find(merge.substr(0, space)), right = index.find(merge.substr(space + 1));
    if (left == index.end() || right == index.end()) return bad_merge(rank, merge, "names a token that does not exist");
    const auto result = index.find(left->first + right->first);
    if (result == index.end()) return bad_merge(rank, merge, "makes a token that does not exist");
    merges_.try_emplace(pair_key(left->second, right->second), Merge{static_cast<std::int32_t>(rank), result->second});
  }
  return {};
}

// As in Hugging Face's BPE, unknown bytes leave or become the unknown token before anything is merged.
void Bpe::split_bytes(std::string_view word, std::vector<TokenId>& ids) const {
  bool after_unknown = false;
  for (const char byte : word) {
    const TokenId id = byte_ids_[static_cast<std::uint8_t>(byte)];
    if (id >= 0) {
      ids.push_back(id);
    } else if (unknown_.id && !(after_unknown && unknown_.fuse)) {
      ids.push_back(*unknown_.id);
    }
    after_unknown = id < 0;
  }
}

std::string Bpe::missing_bytes() const {
  std::string bytes;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (byte_ids_[byte] < 0) bytes += static_cast<char>(static_cast<std::uint8_t>(byte));
  return bytes;
}

void Bpe::split_characters(std::string_view word, std::vector<TokenId>& ids) const {
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Char c = utf8_at(word, at);
    const auto known = c.valid ? characters_.find(std::string(word.substr(at, c.size))) : characters_.end();
    if (known != characters_.end()) {
      ids.push_back(known->second);
    } else {
      for (const char byte : word.substr(at, c.size)) ids.push_back(byte_ids_[static_cast<std::uint8_t>(byte)]);
    }
    at += c.size;
  }
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

namespace {

// Heap order: the lowest rank on top; ties go to the leftmost.
struct Later {
  template <class Candidate>
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

}  // namespace

void Bpe::propose(const std::vector<Symbol>& symbols, std::int32_t left, std::vector<Candidate>& heap) const {
  if (left < 0) return;
  const Symbol& symbol = symbols[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return;
  const TokenId right_id = symbols[static_cast<std::size_t>(symbol.next)].id;
  if (const Merge* merge = find(symbol.id, right_id)) {
    heap.push_back({merge->rank, left, symbol.id, right_id});
    std::push_heap(heap.begin(), heap.end(), Later{});
  }
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<TokenId> ids;
  ids.reserve(word.size());
  if (by_character_)
    split_characters(word, ids);
  else
    split_bytes(word, ids);
  const auto count = static_cast<std::int32_t>(ids.size());
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  std::vector<Candidate> heap;
  for (std::int32_t i = 0; i + 1 < count; ++i) propose(symbols, i, heap);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), Later{});
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<std::size_t>(best.left)];
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.id != best.right_id) continue;
    left.id = find(best.left_id, best.right_id)->result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.left;
    propose(symbols, left.previous, heap);
    propose(symbols, best.left, heap);
  }
  for (std::int32_t i = 0; i >= 0 && i < count; i = symbols[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace dllm
