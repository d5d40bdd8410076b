# WebAssembly for browsers and node: Debian's clang 19 with the C library of Debian's emscripten, whose POSIX headers the
# engine's sources need, and with a libc++ of the same clang (scripts/wasm_libraries). Not emcc itself: Debian's has clang 14
# and libc++ 13, which lack C++20's ranges and bit_cast, and encodes fused multiply-adds as no browser reads them. Not
# wasi-libc and Debian's libc++ for wasm32: those have no files, mutexes or exceptions.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_ASM_COMPILER clang-19)
set(CMAKE_AR llvm-ar-19)
set(CMAKE_RANLIB llvm-ranlib-19)
foreach(language C CXX ASM)
  set(CMAKE_${language}_COMPILER_TARGET wasm32-unknown-emscripten)
endforeach()
set(CMAKE_SYSROOT /usr/share/emscripten/cache/sysroot)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(DLLM_WASM_LIBRARIES ${CMAKE_CURRENT_LIST_DIR}/../build/wasm-libraries CACHE PATH "folder of scripts/wasm_libraries")
if(DLLM_WASM_LIBRARIES)
  # -fwasm-exceptions: what every browser has had since 2022.
  set(CMAKE_CXX_FLAGS_INIT "-nostdinc++ -isystem ${DLLM_WASM_LIBRARIES}/include/c++/v1 -fwasm-exceptions")
endif()
