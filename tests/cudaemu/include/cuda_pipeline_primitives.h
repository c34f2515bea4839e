// cuda_pipeline_primitives.h (emulation): its calls are in cuemu/ptx.h, which cuda_runtime.h brings.
#pragma once
#include "cuda_runtime.h"
