"""hardware.py: peaks against printed data sheets, against real captures' own attributes, and unknowns."""

import json

import pytest
from paper.systems import paper_system

from xsp_post.base.errors import UsageError
from xsp_post.hardware import gpus as hardware
from xsp_post.hardware.gpus import GPUS, PIPES


def to_override(peaks):
    """What `load_overrides` reads back: a JSON-ready table of these peaks."""
    entry = {"gpu_name": peaks.gpu_name, "source": peaks.source}
    entry |= {f"{pipe}_flop_per_s": value for pipe, value in peaks.flop_per_s.items()}
    if peaks.memory_bandwidth_bytes_per_s is not None:
        entry["memory_bandwidth_bytes_per_s"] = peaks.memory_bandwidth_bytes_per_s
    if peaks.l2_bytes is not None:
        entry["l2_bytes"] = peaks.l2_bytes
    return entry


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_unrounded_peaks_round_to_the_data_sheet(gpu):
    peaks = hardware.find_peaks(gpu.name)
    assert peaks is not None and peaks.gpu_name == gpu.name and peaks.source
    assert set(peaks.flop_per_s) <= set(PIPES)
    assert 50e9 < peaks.memory_bandwidth_bytes_per_s < 10e12
    for pipe, tflops in gpu.datasheet.items():
        assert peaks.peak(pipe) == pytest.approx(tflops * 1e12, rel=0.025), pipe


def test_every_alias_is_unique():
    aliases = [frozenset(hardware._words(alias)) for gpu in GPUS.values() for alias in {*gpu.aliases}]
    assert len(aliases) == len(set(aliases))


@pytest.mark.parametrize(
    ("driver_name", "product", "bandwidth", "fp32"),
    # name, bandwidth (B/s) and fp32 (flop/s) as TARGET_INFO_GPU of real captures state or imply them
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", 2039040000000, 108 * 128 * 1410e6),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB", 1555200000000, 108 * 128 * 1410e6),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe", 1935360000000, 108 * 128 * 1410e6),
        ("NVIDIA H200", "H200 SXM", 4916736000000, 132 * 256 * 1980e6),
        ("Tesla T4", "Tesla T4", 320064000000, 40 * 128 * 1590e6),
        ("Quadro RTX 6000", "Quadro RTX 6000", 672096000000, 72 * 128 * 1770e6),
        ("NVIDIA TITAN RTX", "TITAN RTX", 672096000000, 72 * 128 * 1770e6),
        ("NVIDIA GeForce RTX 3080", "GeForce RTX 3080", 760080000000, 68 * 256 * 1710e6),
        ("NVIDIA GeForce RTX 3070 Ti", "GeForce RTX 3070 Ti", 608064000000, 48 * 256 * 1770e6),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090", 1008096000000, 128 * 256 * 2520e6),
        ("NVIDIA RTX A2000 12GB", "RTX A2000 12GB", 288048000000, 26 * 256 * 1200e6),
        ("NVIDIA A10G", "A10G", 600096000000, 80 * 256 * 1710e6),
        ("NVIDIA A40", "A40", 696096000000, 84 * 256 * 1740e6),
    ],
)
def test_names_as_drivers_give_them(driver_name, product, bandwidth, fp32):
    peaks = hardware.find_peaks(driver_name)
    assert peaks is not None and peaks.gpu_name == product and peaks.origin == hardware.FROM_TABLE
    assert peaks.memory_bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=1e-9)
    assert peaks.peak("fp32") == pytest.approx(fp32, rel=1e-9)


@pytest.mark.parametrize(
    ("driver_name", "product"),
    [
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2"),
        ("Tesla V100-SXM2-32GB", "Tesla V100-SXM2"),
        ("Tesla V100-PCIE-16GB", "Tesla V100-PCIE"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"),
        ("nvidia  a30", "A30"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada Generation"),
        ("NVIDIA H800", "H800 SXM5 80GB"),
        ("Tesla P100-PCIE-16GB", "Tesla P100-PCIE-16GB"),
        ("A100-SXM-80GB", "A100-SXM4-80GB"),
    ],
)
def test_more_driver_names(driver_name, product):
    peaks = hardware.find_peaks(driver_name)
    assert peaks is not None and peaks.gpu_name == product


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA",
        "A100",
        "NVIDIA GeForce RTX 3080 Ti",
        "NVIDIA GeForce RTX 3080 Laptop GPU",
        "RTX 9999",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "Intel(R) Xeon(R) CPU",
        "AMD Instinct MI300X",
        "x" * 10000,
        "\x00<script>",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100",
    ],
)
def test_an_unknown_gpu_is_not_guessed(name):
    assert hardware.find_peaks(name) is None


def test_similar_names_help():
    assert "A100 80GB PCIe" in hardware.similar_names("A100")
    assert hardware.similar_names("Radeon") == []


def test_an_unknown_name_is_computed_from_attributes():
    peaks = hardware.find_peaks(
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        sm_count=14,
        clock_hz=1410e6,
        compute_capability="8.0",
        memory_bandwidth_bytes_per_s=194e9,
    )
    assert peaks is not None and peaks.origin == hardware.FROM_ATTRIBUTES
    assert peaks.peak("fp32") == 14 * 128 * 1410e6
    assert peaks.ideal_intensity() == pytest.approx(14 * 128 * 1410e6 / 194e9)


