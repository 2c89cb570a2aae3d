"""Counter reports are joined to the kernels of timing runs: keys, quantities, the join."""
