"""Learn a vocabulary of byte pairs (Sennrich et al. 2016) from a text, with the `tokenizers` library.

    python examples/tokenizer.py public.txt bpe.json --size 512

All clients read their texts by this one file. It shows which words are frequent in the text that it was
learnt from, so that should be a public one. It needs the extra ``text``.

python run_sim.py --dataset tokens:bpe.json:play.txt --model examples/lora.py:whole --client shared
flwr run . --run-config "dataset='tokens:bpe.json:play.txt' model='examples/lora.py:whole' client='shared'"
"""

import argparse


def main() -> None:
    """Write the vocabulary; any text can be read by it, as it holds all 256 bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("to")
    parser.add_argument("--size", type=int, default=512)
    chosen = parser.parse_args()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=chosen.size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([chosen.text], trainer)
    tokenizer.save(chosen.to)


if __name__ == "__main__":
    main()
