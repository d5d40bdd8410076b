#include "options.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "dllm/model.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

nb::object to_python(const OptionValue& value) {
  return std::visit([](const auto& v) -> nb::object { return nb::cast(v); }, value);
}

Expected<OptionValue> to_value(const nb::handle& value, std::string_view key) {
  if (nb::isinstance<nb::bool_>(value)) return OptionValue(nb::cast<bool>(value));
  if (nb::isinstance<nb::int_>(value)) {
    std::int64_t number = 0;
    if (nb::try_cast(value, number)) return OptionValue(number);
    std::uint64_t large = 0;
    if (nb::try_cast(value, large)) return OptionValue(large);
    return Error{ErrorCode::kUsage, "the number has more than 64 bits", std::string(key), ""};
  }
  if (nb::isinstance<nb::float_>(value)) return OptionValue(nb::cast<double>(value));
  if (nb::isinstance<nb::str>(value)) return OptionValue(nb::cast<std::string>(value));
  // NumPy's scalars have neither type.
  if (nb::hasattr(value, "item") && !nb::hasattr(value, "__len__")) return to_value(value.attr("item")(), key);
  return Error{ErrorCode::kUsage, "the value must be a bool, int, float or str", std::string(key), ""};
}

GenerateOptions to_options(const Dict& given) {
  GenerateOptions options;
  for (const auto& [name, value] : given) {
    if (value.is_none()) continue;
    const auto key = nb::cast<std::string>(name);
    if (key == "stop") {
      if (nb::isinstance<nb::str>(value))
        options.stop = {nb::cast<std::string>(value)};
      else if (!nb::try_cast(value, options.stop))
        raise({ErrorCode::kUsage, "it must be a str or a list of str", key, ""});
      continue;
    }
    take(options.set(key, to_text(take(to_value(value, key)))));
  }
  return options;
}

Dict to_dict(const ResolvedOptions& options) {
  Dict result;
  for (const auto& [key, value] : options.values) result[key.c_str()] = to_python(value);
  return result;
}

void bind_options(nb::module_& module) {
  nb::class_<OptionInfo>(module, "OptionInfo", "The declaration of one option.")
      .def_ro("key", &OptionInfo::key)
      .def_ro("flags", &OptionInfo::flags, "its spellings on the command line")
      .def_prop_ro("type",
                   [](const OptionInfo& info) {
                     constexpr const char* kNames[] = {"bool", "int", "int", "float", "str", "choice"};
                     return kNames[static_cast<int>(info.type)];
                   })
      .def_ro("unit", &OptionInfo::unit)
      .def_ro("meaning", &OptionInfo::meaning)
      .def_ro("minimum", &OptionInfo::minimum)
      .def_ro("maximum", &OptionInfo::maximum)
      .def_ro("choices", &OptionInfo::choices)
      .def_prop_ro("default",
                   [](const OptionInfo& info) { return info.standard ? to_python(*info.standard) : nb::none(); })
      .def_ro("default_text", &OptionInfo::standard_text)
      .def_ro("condition", &OptionInfo::condition)
      .def_ro("repeated", &OptionInfo::repeated, "a list of such values")
      .def_ro("path", &OptionInfo::path, "names a file")
      .def("__repr__", [](const OptionInfo& info) { return "<option " + info.key + ": " + info.meaning + ">"; });
  nb::class_<MethodInfo>(module, "MethodInfo", "A method of one part of the decoding.")
      .def_ro("name", &MethodInfo::name)
      .def_ro("aliases", &MethodInfo::aliases)
      .def_ro("meaning", &MethodInfo::meaning)
      .def_ro("options", &MethodInfo::options)
      .def("__repr__", [](const MethodInfo& info) { return "<method " + info.name + ": " + info.meaning + ">"; });
  nb::class_<PartInfo>(module, "PartInfo", "A part of the decoding, with its methods.")
      .def_ro("name", &PartInfo::name)
      .def_ro("selector", &PartInfo::selector)
      .def_ro("methods", &PartInfo::methods)
      .def("__repr__", [](const PartInfo& info) { return "<part " + info.name + ">"; });
  nb::class_<PresetInfo>(module, "PresetInfo")
      .def_ro("name", &PresetInfo::name)
      .def_ro("meaning", &PresetInfo::meaning);
  nb::class_<OptionsInfo>(module, "OptionsInfo", "Every option and method of this build.")
      .def_ro("common", &OptionsInfo::common)
      .def_ro("parts", &OptionsInfo::parts)
      .def_ro("presets", &OptionsInfo::presets);
  module.def("options_info", [] { return options_info(); });
  module.def("load_options", [] { return load_options_info(); });
  nb::class_<DeviceInfo>(module, "DeviceInfo", "A device that models can run on, or why a backend has none.")
      .def_ro("backend", &DeviceInfo::backend)
      .def_ro("name", &DeviceInfo::name, "as the option `device` takes it; empty: the backend's only one")
      .def_ro("meaning", &DeviceInfo::meaning)
      .def_ro("standard", &DeviceInfo::standard, "taken if none is named")
      .def_ro("missing", &DeviceInfo::missing, "not empty: the backend has no device here; says why")
      .def("__repr__", [](const DeviceInfo& info) {
        return "<device " + info.backend + " " + info.name + ": " + info.meaning + info.missing + ">";
      });
  module.def(
      "list_devices", [](const std::string& backend) { return take(list_devices(backend)); }, nb::arg("backend") = "");
}

}  // namespace dllm::python
