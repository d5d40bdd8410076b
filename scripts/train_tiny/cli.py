"""The command line; each command fills a part of the directory given by --out."""

import argparse
import json
import os
import random
import sys

import torch

from . import tasks
from .decode import METHODS
from .export import export_model
from .golden import read_items, write_golden
from .model import Llada, ModelConfig
from .schedule import FULL_RUN
from .tokenizer import EOT, MERGES, Tokenizer, chat, train_merges
from .train import Trainer, load_checkpoint, run
from .verify import verify

TOKENIZER_EXAMPLES = 30_000
HELD_OUT = 500


def make_tasks(args):
    directory = os.path.join(args.out, "tasks")
    os.makedirs(directory, exist_ok=True)
    for part in ("validation", "test"):
        with open(os.path.join(directory, f"{part}.jsonl"), "w", encoding="utf-8") as f:
            for e in tasks.held_out(part, HELD_OUT, args.seed):
                f.write(json.dumps({"task": e.task, "prompt": e.prompt, "answer": e.answer}) + "\n")


def make_tokenizer(args):
    if args.tokenizer_from:
        Tokenizer.load(args.tokenizer_from).save(args.out)
        return
    rng = random.Random(f"tokenizer {args.seed}")
    examples = [tasks.draw(rng, rng.randrange(len(tasks.LEVELS)))
                for _ in range(TOKENIZER_EXAMPLES)]
    texts = [chat(e.prompt) + e.answer + EOT for e in examples]
    Tokenizer(train_merges(texts, MERGES)).save(args.out)


def train(args):
    tokenizer = Tokenizer.load(args.out)
    checkpoint = os.path.join(args.out, "checkpoint.pt")
    if os.path.exists(checkpoint) and not args.restart:
        trainer = Trainer.resume(checkpoint, tokenizer, args.bf16)
        if (trainer.budget, trainer.seed) != (int(args.tokens), args.seed):
            raise ValueError(
                f"{checkpoint} belongs to --tokens {trainer.budget} --seed {trainer.seed}; "
                "give these to go on with it, or --restart to begin again")
    else:
        log = os.path.join(args.out, "log.jsonl")
        if os.path.exists(log):
            os.remove(log)
        trainer = Trainer(ModelConfig(), tokenizer, args.tokens, args.seed, args.bf16)
    if not run(trainer, args.out, args.minutes, args.log_every):
        print(f"stopped at {trainer.tokens} of {trainer.budget} tokens; the same command goes on",
              file=sys.stderr)


def export(args):
    state = load_checkpoint(os.path.join(args.out, "checkpoint.pt"))
    model = Llada(ModelConfig(**state["config"]))
    model.load_state_dict(state["model" if args.raw else "average"])
    export_model(model, args.out)


def golden(args):
    items = read_items(os.path.join(args.out, "tasks", "validation.jsonl"))
    write_golden(args.out, items, os.path.join(args.out, "golden"), args.methods,
                 args.accuracy_items)


def everything(args):
    for command in (make_tasks, make_tokenizer, train, export, golden):
        command(args)


def check(args):
    if not verify(args.reference, args.methods):
        raise ValueError("the reference is not reproduced")


def positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        return value
    parse.__name__ = kind.__name__
    return parse


def tokens(text):
    return round(positive(float)(text))


def method_list(text):
    names = text.split(",")
    for name in names:
        if name not in METHODS:
            raise argparse.ArgumentTypeError(f"no method {name}; there are {', '.join(METHODS)}")
    return names


def parser():
    p = argparse.ArgumentParser(prog="train_tiny", description=__doc__)
    commands = p.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--threads", type=positive(int), help="PyTorch's (default: its choice)")
    out = argparse.ArgumentParser(add_help=False)
    out.add_argument("--out", required=True, metavar="DIR", help="the model's directory")
    seed = argparse.ArgumentParser(add_help=False)
    seed.add_argument("--seed", type=int, default=0)
    tokenizer = argparse.ArgumentParser(add_help=False)
    tokenizer.add_argument("--tokenizer-from", metavar="DIR",
                           help="take this directory's tokenizer instead of training one")
    training = argparse.ArgumentParser(add_help=False)
    training.add_argument("--tokens", type=tokens, default=round(FULL_RUN * 1e6),
                          help="budget; the curriculum is stretched over it (default %(default)s)")
    training.add_argument("--minutes", type=positive(float),
                          help="stop after so long; the same command goes on from there")
    training.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    training.add_argument("--restart", action="store_true", help="ignore an existing checkpoint")
    training.add_argument("--log-every", type=positive(int), default=50, metavar="STEPS")
    exporting = argparse.ArgumentParser(add_help=False)
    exporting.add_argument("--raw", action="store_true",
                           help="the last weights instead of their moving average")
    methods = argparse.ArgumentParser(add_help=False)
    methods.add_argument("--methods", type=method_list, default=list(METHODS), metavar="A,B",
                         help=f"of {', '.join(METHODS)} (default: all)")
    table = argparse.ArgumentParser(add_help=False)
    table.add_argument("--accuracy-items", type=int, metavar="N",
                       help="items of the accuracy table; 0: no table (default: all)")
    reference = argparse.ArgumentParser(add_help=False)
    reference.add_argument("--reference", required=True, metavar="DIR",
                           help="a checkpoint with tasks/ and golden/ made elsewhere")

    def add(name, function, text, *parents):
        command = commands.add_parser(name, help=text, parents=[shared, *parents])
        command.set_defaults(function=function)

    add("tasks", make_tasks, "write the held-out items", out, seed)
    add("tokenizer", make_tokenizer, "train the tokenizer", out, seed, tokenizer)
    add("train", train, "train, or go on training", out, seed, training)
    add("export", export, "write the Hugging Face files", out, exporting)
    add("golden", golden, "write golden outputs and the accuracy table", out, methods, table)
    add("all", everything, "all of these, one after another", out, seed, tokenizer, training,
        exporting, methods, table)
    add("verify", check, "reproduce the golden outputs of a reference", reference, methods)
    return p


def main(argv=None):
    args = parser().parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        args.function(args)
    except (ValueError, OSError) as e:
        print(f"train_tiny: {e}", file=sys.stderr)
        return 1
    return 0
