# One folder of src/ is one module: a static library dllm_<name>, its arrows (DEPS), and its tests beside the code.
#
#   dllm_module(format SOURCES gguf_reader.cpp ... TESTS gguf_test.cpp ... DEPS numerics base LIBS fmt::fmt)
#
# Modules include each other as "<folder>/<file>.h"; scripts/check_includes.py holds the same arrows against the
# include lines, so that CMake and the code cannot drift apart.

set(DLLM_WARNINGS -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of GCC 12 at -O3 inside std::string and std::optional (GCC bugs 105329, 105562).
  list(APPEND DLLM_WARNINGS -Wno-restrict -Wno-maybe-uninitialized)
endif()
# Contraction is off so that every kernel set rounds where the source says, and nowhere else (bit-identical ISAs).
set(DLLM_OPTIONS -ffp-contract=off)

function(dllm_configure_target target)
  target_compile_options(${target} PRIVATE ${DLLM_WARNINGS} ${DLLM_OPTIONS})
  if(DLLM_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(DLLM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${DLLM_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${DLLM_SANITIZE})
  endif()
  if(DLLM_COVERAGE)
    target_compile_options(${target} PRIVATE --coverage)
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()

# The label decides the tier: `fast` runs in `make check`, `slow` in `make test` only.
function(dllm_test target)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  add_executable(${target} ${ARG_SOURCES})
  dllm_configure_target(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE DLLM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 900)
endfunction()

function(dllm_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPS;LIBS;TEST_LIBS" ${ARGN})
  add_library(dllm_${name} STATIC ${ARG_SOURCES})
  dllm_configure_target(dllm_${name})
  target_include_directories(dllm_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                 $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                                 $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  list(TRANSFORM ARG_DEPS PREPEND dllm_)
  target_link_libraries(dllm_${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  if(DLLM_TESTS AND ARG_TESTS)
    dllm_test(dllm_${name}_test SOURCES ${ARG_TESTS} LIBS dllm_${name} ${ARG_TEST_LIBS})
  endif()
endfunction()
