// The functions that a page calls (web/src/wasm/engine.ts). Each leaves a text, which text_begin() and text_size() give
// and the next call replaces. Bytes and texts go in through memory of dllm_allocate(). One thread calls them.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "browser/page_server.h"

namespace dllm::browser {
namespace {

/// What the page talks to. Made at the first call, so that nothing depends on the order of constructors.
struct Page {
  PageServer server;
  std::string text;
};

Page& page() {
  static Page only;
  return only;
}

/// Lost memory must not end the program: the page shows what happened.
template <class Call>
int guarded(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    page().text = error_text({ErrorCode::kResource, "the browser gives no more memory", "",
                              "WebAssembly has 4 GiB at most: choose a smaller model or a shorter canvas"});
  } catch (const std::exception& error) {
    page().text = error_text({ErrorCode::kResource, error.what(), "", ""});
  }
  return 500;
}

}  // namespace
}  // namespace dllm::browser

extern "C" {

/// nullptr: there is no memory.
void* dllm_allocate(std::size_t bytes) { return std::malloc(bytes); }
void dllm_free(void* memory) { std::free(memory); }

const char* dllm_text_begin() { return dllm::browser::page().text.data(); }
std::size_t dllm_text_size() { return dllm::browser::page().text.size(); }

/// Loads the GGUF in [gguf, gguf + bytes), which must stay until another was loaded. `isa`: a kernel set, or nothing
/// for the fastest. 200 and props, or a status and an error.
int dllm_load(const std::byte* gguf, std::size_t bytes, const char* name, std::size_t name_size, int embedded,
              const char* isa, std::size_t isa_size) {
  using namespace dllm::browser;
  return guarded([&] {
    dllm::LoadOptions options;
    options.threads = 1;
    options.isa = std::string(isa, isa_size);
    auto loaded = page().server.load({gguf, bytes}, std::string(name, name_size), embedded != 0, options);
    if (!loaded) {
      page().text = error_text(loaded.error());
      return 400;
    }
    Reply reply = page().server.call("props", "");
    page().text = std::move(reply.body);
    return reply.status;
  });
}

/// A route: its status, and its body as the text.
int dllm_call(const char* path, std::size_t path_size, const char* body, std::size_t body_size) {
  using namespace dllm::browser;
  return guarded([&] {
    Reply reply = page().server.call({path, path_size}, {body, body_size});
    page().text = std::move(reply.body);
    return reply.status;
  });
}

/// One pass of the answer that v1/chat/completions has started. 1: more will follow; 0: it has ended; 500: it failed,
/// and the text is an error. Else the text has the events of the pass.
int dllm_step() {
  using namespace dllm::browser;
  return guarded([] { return page().server.step(page().text) ? 1 : 0; });
}

/// Ends the answer that is under way.
void dllm_cancel() { dllm::browser::page().server.cancel(); }
}
