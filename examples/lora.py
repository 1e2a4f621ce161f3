"""LoRA (Hu et al. 2021) of a small Llama: its weights are frozen, and thin matrices beside them train.

It needs the extra ``text`` (transformers, peft). Nothing is downloaded: the model is made from its shape.
First train all of it, then adapt it. Only the adapters travel, see docs/how-to/pretrained.md.

python run_sim.py --dataset text:play.txt --model examples/lora.py:lora --client shared --init runs/whole
flwr run . --run-config "dataset='text:play.txt' model='examples/lora.py:lora' client='shared'"
"""

from torch import Tensor, nn

from fedbn_flower.models import InputSpec


class NextToken(nn.Module):
    """A language model of transformers as this app calls it: token numbers (b, T) to logits (b, T, tokens).

    Attention is causal, so that what fills up a text's last window is not seen by the tokens before it.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        return self.network(input_ids=tokens, use_cache=False).logits


def whole(spec: InputSpec) -> nn.Module:
    """A Llama with two layers of width 64, all of which trains: for the 97 characters 92,000 parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM  # here: others read this file without the extra

    shape = LlamaConfig(
        vocab_size=spec.outputs, max_position_embeddings=spec.shape[0], hidden_size=64,
        intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, tie_word_embeddings=False,
    )  # fmt: skip
    return NextToken(LlamaForCausalLM(shape))


def lora(spec: InputSpec) -> nn.Module:
    """The same with adapters of rank 4 at the attention's queries and values, which alone train."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(whole(spec), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
