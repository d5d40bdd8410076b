#pragma once

#include <optional>
#include <string>

#include "experiment/experiments.h"

namespace dllm::app {

/// Hash of all bytes of a file, or of the regular files of a folder with their names, 16 hexadecimal digits; empty: the
/// path leads to neither. Errors: kIo.
Expected<std::string> fingerprint(const std::string& path);

/// Identifies what a figure is made of: this program's version, the options that the experiment reads, fingerprints of
/// model and items, every key of the devices. 16 hexadecimal digits. Errors: those of fingerprint() and of profiles.
Expected<std::string> figure_key(const Experiment& experiment, const LabInputs& inputs);

/// The figure that a folder has of an experiment; nullopt: it has none, not all of its files, or one made of something
/// else. Errors: kIo.
Expected<std::optional<Figure>> finished_figure(const std::string& folder, const Experiment& experiment,
                                                const std::string& key);

}  // namespace dllm::app
