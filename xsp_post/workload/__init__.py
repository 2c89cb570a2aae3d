"""``run`` → capture: the measured child process: find the model, put ranges on model and layers, iterate.

``python -m xsp_post.workload REQUEST`` measures one capture; `ranges` alone is for a user's own
program (``with xsp_post.ranges(model):``). Needs the extra ``run`` (torch, nvtx).
"""
