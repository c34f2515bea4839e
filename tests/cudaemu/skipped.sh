#!/bin/bash
# Stands for the emulation's tests where they cannot be built.
echo "skip - cudaemu: the CUDA backend over the emulation: no g++ here"