def test_a_board_with_other_multiprocessors_is_not_the_product():
    peaks = hardware.find_peaks("NVIDIA GeForce RTX 3080", sm_count=70, clock_hz=1.71e9, compute_capability="8.6")
    assert peaks is not None and peaks.origin == hardware.FROM_ATTRIBUTES
    assert peaks.peak("fp32") == 70 * 256 * 1.71e9
    assert peaks.ideal_intensity() is None  # no bandwidth stated: unknown, not the table's
    assert hardware.find_peaks("NVIDIA GeForce RTX 3080", sm_count=70) is None
    same = hardware.find_peaks("NVIDIA GeForce RTX 3080", sm_count=68)
    assert same is not None and same.origin == hardware.FROM_TABLE


def test_tensor_rates_that_differ_between_boards_are_left_out_unless_the_name_tells():
    known = {"sm_count": 10, "clock_hz": 1e9, "compute_capability": "8.6"}
    assert hardware.find_peaks("GPU of 8.6", **known).peak("fp16_tensor") is None
    assert hardware.find_peaks("GPU of 8.6", **known).peak("fp32") == 2.56e12
    assert hardware.find_peaks("NVIDIA GeForce RTX 3999", **known).peak("fp16_tensor") == 5.12e12
    assert hardware.find_peaks("NVIDIA RTX A3999", **known).peak("fp16_tensor") == 10.24e12


def test_unknown_attributes_are_minus_one_or_nan():
    row = {
        "gpu_name": "mystery",
        "sm_count": -1,
        "clock_hz": float("nan"),
        "memory_bandwidth_bytes_per_s": float("nan"),
        "compute_capability": "",
    }
    assert hardware.peaks_of_device(row) is None


def test_ncu_attributes():
    # As read from a report of a GB200 (capped at 1.2 GHz), with the name made unknown.
    peaks = hardware.peaks_of_ncu_attributes(
        {
            "display_name": "NVIDIA GB999",
            "compute_capability_major": 10,
            "compute_capability_minor": 0,
            "multiprocessor_count": 152,
            "clock_rate": 1_200_000,
            "memory_clock_rate": 4_000_000,
            "global_memory_bus_width": 7936,
            "l2_cache_size": 135528448,
        }
    )
    assert peaks is not None
    assert peaks.peak("fp32") == pytest.approx(2 * 19456 * 1.2e9)  # 19 456 ffma per cycle: ncu's own peak
    assert peaks.peak("fp64") == pytest.approx(2 * 9728 * 1.2e9)
    assert peaks.memory_bandwidth_bytes_per_s == pytest.approx(1984 * 4e9)  # ncu: 1984 B per DRAM cycle
    assert peaks.l2_bytes == 135528448
    assert hardware.peaks_of_ncu_attributes({}) is None


@pytest.mark.parametrize(
    ("system", "printed"),
    [("Quadro_RTX", 26.12), ("Tesla_V100", 17.44), ("Tesla_P100", 12.70), ("Tesla_P4", 28.34), ("Tesla_M60", 30.12)],
)
def test_the_papers_ideal_intensities(system, printed):
    # 30.125 is printed as 30.12; half a unit in the last place either way.
    assert paper_system(system).ideal_intensity() == pytest.approx(printed, abs=0.00501)


def test_overrides_round_trip(tmp_path):
    path = tmp_path / "peaks.json"
    original = hardware.find_peaks("NVIDIA H200")
    path.write_text(json.dumps(to_override(original)))
    overrides = hardware.load_overrides(path)
    found = hardware.find_peaks("NVIDIA H200 SXM", overrides=overrides)
    assert found is not None and found.origin == hardware.FROM_FILE
    assert found.flop_per_s == original.flop_per_s
    assert hardware.find_peaks("NVIDIA L4", overrides=overrides).origin == hardware.FROM_TABLE


def test_overrides_in_toml_and_for_every_gpu(tmp_path):
    path = tmp_path / "peaks.toml"
    path.write_text('[[gpus]]\ngpu_name = "*"\nfp32_flop_per_s = 1e12\nmemory_bandwidth_bytes_per_s = 1e11\n')
    peaks = hardware.find_peaks("whatever", overrides=hardware.load_overrides(path))
    assert peaks is not None and peaks.ideal_intensity() == 10 and peaks.source == "file peaks.toml"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", "[]", "no table"),
        ("a.json", "3", "no table"),
        ("a.json", '{"fp99_flop_per_s": 1}', "fp99"),
        ("a.json", '{"fp32_flop_per_s": "much"}', "fp32"),
        ("a.json", '{"fp32_flop_per_s": -1}', "fp32"),
        ("a.json", '{"fp32_flop_per_s": true}', "fp32"),
        ("a.toml", "= 3", "TOML"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        hardware.load_overrides(path)
    assert name in caught.value.message and caught.value.code == "peaks-file"


def test_missing_file_and_binary_file(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.json"):
        hardware.load_overrides(tmp_path / "nothing.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        hardware.load_overrides(tmp_path / "b.json")
