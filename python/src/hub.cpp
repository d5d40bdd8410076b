// Models from a hub, for Model.load(hf=...).
#include "hub/pull.h"

#include <nanobind/stl/string.h>

#include <cstdlib>

#include "bindings.h"
#include "calls.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

/// The model's path in the cache. `progress` is called with the fraction that has arrived.
std::string pull(const std::string& name, const std::string& file, const std::string& revision,
                 const std::string& token, bool offline, const nb::object& progress) {
  hub::PullRequest request;
  request.name = take(hub::parse_model_name(name));
  request.file = file;
  request.revision = revision;
  hub::Config config = take(hub::config_from([](const std::string& key) { return std::getenv(key.c_str()); }));
  if (!token.empty()) config.token = token;
  config.offline = config.offline || offline;
  hub::PullListener listener;
  listener.progress = [&progress](const hub::PullProgress& now) {
    if (exiting()) return false;
    const Gil gil;
    check_signals();
    if (progress.is_none()) return true;
    const double share = now.total > 0 ? static_cast<double>(now.done) / static_cast<double>(now.total) : 0;
    return !progress(share).is(nb::handle(Py_False));
  };
  return take(unlocked([&] { return hub::pull(config, request, listener); })).path;
}

}  // namespace

void bind_hub(nb::module_& module) {
  module.def("pull", &pull, nb::arg("name"), nb::arg("file"), nb::arg("revision"), nb::arg("token"), nb::arg("offline"),
             nb::arg("progress").none());
}

}  // namespace dllm::python
