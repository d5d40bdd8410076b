#pragma once

namespace dllm {

/// Called once, before anything is looked up. In a statically linked program, names of hosts and users are then looked
/// up by the code inside it (files and DNS): glibc would load the modules that /etc/nsswitch.conf names, which belong
/// to another version of glibc and may end the program. Elsewhere it does nothing.
void prepare_name_lookup();

}  // namespace dllm
