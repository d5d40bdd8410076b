"""python3 -m train_tiny.drafter --target FILE.gguf --out DIR: trains a drafter and writes it as a folder."""

import argparse
import json
import random
import sys

import torch

from ..harder import tasks
from ..tokenizer import MASK
from ..tri.schedule import MIX
from .export import export_drafter
from .model import Drafter, DrafterConfig
from .spread import spread
from .target import load_target
from .train import rounds, train


def parse(args):
    parser = argparse.ArgumentParser(prog="train_tiny.drafter", description=__doc__)
    parser.add_argument("--target", required=True, help="GGUF file of the recipe tri (F32 or F16)")
    parser.add_argument("--out", required=True, help="folder of the drafter")
    parser.add_argument("--minutes", type=float, help="of training; the learning rate falls to 0 within them")
    parser.add_argument("--steps", type=int, help="the same in steps")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--states", type=int, default=3, help="layers of the target whose outputs are read")
    parser.add_argument("--block", type=int, default=16, help="positions of a block, its known token included")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--items", type=int, default=100, help="held-out prompts for the tokens per round")
    parser.add_argument("--workers", type=int, default=0, help="processes that draw texts ahead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    found = parser.parse_args(args)
    if found.minutes is None and found.steps is None:
        parser.error("give --minutes or --steps")
    return found


def main(args=None):
    options = parse(args)
    target, tokenizer = load_target(options.target, options.device)
    c = target.config
    config = DrafterConfig(width=c.d_model, target_layers=spread(c.n_layers, options.states),
                           target_layer_count=c.n_layers, vocab_size=c.vocab_size,
                           mask_token_id=tokenizer.special[MASK], layers=options.layers, block=options.block,
                           positions=c.max_sequence_length, hidden=3 * c.d_model)
    drafter = Drafter(config, options.seed).to(options.device)
    steps = train(drafter, target, tokenizer, options.minutes, options.steps, options.batch_tokens, options.seed,
                  options.workers)
    rng = random.Random("drafter held out")
    items = [{"prompt": tasks.draw(rng, rng.uniform(0, 0.3), MIX).prompt} for _ in range(options.items)]
    export_drafter(drafter, options.out)
    parameters = sum(p.numel() for p in drafter.parameters())
    print(json.dumps({"steps": steps, "parameters": parameters, "layers read": list(config.target_layers),
                      "tokens per round": round(rounds(drafter, target, tokenizer, items), 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
