"""Work of whole models from torch's own traces: against torch.utils.flop_counter and the published multiply-adds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra run)")

from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from xsp_post.pipeline import analyze  # noqa: E402
from xsp_post.workload import gpt, models  # noqa: E402

GIGA = 1e9


def recorded(run, folder):
    """Analysis of one call of ``run``, and what torch counts of it."""
    with FlopCounterMode(display=False) as counter:
        run()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        run()
    path = folder / "trace.json"
    recording.export_chrome_trace(str(path))
    return analyze([path]), counter.get_total_flops()


def total_flop(analysis):
    return analysis.frame("kernel_work")["flop"].sum()


def inference(model, inputs):
    model.eval()

    def run():
        with torch.no_grad():
            model(*inputs)

    return run


PUBLISHED = [("resnet50", 4.0892), ("vgg16", 15.4703), ("mobilenet_v1", 0.5687)]


@pytest.mark.parametrize(("name", "multiply_adds"), PUBLISHED)
def test_the_published_multiply_adds(name, multiply_adds, tmp_path):
    model = models._VISION[name]()
    analysis, counted = recorded(inference(model, (torch.randn(1, 3, 224, 224),)), tmp_path)
    assert total_flop(analysis) == counted
    assert round(total_flop(analysis) / 2 / GIGA, 4) == multiply_adds


def test_a_training_step_of_resnet50_has_each_phase(tmp_path):
    model = models._VISION["resnet50"]().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    inputs = torch.randn(1, 3, 96, 96)

    def step():
        with record_function("Step 1"):
            optimizer.zero_grad()
            model(inputs).mean().backward()
            optimizer.step()

    with FlopCounterMode(display=False) as forward:
        model(inputs)
    analysis, counted = recorded(step, tmp_path)
    work = analysis.frame("kernel_work").groupby("phase", observed=True)["flop"].sum()
    assert work["forward"] == forward.get_total_flops()
    assert work.sum() == counted
    assert work["backward"] == counted - forward.get_total_flops()
    assert work["optimizer"] == 0
    phases = analysis.frame("training_phases")
    step_rows = phases[phases["layer_index"].eq(-1)].set_index("training_phase")
    assert {"forward", "backward", "optimizer"} <= set(step_rows.index)
    assert step_rows["kernel_latency_ratio"].sum() == pytest.approx(1)
    assert step_rows.loc["backward", "total_flop"] == pytest.approx(work["backward"])
    model_row = analysis.frame("a15").iloc[0]
    assert model_row["total_flop"] == pytest.approx(counted)


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


def test_a_training_step_of_a_transformer(tmp_path):
    batch, length, width, heads = 2, 32, 64, 4
    model = nn.Sequential(nn.Embedding(100, width), Block(), Block(), nn.Linear(width, 100))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.randint(100, (batch, length))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    analysis, _ = recorded(step, tmp_path)
    work = analysis.frame("kernel_work").groupby("phase", observed=True)["flop"].sum()
    rows = batch * length
    linear = 2 * rows * (2 * width * (3 * width + width + 8 * width) + 100 * width)
    pairs = batch * heads * length * (length + 1) // 2
    attention = 2 * pairs * 2 * (2 * width // heads)
    assert work["forward"] == linear + attention
    assert work["backward"] == 2 * linear + 2.5 * attention


def test_gpt_in_prefill_and_decode(tmp_path):
    model = gpt.GPT().eval()
    tokens = torch.randint(gpt.VOCABULARY, (1, 64))

    def run():
        with torch.no_grad():
            model(tokens, 0)
            model(tokens[:, :1], 64)

    analysis, _ = recorded(run, tmp_path)
    width, blocks = gpt.WIDTH, len(model.blocks)
    linear = blocks * 2 * 65 * width * 12 * width + 2 * 2 * width * gpt.VOCABULARY
    pairs = 64 * 65 // 2 + 65
    attention = blocks * pairs * 4 * width
    assert total_flop(analysis) == linear + attention


def test_transposed_and_grouped_convolutions(tmp_path):
    """Each gradient is as much as forward; torch's own counter forgets the groups in the gradient of the weights."""
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, stride=2, groups=4, padding=1),
        nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, groups=2),
        nn.Conv2d(8, 8, 3, dilation=2),
    )
    inputs = torch.randn(2, 8, 20, 20, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        model(inputs)
    analysis, _ = recorded(lambda: model(inputs).sum().backward(), tmp_path)
    by_hand = 2 * 2 * 16 * 100 * 2 * 9 + 2 * 2 * 100 * 16 * 4 * 16 + 2 * 2 * 8 * 256 * 8 * 9
    assert forward.get_total_flops() == by_hand
    assert total_flop(analysis) == pytest.approx(3 * by_hand, rel=1e-12)
