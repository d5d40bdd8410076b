#pragma once

#include <string>
#include <vector>

namespace dllm {

/// Texts on which tokenizers differ: 200 in every version, the same ones everywhere. Of text i and a 64-bit state s =
/// 2i + 1, its pieces: s = 6364136223846793005 s + 1442695040888963407 mod 2^64, r = s / 2^33; first r mod 20 + 1
/// pieces, then each piece is the one at r modulo their number.
std::vector<std::string> verify_texts();

/// Questions of a user that a report answers: arithmetic, code, facts, another script. The same ones in every version.
std::vector<std::string> verify_prompts();

}  // namespace dllm
