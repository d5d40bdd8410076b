# The libraries of a WebAssembly build, under the names that the modules know them by.
if(NOT EXISTS ${DLLM_WASM_LIBRARIES}/made-of)
  message(FATAL_ERROR "${DLLM_WASM_LIBRARIES} is missing: run scripts/wasm_libraries (make wasm does)")
endif()
include_directories(SYSTEM ${DLLM_WASM_LIBRARIES}/include)
foreach(name fmt::fmt=fmt PkgConfig::PCRE2=pcre2-8 PkgConfig::UTF8PROC=utf8proc)
  string(REPLACE "=" ";" pair ${name})
  list(GET pair 0 target)
  list(GET pair 1 library)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${DLLM_WASM_LIBRARIES}/lib/lib${library}.a)
endforeach()
set_target_properties(PkgConfig::PCRE2 PROPERTIES INTERFACE_COMPILE_DEFINITIONS PCRE2_STATIC)
set_target_properties(PkgConfig::UTF8PROC PROPERTIES INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)
foreach(target nlohmann_json::nlohmann_json PkgConfig::TOMLPLUSPLUS Threads::Threads)  # headers alone
  add_library(${target} INTERFACE IMPORTED GLOBAL)
endforeach()

# dllm_wasm_program(target kernels function...): links an executable that exports these functions and imports what
# web/src/wasm/system.ts defines, no more. `kernels`: dllm_kernels_relaxed or dllm_kernels_no_relaxed. The linker is called
# without emcc: its scripts would add a loader of some thousand lines. -O0 keeps clang from calling Binaryen, whose version in
# Debian reads no relaxed instructions (clang 19 links nothing if it gets --no-wasm-opt).
function(dllm_wasm_program target kernels)
  list(TRANSFORM ARGN PREPEND -Wl,--export= OUTPUT_VARIABLE exports)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${kernels}>)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/browser/calendar.cpp ${PROJECT_SOURCE_DIR}/src/browser/system.cpp)
  target_link_options(${target} PRIVATE -O0 -nostdlib -nostartfiles -fuse-ld=lld -Wl,--no-entry -Wl,--error-limit=0 ${exports}
    -Wl,--export=__wasm_call_ctors -Wl,--gc-sections -Wl,--strip-all
    -Wl,--stack-first -Wl,-z,stack-size=1048576 -Wl,--max-memory=4294967296)
  target_link_libraries(${target} PRIVATE -L${DLLM_WASM_LIBRARIES}/lib -L${CMAKE_SYSROOT}/lib/wasm32-emscripten c++ c++abi unwind
    dlmalloc c compiler_rt)
  set_target_properties(${target} PROPERTIES SUFFIX .wasm RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
