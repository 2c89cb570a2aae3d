"""Peaks of GPUs, facts about this machine, location of NVIDIA's tools."""
