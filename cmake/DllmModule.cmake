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
else()
  # std::stable_sort of libstdc++ 12 calls a function that C++17 deprecates, which clang reports where it is instantiated.
  # Its -Wconversion includes changes of sign; GCC's does not.
  list(APPEND DLLM_WARNINGS -Wno-deprecated-declarations -Wno-sign-conversion)
endif()
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "wasm32")
  # A file or a buffer that memory holds has a size of 32 bits; the engine's counts have 64.
  list(APPEND DLLM_WARNINGS -Wno-shorten-64-to-32)
endif()
# Contraction is off so that every kernel set rounds where the source says, and nowhere else (bit-identical ISAs).
set(DLLM_OPTIONS -ffp-contract=off)

# GCC collects garbage whenever its heap has doubled, from 128 MB on, which took 9 % of its time (-ftime-report of two units,
# GCC 12). Beginning at 512 MB, a unit of 24 sources takes 1.2 GB instead of 0.8 to 1.0.
set(DLLM_HEAP $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)

# Hardening, as distributions have it, for program, library and Python module: checked buffers (FORTIFY, stack protector),
# probed stack frames, marked targets of indirect jumps (CET, BTI), tables of the linker that are read-only after start-up.
# tests/hardening_test.py reads it back from the files. research/lab/hardening.md has its cost. Sanitizers check more, and
# FORTIFY needs an optimised build.
set(DLLM_HARDENING "")
set(DLLM_LINK_HARDENING -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "wasm32")
  set(DLLM_LINK_HARDENING "")  # code cannot be written to, and tables of functions are checked by every call
elseif(WIN32)
  set(DLLM_LINK_HARDENING "")  # random addresses and pages without code are the linker's default
