"""What GPUs can do, what this machine is, where NVIDIA's tools are."""
