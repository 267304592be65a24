"""Line-by-line Numba ports of vLLM's CUDA kernels, with vLLM's names."""
