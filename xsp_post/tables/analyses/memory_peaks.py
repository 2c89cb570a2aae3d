"""The tables about memory → the device that stands for a capture: the one with the highest peak."""

import pandas as pd

from xsp_post.model.results import Results, frame_or_empty


def main_device(results: Results, capture_id: int | None = None) -> pd.Series | None:
    """The row of ``memory_devices`` with the highest peak, of one capture or of all; memory of the host only where no
    device has any. None where no allocation is known."""
    devices = frame_or_empty(results, "memory_devices")
    devices = devices[devices["peak_bytes"] > 0]
    if capture_id is not None:
        devices = devices[devices["capture_id"] == capture_id]
    if devices.empty:
        return None
    on_device = devices["memory_kind"].astype(str) == "device"
    return (devices[on_device] if on_device.any() else devices).sort_values("peak_bytes", kind="stable").iloc[-1]
