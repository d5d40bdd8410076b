#include "serve/page.h"

#include <fmt/format.h>

#include <vector>

#include "base/hash.h"

// The bytes of web/ between two symbols each, and their list: made by CMakeLists.txt.
#include "serve/page_symbols.inc"

namespace dllm::serve {
namespace {

struct PageFile {
  std::string_view path, type, content;
  std::string tag;  ///< a fingerprint: what a browser keeps is asked for by it
};

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

const std::vector<PageFile>& page_files() {
  static const std::vector<PageFile> all = [] {
    std::vector<PageFile> files = {
#define DLLM_PAGE_FILE(path, type, symbol) {path, type, between(symbol##_begin, symbol##_end), ""},
#include "serve/page_files.inc"
#undef DLLM_PAGE_FILE
    };
    for (PageFile& file : files) file.tag = fmt::format("\"{:016x}\"", Fnv1a().add(file.content).value());
    return files;
  }();
  return all;
}

/// The page loads its own files and calls its own server, and nothing else. Scripts in attributes, inline styles,
/// frames, forms and plug-ins are off, and with trusted types no text can become markup or code, whatever a model says.
constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace

Expected<void> page(const CallPtr& call) {
  const HttpRequest& request = call->exchange->request();
  const std::string_view path = request.path;
  for (const PageFile& file : page_files()) {
    if (file.path != path) continue;
    HttpResponse response{.type = std::string(file.type),
                          .headers = {{"ETag", file.tag},
                                      // Kept, and asked for again each time: the next version has the same names.
                                      {"Cache-Control", "no-cache"},
                                      {"Content-Security-Policy", std::string(kPagePolicy)},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"Cross-Origin-Opener-Policy", "same-origin"},
                                      {"Cross-Origin-Resource-Policy", "same-origin"}}};
    if (request.header("if-none-match").find(file.tag) != std::string_view::npos)
      response.status = 304;
    else
      response.body = std::string(file.content);
    call->reply(std::move(response));
    return {};
  }
  call->fail(ApiError{404, "there is no such path", "", ""});
  return {};
}

}  // namespace dllm::serve
