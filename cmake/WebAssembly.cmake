include(CrossLibraries)
dllm_cross_libraries(wasm ${DLLM_WASM_LIBRARIES})

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
