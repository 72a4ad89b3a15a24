# The operators that have kernels. A stem names an operator's files wherever they are:
#   kernels/<stem>.cuh, .cu                        device code, launcher
#   csrc/measure/simd/<stem>.h, .cpp               the CPU's kernel on raw memory
#   csrc/measure/cpu, cuda/<stem>.cpp              what speaks torch
#   tests/unit/measure/<stem>_test.cpp             parity with double, on the CPU and the emulated device
#   tests/emulation/<stem>_emulated_test.cpp       the launcher on the emulated device
#   tests/emulation/mutations/<stem>.json          proof that those tests have teeth
#   docs/kernels/<stem>.md                         how, how accurate, what it costs
set(headscope_op_stems attention_mass gram symmetric_eigenvalues)
