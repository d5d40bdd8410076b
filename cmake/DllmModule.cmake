# One folder of src/ is one module: a static library dllm_<name>, its dependencies (DEPS), and its tests next to the
# code.
#
#   dllm_module(format SOURCES gguf_reader.cpp ... TESTS gguf_test.cpp ... DEPS numerics base LIBS fmt::fmt)
#
# Modules include each other as "<folder>/<file>.h"; scripts/check_includes.py checks the include lines against the same
# dependencies, so that CMake and the code cannot diverge.

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
    # Four checks cost a seventh of the compile time and find nothing that the address sanitizer does not report too.
    target_compile_options(${target} PRIVATE -fsanitize=${DLLM_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all
                                             -fno-sanitize=null,object-size,pointer-overflow,vptr)
    target_link_options(${target} PRIVATE -fsanitize=${DLLM_SANITIZE})
  endif()
  if(DLLM_COVERAGE)
    target_compile_options(${target} PRIVATE --coverage)
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()

# Unity builds: parsing headers is most of the compile time, so up to `DLLM_UNITY` sources of one folder are compiled as
# one unit. Groups are formed per folder, so that a new file does not invalidate other folders' cached objects. Names in
# anonymous namespaces must therefore be unique within a folder. CMake leaves out sources with their own flags.
# -DDLLM_UNITY=0 compiles each source alone: quicker after an edit, and it finds missing includes (the preset dev).
function(dllm_unity target)
  if(DLLM_UNITY LESS 2)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC treats the included sources as headers, whose classes should use nothing of an anonymous namespace.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  foreach(source ${ARGN})
    if(IS_ABSOLUTE "${source}" OR NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}/${source}" DIRECTORY)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/src "${folder}")
    string(MAKE_C_IDENTIFIER "${target}_${folder}" group)
    math(EXPR number "${${group}_count} + 0" OUTPUT_FORMAT DECIMAL)
    math(EXPR ${group}_count "${number} + 1")
    math(EXPR chunk "${number} / ${DLLM_UNITY}")
    set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP "${group}_${chunk}")
  endforeach()
endfunction()

# Code in which runs spend their time: -O3 in release builds. All other code uses -O2, which compiles a tenth faster.
function(dllm_optimise target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
endfunction()

# The label decides the tier: `fast` runs in `make check`, `slow` in `make test` only.
function(dllm_test target)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  add_executable(${target} ${ARG_SOURCES})
  dllm_configure_target(${target})
  dllm_unity(${target} ${ARG_SOURCES})
  if(DLLM_UNITY GREATER 1 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Tests have short names; a local one that is also another file's constant is no problem.
    target_compile_options(${target} PRIVATE -Wno-shadow -Wshadow=local)
  endif()
  # The library takes most of a test's time. Its own code is compiled once and run once; undefined behaviour is looked for
  # in the library only, since the checks add half to the compile time of tests.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(DLLM_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  target_link_libraries(${target} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE DLLM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 900)
endfunction()

# COLD: no loop takes a noticeable share of a run. Compiled at -O1, which compiles two fifths faster than -O2.
function(dllm_module name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;TESTS;DEPS;LIBS;TEST_LIBS" ${ARGN})
  add_library(dllm_${name} STATIC ${ARG_SOURCES})
  dllm_configure_target(dllm_${name})
  if(ARG_COLD)
    target_compile_options(dllm_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  dllm_unity(dllm_${name} ${ARG_SOURCES})
  target_include_directories(dllm_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                 $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                                 $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  list(TRANSFORM ARG_DEPS PREPEND dllm_)
  target_link_libraries(dllm_${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  if(DLLM_TESTS AND ARG_TESTS)
    dllm_test(dllm_${name}_test SOURCES ${ARG_TESTS} LIBS dllm_${name} ${ARG_TEST_LIBS})
  endif()
endfunction()
