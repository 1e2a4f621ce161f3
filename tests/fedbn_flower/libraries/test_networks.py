"""Networks of torchvision, timm and MONAI by name: what is filled in, what travels, what is refused."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from fedbn_flower.config.making import run_config
from fedbn_flower.config.trust import code_in
from fedbn_flower.core.named_call import value_of
from fedbn_flower.job.initial_model import build_model
from fedbn_flower.models import InputSpec
from fedbn_flower.models.named import MODEL
from fedbn_flower.names import short

from ..refusal import one_line

IMAGES, MASKS = InputSpec((1, 32, 32), 3), InputSpec((2, 32, 32), 3, "masks")
VOLUMES, VOLUME_MASKS = InputSpec((1, 8, 32, 32), 3), InputSpec((2, 16, 16, 16), 3, "masks")
BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
SMALL_UNET = "monai:UNet:channels=4/8,strides=2/,norm=batch"


def needs(name):
    library = name.partition(":")[0]
    pytest.importorskip(library, reason=f"needs {library}, of the extra networks")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("torchvision:fcn_resnet50", MASKS),
        ("torchvision:resnet18", IMAGES),
        ("torchvision:r3d_18", VOLUMES),
        ("torchvision:mobilenet_v3_small:dropout=0.1", IMAGES),
        ("timm:resnet18:drop_rate=0.1", IMAGES),
        ("monai:resnet10", VOLUMES),
        (SMALL_UNET, VOLUME_MASKS),
        ("monai:UNet:spatial_dims=3,in_channels=2,channels=4/8,strides=2/", VOLUME_MASKS),
        ("monai:BasicUNet:features=4/4/8/8/8/4", MASKS),
    ],
)
def test_channels_and_outputs_are_those_of_the_data_and_all_of_it_is_trained(name, spec):
    needs(name)
    model = build_model(name, spec, False, 0)
    output = model(spec.zeros(2))
    assert output.shape == (2, 3, *(spec.shape[1:] if spec.predicts == "masks" else ()))
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_arguments_are_the_networks():
    dropout = build_model("torchvision:mobilenet_v3_small:dropout=0.125", IMAGES, False, 0)
    assert [m.p for m in dropout.modules() if isinstance(m, nn.Dropout)] == [0.125]


def test_values_of_arguments():
    for text, value in {
        "3": 3, "0.5": 0.5, "true": True, "none": None, "batch": "batch", "16/32": (16, 32), "2/": (2,),
        "nan": "nan", "a/1": ("a", 1),
    }.items():  # fmt: skip
        assert value_of(text) == value
        assert type(value_of(text)) is type(value)


def batch_norm_names(model, buffers_only):
    """By module type, and by PyTorch's names of the entries."""
    layers = [name for name, module in model.named_modules() if isinstance(module, BATCH_NORM)]
    words = BUFFERS if buffers_only else ("weight", "bias", *BUFFERS)
    return {f"{layer}.{word}" for layer in layers for word in words}


TRAINED = [
    ("torchvision:resnet18", (1, 16, 16), False),
    ("timm:resnet10t", (1, 32, 32), False),
    ("monai:resnet10:widen_factor=0.0625", (1, 8, 16, 16), False),
    (SMALL_UNET, (1, 8, 8, 8), True),
    ("unet-3d", (1, 4, 8, 8), True),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape", "masks", "client"),
    [  # what stays is chosen by the type of a layer alone: the others are for a network each
        pytest.param(*case, client, marks=[] if i in some else [pytest.mark.exhaustive])
        for client, some in (("fedbn", range(len(TRAINED))), ("silobn", (4,)), ("shared", (3,)))
        for i, case in enumerate(TRAINED)
    ],
)
def test_after_two_rounds_all_has_travelled_but_what_the_client_keeps(run, model, shape, masks, client):
    """Two clients' models are equal in every entry that travels, and differ in those that stay."""
    needs(model) if ":" in model else None
    rng = np.random.default_rng(0)
    x = [rng.random((6, *shape), np.float32) * (1 + site) + site for site in range(2)]
    y = [rng.integers(0, 2, (6, *shape[1:]) if masks else 6) for _ in range(2)]
    y = [one.astype(np.uint8 if masks else np.int64) for one in y]
    for one in y:
        one.flat[:2] = 0, 1
    result = run(
        data=(np.concatenate(x), np.concatenate(y), x[0], y[0]),
        model=model,
        client=client,
        strategy="fedavg",
        partition="iid",
        batch_size=3,
    )
    one, other = (result.model(client=number) for number in range(2))
    differ = {
        name
        for name, value in one.state_dict().items()
        if not torch.equal(value, other.state_dict()[name]) and "num_batches" not in name
    }
    kept = {"shared": set(), "silobn": batch_norm_names(one, True), "fedbn": batch_norm_names(one, False)}
    expected = {name for name in kept[client] if "num_batches" not in name}
    assert kept["fedbn"]
    assert differ == expected


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("torchvision:resnett18", "unknown name 'resnett18' (did you mean 'resnet18'?)"),
        ("torchvision:resnet18:weights=DEFAULT", "expected no weights: weights are read from"),
        ("timm:resnet18:pretrained=true", "expected no pretrained: weights are read from a file"),
        ("timm:resnet18:drop=", "ARGUMENT=VALUE,... of torchvision, timm or monai, each argument once"),
        ("torchvision:resnet18:a=1,a=2", "each argument once"),
        ("torchvision:resnet-18", "expected LIBRARY:NAME"),
        ("torchvision:resnet18:foo=1", "what torchvision's resnet18 takes: "),
        ("timm:resnet188", "unknown name 'resnet188' (did you mean 'resnet18'?)"),
        ("monai:Unnet", "unknown name 'Unnet'"),
        ("monai:UNet:chanels=1", "unknown name 'chanels' (of the arguments of 'UNet'); expected one of act,"),
        ("monai:UNet", "what monai's UNet takes: UNet.__init__() missing 2 required positional arguments"),
        ("cnnn", "or LIBRARY:NAME or LIBRARY:NAME:ARGUMENT=VALUE,... of torchvision, timm or monai"),
    ],
)
def test_what_is_wrong_is_one_line(name, line):
    if ":" in name:
        needs(name)
    with one_line("model: ", line):
        build_model(name, VOLUME_MASKS if "monai" in name else IMAGES, False, 0)


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fedbn_flower.core.named_call.find_spec", lambda name: None)
    with one_line("model: 'timm:resnet18' needs another package: pip install 'fedbn-flower[networks]'"):
        run_config({"model": "timm:resnet18"})


def test_a_name_does_not_load_its_library_and_stands_in_tables_as_it_is(monkeypatch):
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    MODEL.find("torchvision:resnet18:zero_init_residual=true")
    assert "timm" not in sys.modules
    assert short("monai:UNet:channels=4/8") == "monai:UNet:channels=4/8"


def test_a_network_of_a_library_is_no_code_to_be_trusted():
    assert code_in("model", "timm:resnet18") == code_in("model", "cnn") == set()
    assert code_in("model", "cnn+monai:UNet:channels=4/8") == set()
    assert code_in("model", "timm.models:resnet18") == {"timm.models"}
