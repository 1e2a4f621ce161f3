"""The ClientApp of Flower's quickstart-pytorch, with its data set replaced by arrays.

As there: a new network and a new DataLoader for every message, examples converted one by one, the whole
state dict sent back. Its images are decoded from a Hugging Face data set; here they are decoded already.
"""

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import ToTensor

from .job import Job

app = ClientApp()


class ClientImages(Dataset[tuple[Tensor, int]]):
    """Labelled images of one client, converted when they are asked for."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self.images, self.labels = images, labels
        self.transform = ToTensor()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(np.array(self.images[index].transpose(1, 2, 0))), int(self.labels[index])


def train_network(net: nn.Module, loader: DataLoader[tuple[Tensor, int]], lr: float) -> float:
    """One epoch; the mean of the batches' losses."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    running_loss = 0.0
    device = next(net.parameters()).device
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)  # noqa: PLW2901
        optimizer.zero_grad()
        loss = criterion(net(images), labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    return running_loss / len(loader)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    torch.set_num_threads(1)
    job = Job.parse(str(msg.content.config_records["config"]["job"]))
    net = job.initial_model()
    net.load_state_dict(msg.content.array_records["arrays"].to_torch_state_dict())
    net.to(job.device)
    rows = job.rows(int(context.node_config["partition-id"]))
    images, labels = job.train_arrays()
    data = ClientImages(images[rows], labels[rows])
    loss = train_network(net, DataLoader(data, batch_size=job.batch, shuffle=True), job.lr)
    content = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"train_loss": loss, "num-examples": len(data)}),
        }
    )
    return Message(content, reply_to=msg)
