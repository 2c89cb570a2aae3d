"""``run`` → capture: the convolutional models that are built in, in plain torch with seeded random weights.

Every step that costs device time is a module of its own (also the residual addition and the flattening),
so that every kernel falls into a layer. Shapes: inputs ``(batch, 3, 224, 224)``, outputs ``(batch, 1000)``.
"""

import torch
from torch import Tensor, nn

CLASS_COUNT = 1000  # of ImageNet


class Add(nn.Module):
    """The residual addition, a layer of its own as in XSP's layer tables."""

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class Bottleneck(nn.Module):
    """Residual block of ResNet-50 v1.5: the stride is in the 3x3 convolution (v1 had it in the first 1x1)."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = 4 * width
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
            )
        self.add = Add()
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.relu2(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu3(self.add(y, shortcut))


class ResNet50(nn.Sequential):
    """ResNet-50 v1.5 (He et al. 2015 with the stride moved; the paper's example workload)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for stage, (width, block_count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
            blocks = []
            for block in range(block_count):
                blocks.append(Bottleneck(channels, width, stride=2 if block == 0 and stage > 1 else 1))
                channels = 4 * width
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(channels, CLASS_COUNT)


class MobileNetV1(nn.Sequential):
    """MobileNet v1, width 1.0 (Howard et al. 2017): 13 depthwise-separable blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("stem", _convolution(3, 32, kernel=3, stride=2))
        plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
        channels = 32
        for index, (width, stride) in enumerate(plan, start=1):
            depthwise = _convolution(channels, channels, kernel=3, stride=stride, groups=channels)
            self.add_module(f"block{index}", nn.Sequential(depthwise, _convolution(channels, width, kernel=1)))
            channels = width
        self.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
        self.add_module("flatten", nn.Flatten())
        self.add_module("fc", nn.Linear(channels, CLASS_COUNT))


def _convolution(channels: int, width: int, *, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU6())


class VGG16(nn.Sequential):
    """VGG-16, configuration D (Simonyan and Zisserman 2014): 13 convolutions, 3 matrix products."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.flatten = nn.Flatten()
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, CLASS_COUNT),
        )  # fmt: skip


def image_batch(batch_size: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """One random image, repeated: what XSP's own runs fed (XSP §2.1: one image duplicated)."""
    image = torch.rand(shape, dtype=torch.float32).to(dtype)
    return image.expand(batch_size, *shape).contiguous().to(device)
