// The start of programs that scripts/glibc_stubs.py links for glibc 2.28; shared libraries have none. See compat.cpp.
#pragma GCC visibility push(hidden)
extern "C" {

// Before 2.34 a program ran its own constructors; after, the library does, unless it is given a function for them.
using Function = void (*)(int, char**, char**);
extern Function __init_array_start[];
extern Function __init_array_end[];
void _init();

namespace {
void run_constructors(int count, char** arguments, char** environment) {
  _init();
  for (const Function* each = __init_array_start; each != __init_array_end; ++each)
    (*each)(count, arguments, environment);
}
}  // namespace

using Main = int (*)(int, char**, char**);
int start_of_glibc(Main, int, char**, Function, void (*)(), void (*)(), void*) __attribute__((visibility("default")));
#ifdef __x86_64__
asm(".symver start_of_glibc, __libc_start_main@GLIBC_2.2.5");
#else
asm(".symver start_of_glibc, __libc_start_main@GLIBC_2.17");
#endif

int __libc_start_main(Main program, int count, char** arguments, Function, void (*)(), void (*loaders_end)(),
                      void* stack) {
  return start_of_glibc(program, count, arguments, run_constructors, nullptr, loaders_end, stack);
}

}  // extern "C"
#pragma GCC visibility pop
