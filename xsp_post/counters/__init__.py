"""Counter reports onto the kernels of timing runs: keys, quantities, the join."""
