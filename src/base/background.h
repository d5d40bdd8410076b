#pragma once

namespace dllm {

/// Lowers the priority of the calling thread for its whole life: what it computes must not delay others. Threads that
/// it starts inherit that; a ThreadPool starts new workers as soon as another thread uses it. Threads that a driver
/// starts keep it; Mesa's driver for processors computes in such threads.
void enter_background();

/// Whether the calling thread has entered it.
bool in_background();

}  // namespace dllm
