"""ResNet-18 as torchvision has it, its 7 x 7 stem included: 11,181,642 parameters for 10 classes.

Its batch normalisation keeps no running averages: `models.build` sees to that for every model.
"""

from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.architectures import is_sized
from p2p_tally.learning.torchvision_import import import_torchvision


def build(input_shape: tuple[int, ...], classes: int, federation: Federation) -> nn.Module:
    if len(input_shape) != 3 or input_shape[0] != 3:
        raise ConfigError(f"--model resnet18: needs inputs [3, height, width], not {input_shape}")
    if is_sized(federation.model):
        raise ConfigError(f"--model {federation.model}: resnet18 has one size; accepted is resnet18")
    for flag, count in (("--batch", federation.batch), ("--probes-per-round", federation.probes_per_round)):
        if count < 2:  # a single small image has no spread to divide by
            raise ConfigError(f"{flag} {count}: resnet18 normalises over the batch; accepted is a whole number from 2")
    model: nn.Module = import_torchvision("--model resnet18").models.resnet18(weights=None, num_classes=classes)
    return model


MODELS = {"resnet18": build}
