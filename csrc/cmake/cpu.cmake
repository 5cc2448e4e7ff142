# SPDX-License-Identifier: Apache-2.0
#
# soc=cpu: libcust_opapi.so from csrc/cpu (shared foundation) and csrc/ops/<op>/cpu.
#
# In an operator's folder, <op>.cpp is the entry point, compiled once; <op>_kernel.cpp is compiled
# once for each instruction set, into the namespace bi::<isa> (macro BI_ISA).

# What every C++ target is compiled with. No contraction: a*b+c is fused where the source says fma
# and nowhere else, or bits would depend on the compiler.
add_library(bi_settings INTERFACE)
target_compile_features(bi_settings INTERFACE cxx_std_17)
target_compile_options(
  bi_settings
  INTERFACE -Wall -Wextra -Wno-psabi -ffp-contract=off -fno-math-errno -fno-trapping-math
            "$<$<NOT:$<BOOL:${BI_COVERAGE}>>:-ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}=.>")
target_include_directories(bi_settings INTERFACE op_api/include cpu ops)
if(BI_COVERAGE)
  # Atomic: the threads of a kernel count the same lines.
  target_compile_options(bi_settings INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(bi_settings INTERFACE --coverage)
endif()
if(BI_SANITIZE)
  target_compile_options(bi_settings INTERFACE -fsanitize=${BI_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(bi_settings INTERFACE -fsanitize=${BI_SANITIZE})
endif()

# Instruction sets, as csrc/cpu/isa.h lists them: the compiler's flags, and what kernels ask for.
# `bi_matrix_isas` add only matrix instructions to one of `bi_lanes_isas`.
set(bi_lanes_isas portable)
set(bi_matrix_isas)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND bi_lanes_isas avx2 avx512)
  list(APPEND bi_matrix_isas avx512_bf16 amx)
  set(bi_avx2_flags -mavx2 -mfma -mf16c)
  set(bi_avx2_definitions BI_VEC_AVX2)
  set(bi_avx512_flags -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns of _mm512_undefined_*() inside its own header (GCC bug 105593).
    list(APPEND bi_avx512_flags -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set(bi_avx512_definitions BI_VEC_AVX512)
  set(bi_avx512_bf16_flags ${bi_avx512_flags} -mavx512bf16)
  set(bi_avx512_bf16_definitions ${bi_avx512_definitions} BI_BF16_PAIRS)
  set(bi_amx_flags ${bi_avx512_flags} -mamx-tile -mamx-bf16)
  set(bi_amx_definitions ${bi_avx512_definitions} BI_AMX)
  if(BI_BUILD_TESTS)
    # Few machines have AMX: its tiles in software, for tests.
    list(APPEND bi_matrix_isas amx_model)
    set(bi_amx_model_definitions BI_AMX BI_AMX_MODEL)
    target_compile_definitions(bi_settings INTERFACE BI_TEST_MODELS)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND bi_lanes_isas neon)
  set(bi_neon_definitions BI_VEC_NEON)
endif()

# An object library of sources, compiled for one instruction set.
function(bi_add_kernels name isa)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
                                           CXX_VISIBILITY_PRESET hidden)
  target_compile_definitions(${name} PRIVATE BI_ISA=${isa} ${bi_${isa}_definitions})
  target_compile_options(${name} PRIVATE ${bi_${isa}_flags})
  target_link_libraries(${name} PRIVATE bi_settings)
endfunction()

file(GLOB bi_kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/ops/*/cpu/*_kernel.cpp")
file(GLOB bi_entries CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/ops/*/cpu/*.cpp")
list(REMOVE_ITEM bi_entries ${bi_kernels})

# These use matrix instructions; all others have only lanes.
set(bi_matrix_kernels "${CMAKE_CURRENT_SOURCE_DIR}/ops/matmul/cpu/matmul_kernel.cpp")

add_library(cust_opapi SHARED cpu/isa.cpp cpu/runtime.cpp ${bi_entries})
target_compile_definitions(cust_opapi PRIVATE BI_VERSION="${BI_VERSION}")
set_target_properties(cust_opapi PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                            SKIP_BUILD_RPATH ON)
find_package(Threads REQUIRED)
target_link_libraries(cust_opapi PRIVATE bi_settings Threads::Threads)
if(NOT BI_SANITIZE)
  target_link_options(cust_opapi PRIVATE -Wl,-z,defs)
endif()

foreach(isa IN LISTS bi_lanes_isas bi_matrix_isas)
  if(isa IN_LIST bi_matrix_isas)
    bi_add_kernels(kernels_${isa} ${isa} ${bi_matrix_kernels})
  else()
    bi_add_kernels(kernels_${isa} ${isa} ${bi_kernels})
  endif()
  target_sources(cust_opapi PRIVATE $<TARGET_OBJECTS:kernels_${isa}>)
endforeach()

install(TARGETS cust_opapi LIBRARY DESTINATION op_api/lib)
install(FILES op_api/include/batch_invariant.h DESTINATION op_api/include)

if(BI_BUILD_TESTS)
  enable_testing()
  file(GLOB bi_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/ops/*/cpu/*_test.cc"
       "${CMAKE_CURRENT_SOURCE_DIR}/cpu/*_test.cc")
  foreach(source IN LISTS bi_tests)
    get_filename_component(name "${source}" NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE bi_settings cust_opapi)
    if(name STREQUAL "vec_test")
      foreach(isa IN LISTS bi_lanes_isas)
        bi_add_kernels(vec_operations_${isa} ${isa} cpu/vec_operations.cc)
        target_link_libraries(${name} PRIVATE vec_operations_${isa})
      endforeach()
    endif()
    set(isas ${bi_lanes_isas})
    if(name MATCHES "matmul")  # the only one whose kernels use matrix instructions
      list(APPEND isas ${bi_matrix_isas})
    endif()
    foreach(isa IN LISTS isas)
      add_test(NAME ${name}.${isa} COMMAND ${name})
      # 77: this machine does not run the instruction set; reported as skipped, by name.
      set_tests_properties(${name}.${isa} PROPERTIES ENVIRONMENT "BI_CPU_ISA=${isa}"
                                                     SKIP_RETURN_CODE 77)
    endforeach()
  endforeach()
  add_subdirectory(fuzz)
endif()
