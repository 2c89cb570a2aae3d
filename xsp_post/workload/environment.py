"""``run`` → capture: the facts about software and device that decide whether captures are alike."""

import platform
from typing import Any

import torch

from xsp_post.hardware import machine


def environment(device: str) -> dict[str, Any]:
    """Versions, device and driver of this process. No host name, no user, no environment variable."""
    facts: dict[str, Any] = {
        "framework": f"torch {torch.__version__}",
        "torch_version": str(torch.__version__),
        "python_version": platform.python_version(),
        "cuda_version": torch.version.cuda or "",
        "thread_count": torch.get_num_threads(),
        "cpu_name": machine.cpu_name(),
        "cpu_count": machine.usable_cpu_count(),
        "device_name": machine.cpu_name(),
        "gpu_name": "",
        "driver_version": "",
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        gpus = machine.gpus()
        facts.update(
            device_name=properties.name,
            gpu_name=properties.name,
            driver_version=gpus[0].driver_version if gpus else "",
            gpu_memory_bytes=properties.total_memory,
            compute_capability=f"{properties.major}.{properties.minor}",
            sm_count=properties.multi_processor_count,
            cudnn_version=torch.backends.cudnn.version() or -1,
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            allow_tf32_matmul=torch.backends.cuda.matmul.allow_tf32,
            allow_tf32_cudnn=torch.backends.cudnn.allow_tf32,
        )
    return facts