endif()
if(DLLM_HARDEN AND NOT DLLM_SANITIZE AND NOT DLLM_COVERAGE)
  set(optimised $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
  list(APPEND DLLM_HARDENING -fstack-protector-strong -fstack-clash-protection
       $<${optimised}:-U_FORTIFY_SOURCE> $<${optimised}:-D_FORTIFY_SOURCE=3>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    list(APPEND DLLM_HARDENING -fcf-protection=full)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND DLLM_HARDENING -mbranch-protection=standard)
  endif()
endif()

function(dllm_harden target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${DLLM_HARDENING}>")
  target_link_options(${target} PRIVATE ${DLLM_LINK_HARDENING})
endfunction()

function(dllm_configure_target target)
  dllm_harden(${target})
  target_compile_options(${target} PRIVATE ${DLLM_WARNINGS} ${DLLM_OPTIONS} ${DLLM_HEAP})
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

# Adds sources to a target, up to `DLLM_UNITY` of one folder compiled as one unit, which parses headers and generates the
# functions of their templates once:
#
#   dllm_sources(target SOURCES a.cpp b.cpp ... [ALONE c.cpp ...] [OPTIONS flag ...])
#
# OPTIONS apply to all these sources. ALONE are those of SOURCES that are no part of a unit, because they have flags of
# their own or names that others have too: names in anonymous namespaces must be unique within a folder. Units are formed
# per folder, so that a new file does not invalidate other folders' cached objects. CMake's own unity builds name their
# sources by absolute paths, and a compiler cache then shares nothing between two trees; these units name them relative to
# the root. -DDLLM_UNITY=0 compiles each source alone: quicker after an edit, and it finds missing includes.
function(dllm_sources target)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;OPTIONS" ${ARGN})
  set(whole "")
  set(folders "")
  foreach(source ${ARG_SOURCES})
    if(DLLM_UNITY LESS 2 OR IS_ABSOLUTE "${source}" OR NOT source MATCHES "\\.cpp$" OR source IN_LIST ARG_ALONE)
      list(APPEND whole ${source})
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET path PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND folders ${folder})
    list(APPEND in_${folder} ${path})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(LENGTH in_${folder} count)
    foreach(first RANGE 0 ${count} ${DLLM_UNITY})
      if(first EQUAL count)
        break()
      endif()
      list(SUBLIST in_${folder} ${first} ${DLLM_UNITY} chunk)
      list(TRANSFORM chunk REPLACE "(.+)" "#include \"\\1\"\n")
      string(CONCAT chunk ${chunk})
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/${target}.units/${folder}_${first}.cpp)
      file(CONFIGURE OUTPUT ${unit} CONTENT "${chunk}" @ONLY)
      set_source_files_properties(${unit} TARGET_DIRECTORY ${target} PROPERTIES INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR})
      list(APPEND whole ${unit})
    endforeach()
  endforeach()
  target_sources(${target} PRIVATE ${whole})
  if(ARG_OPTIONS)
    set_property(SOURCE ${whole} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS ${ARG_OPTIONS})
  endif()
  if(DLLM_UNITY GREATER 1 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC treats the included sources as headers, whose classes should use nothing of an anonymous namespace.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  elseif(DLLM_UNITY GREATER 1)
    # A function's own name for a type is also another file's.
    target_compile_options(${target} PRIVATE -Wno-shadow)
  endif()
endfunction()

# Code in which runs spend their time: -O3 in release builds. All other code uses -O2, which compiles a tenth faster.
function(dllm_optimise target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
endfunction()

# Code that no loop of a run is in: -O1 compiles two fifths faster than -O2.
set(DLLM_COLD $<$<CONFIG:Release>:-O1>)
# Tests, and code between a person and the engine. Sanitized, where all other code has -O1, -O0 compiles in about half of
# the time: the optimiser is busy with the sanitizers' checks. Tokenizers, models and decoders at -O0 would cost more
# in the tests than they save.
set(DLLM_FRONT ${DLLM_COLD})
if(DLLM_SANITIZE)
  set(DLLM_FRONT -O0)
endif()

# The label decides the tier: `fast` runs in `make check`, `slow` in `make test` only. Tests of a product have its name as a
# second one.
function(dllm_test target)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;ALONE;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  add_executable(${target})
  dllm_configure_target(${target})
  dllm_sources(${target} SOURCES ${ARG_SOURCES} ALONE ${ARG_ALONE})
  if(DLLM_UNITY GREATER 1 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Tests have short names; a local one that is also another file's constant is no problem.
    target_compile_options(${target} PRIVATE -Wno-shadow -Wshadow=local)
  endif()
  # The library takes most of a test's time. Its own code is compiled once and run once; undefined behaviour is looked for
  # in the library only, since the checks add half to the compile time of tests.
  target_compile_options(${target} PRIVATE ${DLLM_FRONT})
  if(DLLM_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  if(DLLM_SANITIZE)
    target_compile_definitions(${target} PRIVATE DLLM_SANITIZED)
  endif()
  if(NOT DLLM_NPU)
    target_compile_definitions(${target} PRIVATE DLLM_WITHOUT_NPU)
  endif()
  target_link_libraries(${target} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE DLLM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 900)
  if(DLLM_PRODUCT)
    # gtest_discover_tests() takes no property that is a list.
    set(labels ${CMAKE_CURRENT_BINARY_DIR}/${target}_labels.cmake)
    file(CONFIGURE OUTPUT ${labels} @ONLY CONTENT
      "set_tests_properties(\${@target@_TESTS} PROPERTIES LABELS \"@ARG_LABEL@;@DLLM_PRODUCT@\")\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels})
    add_dependencies(dllm_${DLLM_PRODUCT}_tests ${target})
  endif()
endfunction()

# The static library dllm_<name> without its sources.
function(dllm_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  add_library(dllm_${name} STATIC)
  dllm_configure_target(dllm_${name})
  if(WIN32 OR CMAKE_SYSTEM_PROCESSOR STREQUAL "wasm32")
    target_compile_options(dllm_${name} PUBLIC -fexperimental-library)  # std::stop_token of libc++ 19
  endif()
  target_include_directories(dllm_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                 $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                                 $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  if(NOT DLLM_NPU)
    list(REMOVE_ITEM ARG_DEPS ${DLLM_NPU_MODULES})
  endif()
  list(TRANSFORM ARG_DEPS PREPEND dllm_)
  target_link_libraries(dllm_${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
endfunction()

# dllm_<name>_testing: helpers and reference implementations in folders called testing/, for tests and fuzz targets. No
# program that users run links it.
function(dllm_testing name)
  if(NOT DLLM_TESTS AND NOT DLLM_FUZZ)
    return()
  endif()
  add_library(dllm_${name}_testing STATIC)
  dllm_configure_target(dllm_${name}_testing)
  target_compile_options(dllm_${name}_testing PRIVATE ${DLLM_COLD})
  dllm_sources(dllm_${name}_testing SOURCES ${ARGN})
  target_link_libraries(dllm_${name}_testing PUBLIC dllm_${name})
endfunction()

# COLD: no loop takes a noticeable share of a run (DLLM_COLD). FRONT: nothing is computed here at all (DLLM_FRONT).
# ALONE: sources and tests that are units of their own (dllm_sources). TESTING: sources for tests only (dllm_testing).
function(dllm_module name)
  cmake_parse_arguments(ARG "COLD;FRONT" "" "SOURCES;TESTS;ALONE;DEPS;LIBS;TEST_LIBS;TESTING" ${ARGN})
  dllm_library(${name} DEPS ${ARG_DEPS} LIBS ${ARG_LIBS})
  if(ARG_COLD)
    target_compile_options(dllm_${name} PRIVATE ${DLLM_COLD})
  elseif(ARG_FRONT)
    target_compile_options(dllm_${name} PRIVATE ${DLLM_FRONT})
  endif()
  dllm_sources(dllm_${name} SOURCES ${ARG_SOURCES} ALONE ${ARG_ALONE})
  if(ARG_TESTING)
    dllm_testing(${name} ${ARG_TESTING})
    list(APPEND ARG_TEST_LIBS dllm_${name}_testing)
  endif()
  if(DLLM_TESTS AND ARG_TESTS)
    dllm_test(dllm_${name}_test SOURCES ${ARG_TESTS} ALONE ${ARG_ALONE} LIBS dllm_${name} ${ARG_TEST_LIBS})
  endif()
endfunction()

# A product is a module of several parts, one folder each, in this order: a part may include those before it
# (scripts/check_includes.py). Each part adds its sources to the product's library and has a test program of its own. The
# target dllm_<name>_tests builds the programs, `ctest -L <name>` runs them.
#
#   dllm_product(npu_core PARTS config isa ... DEPS format numerics base LIBS ... [TESTING ...])
function(dllm_product name)
  cmake_parse_arguments(ARG "" "" "PARTS;DEPS;LIBS;TESTING" ${ARGN})
  set(DLLM_PRODUCT ${name})
  add_custom_target(dllm_${name}_tests)
  dllm_library(${name} DEPS ${ARG_DEPS} LIBS ${ARG_LIBS})
  dllm_optimise(dllm_${name})
  if(ARG_TESTING)
    dllm_testing(${name} ${ARG_TESTING})
  endif()
  foreach(part ${ARG_PARTS})
    add_subdirectory(${part})
  endforeach()
endfunction()

#   dllm_part(isa [COLD] SOURCES encoding.cpp ... TESTS isa_test.cpp ... [ALONE ...] [OPTIONS ...] LIBS ... TEST_LIBS ...)
#
# COLD as in dllm_module: it runs once per program, not once per simulated instruction or point of a sweep.
function(dllm_part name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;TESTS;ALONE;OPTIONS;LIBS;TEST_LIBS" ${ARGN})
  if(ARG_COLD)
    list(APPEND ARG_OPTIONS ${DLLM_COLD})
  endif()
  set(library dllm_${DLLM_PRODUCT})
  dllm_sources(${library} SOURCES ${ARG_SOURCES} OPTIONS ${ARG_OPTIONS})
  target_link_libraries(${library} PUBLIC ${ARG_LIBS})
  if(DLLM_TESTS AND ARG_TESTS)
    dllm_test(dllm_npu_${name}_test SOURCES ${ARG_TESTS} ALONE ${ARG_ALONE} LIBS ${library} ${ARG_TEST_LIBS})
  endif()
endfunction()

# Embeds every *.toml below `folder` in the product: the header declares `function`, which returns them
# (npu_core/config/embedded_files.h).
function(dllm_profiles function header folder)
  cmake_path(ABSOLUTE_PATH folder NORMALIZE)
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedProfiles.cmake)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/*.toml)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DFUNCTION=${function} -DHEADER=${header} -DOUTPUT=${output} -P ${script}
    DEPENDS ${files} ${script}
    VERBATIM)
  add_custom_target(dllm_${function} DEPENDS ${output})
  add_dependencies(dllm_${DLLM_PRODUCT} dllm_${function})
  set_source_files_properties(${output} TARGET_DIRECTORY dllm_${DLLM_PRODUCT} PROPERTIES
    GENERATED TRUE COMPILE_OPTIONS "${DLLM_COLD}")
  target_sources(dllm_${DLLM_PRODUCT} PRIVATE ${output})
endfunction()
