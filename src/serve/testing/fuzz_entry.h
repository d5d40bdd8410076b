#pragma once

#include <string_view>

namespace dllm::serve {

/// The body of fuzz/fuzz_http.cpp, which a test replays over its corpus. The text is a request as HTTP writes it (a
/// line with method and path, header lines, an empty line, the body), without the parts that Boost.Beast parses. Any
/// request is answered at most once, never with an internal error, and refusals are JSON with a reason. The embedded
/// model computes two passes of those that are accepted; then the client goes away.
void fuzz_http(std::string_view text);

}  // namespace dllm::serve
